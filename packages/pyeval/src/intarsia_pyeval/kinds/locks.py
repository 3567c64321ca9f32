"""Locks that the traced code makes itself: nobody else has one before it gets out, so that nobody is kept out."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, TRUE, Const, boolean
from intarsia_pyeval.values.signatures import arity, named

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS", "MadeLock"]

_RLOCK: Any = type(threading.RLock())
_METHODS = ("__enter__", "__exit__", "acquire", "release", "locked")


class MadeLock(Value):
    """A new lock.

    Args:
        maker: What makes one.
    """

    __slots__ = ("held", "maker")

    def __init__(self, maker: Any) -> None:
        self.source = None
        self.maker = maker
        self.held = 0

    def type(self) -> Any:
        """Return the class of such locks."""
        return _RLOCK if self.maker is _RLOCK else type(threading.Lock())


@do.get_attribute.rule(MadeLock)
def get_attribute(tx: Tracer, lock: MadeLock, name: str) -> Value:
    """Bind a method."""
    if name in _METHODS and hasattr(lock.type(), name):
        return BoundBuiltin(lock, name)
    return do.get_attribute.default(tx, lock, name)


@do.truth.rule(MadeLock)
def truth(tx: Tracer, lock: MadeLock) -> bool:
    """Every lock is true."""
    return True


@do.call_method.rule(MadeLock)
def call_method(tx: Tracer, lock: MadeLock, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Take or release it.

    Raises:
        Break: It is waited for, which lasts forever, or released where nobody holds it, which raises.
    """
    if name == "locked":
        arity(name, args, keywords, 0)
        return boolean(lock.held > 0)
    if name in ("acquire", "__enter__"):
        blocking = named(name, args, keywords, ("blocking", "timeout")).get("blocking", TRUE)
        if lock.held and lock.maker is not _RLOCK:
            if do.truth(tx, blocking):
                raise Break("tracer.call", "a lock is waited for that this code itself holds")
            return Const(False)
        lock.held += 1
    else:
        if not lock.held:
            raise Break("tracer.exception", "a lock is released that nobody holds")
        lock.held -= 1
    tx.effects.advanced()
    return NONE if name in ("release", "__exit__") else Const(True)


@codegen.reconstruct.rule(MadeLock)
def reconstruct(out: Builder, lock: MadeLock) -> None:
    """Make it, and take it as often as it is held."""
    out.call(
        lambda: out.emit("LOAD_CONST", _taken), [lambda: out.constant(lock.maker), lambda: out.constant(lock.held)]
    )


def _taken(maker: Any, count: int) -> Any:
    lock = maker()
    for _ in range(count):
        lock.acquire()
    return lock


def _make(maker: Any) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        arity("Lock", args, keywords, 0)
        return MadeLock(maker)

    return handler


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    threading.Lock: _make(threading.Lock),
    threading.RLock: _make(_RLOCK),
    _RLOCK: _make(_RLOCK),
}
