"""What a program of a user's extension is, and the two compilers that it is given to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import intarsia

__all__ = ["Extension", "Outcome", "ours", "outcome", "theirs"]

Compile = Callable[..., Callable[..., Any]]


@dataclass(frozen=True)
class Extension:
    """One way to extend a compiler.

    Args:
        kind: What is brought: an operator, a kernel, a backend, a pass, a device, a dialect, a quantizer, a subclass.
        name: Its form.
        run: Compiles with the compiler that it is given, calls, compares with eager, and raises where it differs.
        peer: The same for torch.compile, where that has the feature in another form; `run` where it is the same; None
            where it has none.
    """

    kind: str
    name: str
    run: Callable[[Compile], None]
    peer: Callable[[Compile], None] | None


@dataclass(frozen=True)
class Outcome:
    """What came of a program.

    Args:
        error: "" if it worked, else the class and the first line of what was raised.
        seconds: CPU time.
    """

    error: str
    seconds: float


def ours(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    """Compile whole, errors raised."""
    return intarsia.compile(function, fullgraph=True, options={"on_error": "raise"}, **how)


def theirs(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    """Compile whole with torch.compile; without a backend of the program's own, down to ATen, run op by op."""
    return torch.compile(function, fullgraph=True, **{"backend": "aot_eager", **how})


def outcome(run: Callable[[Compile], None], compile_: Compile) -> Outcome:
    """Run a program in a fresh state of both compilers."""
    intarsia.reset()
    torch._dynamo.reset()
    torch.manual_seed(0)
    start = time.process_time()
    error = ""
    try:
        run(compile_)
    except Exception as caught:  # what is asked is whether, and how, it fails
        error = f"{type(caught).__name__}: {(str(caught).splitlines() or [''])[0]}"
    return Outcome(error, time.process_time() - start)


def both(kind: str, name: str) -> Callable[[Callable[[Compile], None]], Extension]:
    """Make an extension of a function that either compiler is given to."""
    return lambda run: Extension(kind, name, run, run)


def only_ours(kind: str, name: str) -> Callable[[Callable[[Compile], None]], Extension]:
    """Make an extension of a function, where torch.compile has no such thing."""
    return lambda run: Extension(kind, name, run, None)


def equal(fast: Callable[..., Any], function: Callable[..., Any], *inputs: Any) -> None:
    """Compare two calls, and what they leave of their arguments."""
    given = [[x.clone() if type(x) is torch.Tensor else x for x in inputs] for _ in range(2)]
    torch.testing.assert_close((fast(*given[0]), given[0]), (function(*given[1]), given[1]))


def equal_gradients(fast: Callable[..., Any], function: Callable[..., Any], *inputs: Any) -> None:
    """Compare the gradients of two calls that give one number."""
    found = []
    for call in (fast, function):
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        found.append(torch.autograd.grad(call(*leaves), leaves))
    torch.testing.assert_close(*found)
