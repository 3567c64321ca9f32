"""Built-in callables that look at or change what lies outside of a frame: they break."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break, Whole
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]


def _breaks(code: str, reason: str) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        raise Break(code, reason)

    return handler


def _weakly(what: str) -> BuiltinCall:
    """Return a function that keeps objects weakly: one that is made here ends where CPython lets go of it."""

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        if not args or args[0].identity() is None:
            raise Whole("tracer.lifetime", f"{what} is made, for an object that may end before the frame")
        raise Break("tracer.call", f"{what} is made")

    return handler


def _new_reference(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call `ref.__new__` for a subclass, as tables of weak values do for each entry."""
    return _weakly("a weak reference")(tx, args[1:], keywords)


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    breakpoint: _breaks("tracer.output", "breakpoint() starts a debugger"),
    globals: _breaks("tracer.call", "globals() looks at the frame"),
    input: _breaks("tracer.output", "input() reads from the outside"),
    time.sleep: _breaks("tracer.call", "time.sleep() is called between operations, which run together"),
    print: _breaks("tracer.output", "print() writes to the outside"),
    weakref.WeakKeyDictionary: _weakly("a WeakKeyDictionary"),
    weakref.WeakSet: _weakly("a WeakSet"),
    weakref.WeakValueDictionary: _weakly("a WeakValueDictionary"),
    weakref.finalize: _weakly("a finalizer"),
    weakref.proxy: _weakly("a weak proxy"),
    weakref.ref.__new__: _new_reference,
}
