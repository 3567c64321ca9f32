"""`raise` and `except`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import NONE, Const
from intarsia_pyeval.values.objects import ClassValue, Object
from intarsia_pyeval.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_pyeval.state.classes import Classes
    from intarsia_pyeval.tracer import Tracer

__all__ = ["exception_to_raise", "matches_exception", "raise_statement"]


def exception_to_raise(tx: Tracer, value: Value, cls: Value) -> Value:
    """Return the instance that `raise value` or `throw(cls, value)` raises."""
    if isinstance(value, ClassValue):
        value = do.call(tx, value, [], {})
    elif isinstance(value, Const) and value.value is None:
        value = do.call(tx, cls, [], {})
    if not isinstance(value, Object) or not issubclass(value.cls, BaseException):
        raise Break("tracer.exception", f"{value.describe()} is raised")
    return value


def matches_exception(classes: Classes, value: Value, wanted: Value) -> bool:
    """Model `except wanted`."""
    named = wanted.items if isinstance(wanted, Tuple) else [wanted]
    for cls in named:
        if not isinstance(cls, ClassValue) or BaseException not in cls.value.__mro__:
            raise Break("tracer.exception", "an except clause names something that isn't an exception class")
    kind = value.type()
    classes_named = [c.value for c in named if isinstance(c, ClassValue) and classes.is_subclass(kind, c.value)]
    return any(cls in kind.__mro__ for cls in classes_named)  # who is only registered isn't caught


def raise_statement(tx: Tracer, parts: Sequence[Value]) -> NoReturn:
    """Model `raise`, `raise x` and `raise x from y`."""
    if not parts:
        handled = tx.raising.handled()
        if handled is None:
            tx.raising.error(RuntimeError, "No active exception to reraise")
        raise Raised(handled)
    exception = exception_to_raise(tx, parts[0], parts[0])
    assert isinstance(exception, Object)
    if exception.existing:
        raise Break("tracer.exception", "an exception made before the call is raised")
    tx.effects.advanced()
    if len(parts) > 1:
        cause = parts[1]
        exception.written["__cause__"] = cause if cause is NONE else exception_to_raise(tx, cause, cause)
        exception.written["__suppress_context__"] = Const(True)
    tx.raising.throw_made(exception)
