"""Run a program twice, in eager or by a compiler, and keep everything that can be seen of it."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from integration.python.compare import compare
from integration.python.program import Program

__all__ = ["Call", "Run", "check", "run"]

Transform = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One call and its traces.

    Args:
        result: What it returned; None if it raised.
        error: What it raised.
        printed: What it wrote to the standard output.
        arguments: Its arguments, as they are afterwards.
        random: A number drawn afterwards: how far the random generator was advanced.
    """

    result: Any
    error: BaseException | None
    printed: str
    arguments: tuple[Any, ...]
    random: float


@dataclass(frozen=True, slots=True)
class Run:
    """The calls of a program, one after the other on the same callable.

    Args:
        calls: In order.
        subject: The callable itself, with its cells and attributes as they are afterwards.
        globals: The globals that it changes, as they are afterwards.
    """

    calls: tuple[Call, ...]
    subject: Any
    globals: dict[str, Any]


def run(program: Program, transform: Transform = lambda subject: subject, calls: int | None = None) -> Run:
    """Run a program on fresh inputs and state.

    Args:
        program: A row of the corpus.
        transform: Makes the callable that is called; gets the program's own.
        calls: How many calls, each with new values in its tensors; as many as the program says if none is given.
    """
    names = program.reset_globals()
    torch.manual_seed(0)
    subject = program.make()
    called = transform(subject)
    done = tuple(_call(program, called, number) for number in range(calls or program.calls))
    return Run(done, subject, {name: names[name] for name in program.globals})


def check(actual: Run, expected: Run) -> None:
    """Compare two runs of a program.

    Raises:
        Difference: Something that can be seen differs.
    """
    for n, (a, e) in enumerate(zip(actual.calls, expected.calls)):
        if a.error is not None and e.error is None:
            raise a.error
        compare(a.error, e.error, f"call {n}: exception")
        compare(a.printed, e.printed, f"call {n}: output")
    fields = ("result", "arguments", "random")
    seen = [
        [{f: getattr(call, f) for f in fields} for call in side.calls] + [side.subject, side.globals]
        for side in (actual, expected)
    ]
    compare(*seen, "run")


def _call(program: Program, called: Any, number: int) -> Call:
    torch.manual_seed(100 + number)
    random.seed(100 + number)
    arguments, keywords = program.inputs(), program.keywords()
    printed = io.StringIO()
    result, error = None, None
    torch.manual_seed(number)
    with contextlib.redirect_stdout(printed), torch.no_grad():
        try:
            result = called(*arguments, **keywords)
        except Exception as caught:
            error = caught.with_traceback(None)
    return Call(result, error, printed.getvalue(), (arguments, keywords), torch.rand(()).item())
