"""`contextvars.ContextVar`: what is set is read, and relied on; setting one breaks."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]


def _get(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Read what is set, or the variable's own default.

    Raises:
        Break: It isn't set and a default is given, or there is none: no guard says that it isn't.
    """
    variable, *_ = arity("get", args, keywords, 1, 2)
    real = variable.identity()
    if not isinstance(variable, Object) or not isinstance(real, contextvars.ContextVar) or variable.source is None:
        raise Break("tracer.call", f"{variable.describe()} is read")
    if len(args) == 2 and real not in contextvars.copy_context():
        raise Break("tracer.call", f"the context variable {real.name!r} is asked for with a default, and isn't set")
    try:
        found = real.get()
    except LookupError:
        raise Break("tracer.call", f"the context variable {real.name!r} isn't set") from None
    return tx.live.wrap(found, tx.sources.answer(tx.sources.attribute(variable.source, "get")))


def _changes(name: str) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        raise Break("tracer.mutation", f"{name} of a context variable is called, which what is called next may read")

    return handler


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    contextvars.ContextVar.get: _get,
    contextvars.ContextVar.set: _changes("set"),
    contextvars.ContextVar.reset: _changes("reset"),
}
