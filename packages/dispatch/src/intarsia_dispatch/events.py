"""What can happen to a frame, as records for logs and for `explain`."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from intarsia_ir.records import Capture, Origin

__all__ = ["EventKind", "FrameEvent"]


class EventKind(enum.Enum):
    """The closed set of outcomes."""

    COMPILED = "compiled"  # the first version of a code object
    RECOMPILED = "recompiled"  # a further version; the reason is the guard that failed
    NATIVE = "native"  # nothing to compile in it
    FAILED = "failed"  # left to eager by `on_error`; the reason is the error
    LIMIT = "limit"  # left to eager by the recompile limit
    OBSERVED = "observed"  # left to eager, because something watches its operations
    FAULT = "fault"  # a compiled graph faulted at run time; the frame ran again in eager


@dataclass(frozen=True, slots=True)
class FrameEvent:
    """One outcome for one frame.

    Args:
        kind: Which.
        name: Qualified name of the function.
        origin: The user line concerned; the first line of the function when no line is known.
        reason: Why, in words; "" when there is nothing to say.
        capture: What the tracer learned, when it got that far.
    """

    kind: EventKind
    name: str
    origin: Origin
    reason: str = ""
    capture: Capture | None = None

    def __str__(self) -> str:
        reason = self.reason and f": {self.reason}"
        return f"{self.kind.value} {self.name} at {self.origin.file}:{self.origin.line}{reason}"

    @property
    def in_eager(self) -> bool:
        """Whether the frame, or one call of it, ran in eager though it has something to compile."""
        left = self.kind in (EventKind.FAILED, EventKind.LIMIT, EventKind.FAULT, EventKind.OBSERVED)
        return left or (self.kind is EventKind.NATIVE and self.capture is not None and bool(self.capture.breaks))
