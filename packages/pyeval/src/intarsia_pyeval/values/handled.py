"""What the caller of the captured frame handles: the context of what is raised where the frame handles nothing.

Few calls are made while an exception is handled, so the context is left open as long as nobody asks for it. Code that
makes such an exception anew asks CPython then; whoever asks while tracing relies on a guard.
"""

from __future__ import annotations

from typing import Any

from intarsia_pyeval.values.base import Value

__all__ = ["BY_CALLER", "HandledByCaller"]


class HandledByCaller(Value):
    """The exception that the caller of the captured frame handles, or None."""

    __slots__ = ()

    def __init__(self) -> None:
        self.source = None

    def type(self) -> Any:
        """Return what it is for callers that handle nothing."""
        return type(None)


BY_CALLER = HandledByCaller()
