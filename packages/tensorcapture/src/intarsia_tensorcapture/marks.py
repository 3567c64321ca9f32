"""What compilers mark: functions that aren't to be compiled, and what stands for a compiled one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.functions import Function
from intarsia_pyeval.values.objects import Object

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["call_marked_function", "call_marked_object"]


def call_marked_function(tx: Tracer, function: Function, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Call what torch's compiler wraps of its own for its own reasons; break where a function isn't to be compiled."""
    marked = getattr(function.value, "_torchdynamo_disable", False)
    if marked and _is_torchs(function.value):
        source = function.source and tx.sources.attribute(function.source, "__wrapped__")
        return do.call(tx, tx.live.wrap(vars(function.value)["__wrapped__"], source), args, keywords)
    if marked or getattr(function.value, "_intarsia_disable", False):
        raise Break("tracer.disabled", f"{function.describe()} is marked as not to be compiled")
    return None


def _is_torchs(function: Any) -> bool:
    """Tell whether a function is torch's own: its compiler, once imported, wraps some of these for its own reasons."""
    return (function.__module__ or "").partition(".")[0] == "torch" and hasattr(function, "__wrapped__")


def call_marked_object(tx: Tracer, callee: Object, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Call what a compiler made of a function: the function itself, unless it is marked as not to be compiled."""
    marks = getattr(callee.value, "__dict__", {})
    if marks.get("_intarsia_disable"):
        name = getattr(callee.value, "__qualname__", callee.describe())
        raise Break("tracer.disabled", f"{name} is marked as not to be compiled")
    if not marks.get("_intarsia_compiled"):
        return None
    source = callee.source and tx.sources.attribute(callee.source, "__wrapped__")
    return do.call(tx, tx.live.wrap(callee.value.__wrapped__, source), args, keywords)
