"""What is known only once the graph ran: numbers in its results, and whether an assertion about them holds.

Where one doesn't hold the frame begins anew in CPython, which raises what eager raises, after the effects that come
before it. So nothing may have happened until then: side effects come after the checks, and a graph that does more than
compute has none. What can't be left open after all is foreclosed: another attempt breaks there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_pyeval.breaks import Foreclosed

if TYPE_CHECKING:
    from intarsia_pyeval.state.steps import Steps
    from intarsia_pyeval.values.base import Value

__all__ = ["Checks"]


class Checks:
    """What one capture leaves open.

    Args:
        steps: Where the capture stands.
        closed: Outermost steps at which nothing may be left open.

    Attributes:
        conditions: Recorded values whose truth is relied on, in order.
    """

    def __init__(self, steps: Steps, closed: frozenset[int]) -> None:
        self.conditions: list[Value] = []
        self._first = -1
        self._steps = steps
        self._closed = closed

    def step(self) -> int | None:
        """Return the current outermost step, to foreclose what is left open there; None where nothing may be."""
        return None if self._steps.now in self._closed else self._steps.now

    def expect(self, condition: Value) -> None:
        """Rely on a recorded value to be true."""
        if not self.conditions:
            self._first = self._steps.now
        self.conditions.append(condition)

    def foreclose(self) -> None:
        """Give up: the graph can't be run in vain.

        Raises:
            Foreclosed: Always.
        """
        raise Foreclosed(self._first)
