"""Where a capture stands: the instructions of the outermost frame, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_pyeval.breaks import Stop

if TYPE_CHECKING:
    from intarsia_pyeval.state.effects import Effects
    from intarsia_pyeval.values.base import Value

__all__ = ["Steps"]


class Steps:
    """Counts the instructions of the outermost frame, and keeps what was there before the current one.

    Tracing has no effects, so a second attempt comes to the same step in the same way: a step is a place to stop at.

    Args:
        effects: What was changed and recorded so far.
        stop_at: The step to stop before; -1 for none.

    Attributes:
        now: The current step; -1 before the first.
        stack: The outermost frame's stack before the step.
        handling: The exception that was being handled before the step.
    """

    def __init__(self, effects: Effects, stop_at: int = -1) -> None:
        self.now = -1
        self.stack: list[Value] = []
        self.handling: Value | None = None
        self._stop_at = stop_at
        self._effects = effects
        self._changes = 0

    def begin(self, stack: list[Value], handling: Value | None) -> None:
        """The outermost frame begins an instruction.

        Raises:
            Stop: It is the one to stop before.
        """
        self.now += 1
        self.stack = stack.copy()
        self.handling = handling
        self._changes = self._effects.changes
        if self.now == self._stop_at:
            raise Stop

    def spotless(self) -> bool:
        """Tell whether the current step has changed and recorded nothing so far."""
        return self._changes == self._effects.changes
