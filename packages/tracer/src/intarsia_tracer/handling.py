"""What the caller of the captured frame handles: the context of what is raised where the frame handles nothing.

Few calls are made while an exception is handled, so the context is left open as long as nobody asks for it. Code that
makes such an exception anew asks CPython then; whoever asks while tracing relies on a guard.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from intarsia_ir.records import GuardKind
from intarsia_tracer.breaks import Break
from intarsia_tracer.values.base import Value

if TYPE_CHECKING:
    from intarsia_tracer.codegen import Builder
    from intarsia_tracer.tracer import Tracer
    from intarsia_tracer.values.objects import Object

__all__ = ["HandledByCaller", "leave_context", "rely_on_calm_caller"]


class HandledByCaller(Value):
    """The exception that the caller of the captured frame handles, or None."""

    __slots__ = ()

    def __init__(self) -> None:
        self.source = None

    def type(self) -> Any:
        """Return what it is for callers that handle nothing."""
        return type(None)

    def reconstruct(self, out: Builder) -> None:
        """Ask CPython."""
        out.call(lambda: out.constant(sys.exception), [])


_BY_CALLER = HandledByCaller()


def leave_context(tx: Tracer, made: Object) -> None:
    """An exception is raised where the frame handles none: leave its context open, unless it has one already."""
    before = made.written.get("__context__")
    if before is None or before is _BY_CALLER:
        made.written["__context__"] = _BY_CALLER
    else:
        rely_on_calm_caller(tx)


def rely_on_calm_caller(tx: Tracer) -> None:
    """Rely on it that the caller handles no exception.

    Raises:
        Break: It does.
    """
    tx.guards.add(GuardKind.HANDLING, None, tx.caller_handles)
    if tx.caller_handles:
        raise Break("tracer.exception", "the exception that the caller handles is asked for")
