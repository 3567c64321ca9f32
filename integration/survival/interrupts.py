"""SIGINT at random moments of a compilation and of calls: KeyboardInterrupt or the right answer, and nothing is left.

The moments are drawn evenly over what a compilation, or a hundred calls, took without an interrupt.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import intarsia

__all__ = ["Seen", "main", "of_calls", "of_compilations"]

CALLS = 100  # one after the other: so long that moments fall into them


@dataclass
class Seen:
    """What was seen.

    Args:
        interrupted: Moments at which KeyboardInterrupt was raised.
        answered: Moments at which the answer came first.
        wrong: What went wrong, in words.
    """

    interrupted: int = 0
    answered: int = 0
    wrong: list[str] = field(default_factory=list)


def program(n: int) -> Callable[..., Any]:
    """Return a function nobody has compiled before."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.layer_norm(x @ w, (4,)) * n
        return torch.softmax(y, -1).sum() + torch.where(x > n, x, x.sin()).mean()

    return f


def compiled(f: Callable[..., Any]) -> Callable[..., Any]:
    """Compile; what isn't captured or built is an error."""
    fast: Callable[..., Any] = intarsia.compile(f, options={"on_error": "raise"})
    return fast


def state() -> tuple[Any, ...]:
    """Return what a compilation sets for a while: modes and keys of torch's, and the handler of the signal."""
    c = torch._C
    stacks = (c._len_torch_dispatch_stack(), c._len_torch_function_stack())
    modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), c._is_torch_function_enabled())
    keys = (str(c._dispatch_tls_local_include_set()), str(c._dispatch_tls_local_exclude_set()))
    return (*stacks, *modes, *keys, signal.getsignal(signal.SIGINT))


def attempt(call: Callable[[], Any], wait_s: float, seen: Seen) -> Any:
    """Call, and interrupt after some seconds; the result is None where the interrupt came first."""
    timer, result = threading.Timer(wait_s, os.kill, (os.getpid(), signal.SIGINT)), None
    try:
        timer.start()
        result = call()
        timer.join()
        time.sleep(0)  # the handler runs before the next bytecode of this thread
    except KeyboardInterrupt:
        pass
    timer.join()
    seen.interrupted += result is None
    seen.answered += result is not None
    return result


def agrees(got: Any, expected: Any) -> bool:
    """Tell whether results are as close as the usual tolerances ask."""
    return torch.allclose(got, expected, rtol=1e-4, atol=1e-5)


def operands(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return operands; every second time the first requires grad."""
    return torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_(n % 2 == 0), torch.eye(4)


def after(n: int, fast: Callable[..., Any], before: tuple[Any, ...], seen: Seen) -> None:
    """Look at what an interrupt left: modes as before, right answers, and one version that answers."""
    if state() != before:
        seen.wrong.append(f"{n}: {state()} instead of {before}")
    x, w = operands(n)
    expected = program(n)(x, w)
    if not agrees(fast(x, w), expected):
        seen.wrong.append(f"{n}: another result afterwards")
    frames = intarsia.stats().frames_compiled
    got = fast(x, w)
    if x.requires_grad and not agrees(*(torch.autograd.grad(y, x)[0] for y in (got, expected))):
        seen.wrong.append(f"{n}: another gradient afterwards")
    if intarsia.stats().frames_compiled != frames or intarsia.stats().fallbacks:
        seen.wrong.append(f"{n}: compiled again, or left to eager")


def of_compilations(count: int, seed: int) -> Seen:
    """Interrupt as many first calls."""
    seen, numbers = Seen(), random.Random(seed)
    for n in (-1, -2, -3):
        start = time.perf_counter()
        compiled(program(n))(*operands(n))
        took = time.perf_counter() - start
    before = state()
    for n in range(count):
        fast = compiled(program(n))
        got = attempt(lambda n=n, fast=fast: fast(*operands(n)), numbers.uniform(0, 1.1 * took), seen)
        if got is not None and not agrees(got, program(n)(*operands(n))):
            seen.wrong.append(f"{n}: another result")
        after(n, fast, before, seen)
    return seen


def of_calls(count: int, seed: int) -> Seen:
    """Interrupt calls of what is compiled, forward and backward."""
    seen, numbers = Seen(), random.Random(seed)
    functions = [compiled(program(n)) for n in range(4)]
    before = state()

    def calls(n: int) -> Any:
        for _ in range(CALLS):
            x, w = operands(n)
            result = functions[n](x, w)
            if x.requires_grad:
                result.backward()
        return result

    for n in range(4):
        calls(n)
        start = time.perf_counter()
        calls(n)
        took = time.perf_counter() - start
    for k in range(count):
        n = k % 4
        got = attempt(lambda n=n: calls(n), numbers.uniform(0, took), seen)
        if got is not None and not agrees(got, program(n)(*operands(n))):
            seen.wrong.append(f"{n}: another result")
        after(n, functions[n], before, seen)
    return seen


def main(arguments: list[str]) -> int:
    """Interrupt, and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m integration.survival interrupts")
    parser.add_argument("--moments", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    # a shell starts what runs in its background with SIGINT ignored, and children inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        os.environ["INTARSIA_CACHE_DIR"] = name
        for word, interrupt in (("a compilation", of_compilations), ("calls", of_calls)):
            seen = interrupt(given.moments, given.seed)
            wrong += seen.wrong
            print(
                f"{given.moments} moments of {word}: {seen.interrupted} interrupted, "
                f"{seen.answered} answered, {len(seen.wrong)} wrong"
            )
    print(*wrong[:9], sep="\n", end="\n" * bool(wrong))
    return bool(wrong)
