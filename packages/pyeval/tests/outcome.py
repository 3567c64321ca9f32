"""Runs a program in CPython or by its captures, and describes everything that can be seen of it."""

from __future__ import annotations

import contextlib
import io
import linecache
from collections.abc import Callable
from typing import Any

_numbers = iter(range(10**9))


def load(source: str) -> dict[str, Any]:
    """Run a module and return its namespace; tracebacks and the tracer see its lines."""
    name = f"<program {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, name, "exec"), names)
    return names


def arguments(names: dict[str, Any], tensors: bool) -> list[Any]:
    """Return fresh arguments for `f`."""
    found = [2, -1, [3, 1, 2], {1: 4, 2: 5}, "text", names["Derived"](7)]
    if tensors:
        import torch

        found += [torch.tensor([0.5, -1.0, 2.0]), torch.tensor([1.0, 0.25, -0.5])]
    return found


def outcome(source: str, call: Callable[..., Any], tensors: bool = False) -> list[str]:
    """Return result or exception, output, arguments and globals afterwards, as text."""
    names = load(source)
    args = arguments(names, tensors)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = repr(call(names["f"], *args))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
    return [result, printed.getvalue(), repr(args), repr(names["counter"]), repr(names["log"])]
