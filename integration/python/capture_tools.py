"""How each capture tool is asked to take a program.

The compilers take the program as it is. The tracers take tensors only, so the other arguments are bound beforehand,
as their users do by hand; what they return is taken as it comes. `torch.jit.trace` runs the program once to record
it, so what it is compared with runs once more too.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

import intarsia
from integration.python.compare import Difference
from integration.python.program import Program
from integration.python.run import check, run

__all__ = ["TOOLS", "judge"]

Tool = Callable[[Any, Program], Any]


def judge(tool: str, program: Program) -> tuple[str, str]:
    """Return "works", "wrong" or "refuses", and the reason.

    Args:
        tool: Key of `TOOLS`.
        program: A row of the corpus.
    """
    intarsia.reset()
    take = TOOLS[tool]
    expected = run(program, lambda subject: warmed_up(subject, program) if take is trace else subject)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            actual = run(program, lambda subject: take(subject, program))
        except Exception as error:
            return "refuses", describe(error)
    for a, e in zip(actual.calls, expected.calls):
        if a.error is not None and type(a.error) is not type(e.error):
            return "refuses", describe(a.error)
    try:
        check(actual, expected)
    except Difference as difference:
        return "wrong", str(difference)[:200]
    except Exception as error:
        # what came out can't even be looked at, such as a proxy that was left behind
        return "wrong", describe(error)
    return "works", ""


def describe(error: BaseException) -> str:
    """Return the class of an error and the first line of its message."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]


class SeveralPiecesError(Exception):
    """A call was compiled as more than one graph, and nothing was said."""


def ours(subject: Any, program: Program) -> Any:
    fast = intarsia.compile(subject, fullgraph=True, options={"on_error": "raise"})
    return in_one_piece(fast, lambda: intarsia.stats().graphs)


def compiled(subject: Any, program: Program) -> Any:
    torch._dynamo.reset()
    graphs: list[torch.fx.GraphModule] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(module)
        return module.forward

    return in_one_piece(torch.compile(subject, fullgraph=True, backend=backend), lambda: len(graphs))


def in_one_piece(fast: Any, count: Callable[[], int]) -> Any:
    """Return `fast`, which may compile one graph a call; `count` tells how many there are."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before = count()
        result = fast(*args, **kwargs)
        if count() > before + 1:
            raise SeveralPiecesError(f"{count() - before} graphs")
        return result

    return call


def script(subject: Any, program: Program) -> Any:
    return torch.jit.script(subject)


def trace(subject: Any, program: Program) -> Any:
    tensors, root = over_tensors(subject, example(program))
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        traced = torch.jit.trace(root, tuple(tensors), check_trace=False, strict=False)
    return lambda *args, **kwargs: traced(*flat_tensors((args, kwargs)))


def symbolic_trace(subject: Any, program: Program) -> Any:
    _, root = over_tensors(subject, example(program))
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        module = torch.fx.symbolic_trace(root)
    return lambda *args, **kwargs: module(*flat_tensors((args, kwargs)))


TOOLS: dict[str, Tool] = {
    "intarsia": ours,
    "torch.compile": compiled,
    "torch.jit.trace": trace,
    "torch.jit.script": script,
    "torch.fx.symbolic_trace": symbolic_trace,
}


def example(program: Program) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Make inputs to record with, others than those of the calls."""
    torch.manual_seed(50)
    return program.inputs(), program.keywords()


def warmed_up(subject: Any, program: Program) -> Any:
    """Run a program once, and return it."""
    args, kwargs = example(program)
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Exception):
        subject(*args, **kwargs)
    return subject


def over_tensors(subject: Any, inputs: Any) -> tuple[list[torch.Tensor], Any]:
    """Return the tensors among the inputs, and the program as a function (or module) of them alone."""
    leaves, structure = pytree.tree_flatten(inputs)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> Any:
        new = iter(tensors)
        filled = [next(new) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(filled, structure)
        return subject(*args, **kwargs)

    # symbolic tracing needs each parameter by name
    names = ", ".join(f"t{i}" for i in range(len(tensors)))
    scope: dict[str, Any] = {"call": call, "__name__": __name__}
    exec(f"def forward({names}):\n    return call({names})\n", scope)
    if not isinstance(subject, torch.nn.Module):
        return tensors, scope["forward"]
    exec(f"def method(self, {names}):\n    return call({names})\n", scope)
    root = type("Root", (torch.nn.Module,), {"forward": scope["method"]})()
    root.subject = subject
    return tensors, root


def flat_tensors(inputs: Any) -> list[torch.Tensor]:
    """Return the tensors among inputs, in order."""
    return [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
