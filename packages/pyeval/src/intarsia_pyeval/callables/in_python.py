"""Functions of the standard library that its C modules replace: their own versions in Python are evaluated."""

from __future__ import annotations

import bisect
import heapq
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.callables.polyfills import model
from intarsia_pyeval.semantics import inlining
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.sequences import List

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]


def _without(module: ModuleType, accelerator: str) -> ModuleType:
    """Return another copy of a module, made without the module in C that replaces its functions."""
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None and spec.loader is not None
    copied = importlib.util.module_from_spec(spec)
    held = sys.modules.get(accelerator)
    sys.modules[accelerator] = None  # type: ignore[assignment]  # importing it fails
    try:
        spec.loader.exec_module(copied)
    finally:
        del sys.modules[accelerator]
        if held is not None:
            sys.modules[accelerator] = held
    return copied


def _on_a_list(function: FunctionType, *, taking: bool) -> BuiltinCall:
    """Return a handler that evaluates a function of a list; `taking` needs an element. Errors are the original's."""

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        first = args[0] if args else None
        if not isinstance(first, List) or first.type() is not list or (taking and not first.count()):
            shown = first.describe() if first is not None else "nothing"
            raise Break("tracer.exception", f"{function.__name__} is called with {shown}")
        return inlining.inline(tx, model(function), args, keywords)

    return handler


def _rows(module: ModuleType, accelerator: str) -> Mapping[Any, BuiltinCall]:
    """Return the rows of the functions that a module has from C."""
    python = vars(_without(module, accelerator))
    return {
        function: _on_a_list(python[name], taking=name.strip("_").startswith(("heappop", "heapreplace")))
        for name, function in vars(module).items()
        if type(function) is BuiltinFunctionType and type(python.get(name)) is FunctionType
    }


#: How each is called.
CALLS: Mapping[Any, BuiltinCall] = {**_rows(heapq, "_heapq"), **_rows(bisect, "_bisect")}
