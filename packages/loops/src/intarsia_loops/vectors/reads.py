"""How the elements lie that the lanes of a vector read, and which of them may be read at once.

one          every lane reads the same element
neighbours   each lane the one behind the last lane's
apart        elements a known number of each other apart, of which one instruction reads a vector
wrapping     neighbours, but where a remainder by a run-time size wraps in between
each         any others, which are read one by one
"""

from __future__ import annotations

from dataclasses import dataclass

from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr
from intarsia_loops.vectors.axes import lane_step, lone_remainder

__all__ = ["Reading", "reading"]

# Lanes at most this many elements apart: offsets of a gather have 32 bits.
FAR = 1 << 24


@dataclass(frozen=True, slots=True)
class Reading:
    """How lanes read.

    Args:
        kind: A word of those above.
        step: What the next lane adds to the element's number; ZERO where that isn't the same for every lane.
        remainder: What wraps.
    """

    kind: str
    step: IndexExpr = ZERO
    remainder: Atom | None = None


def reading(address: IndexExpr, lane: Atom | None, lanes: int, *, gather: bool = True) -> Reading:
    """Return how the elements with these numbers are read.

    Args:
        address: Element number, over the lanes' loop and others.
        lane: The loop that lanes run along; None: every lane is at the same point.
        lanes: Elements of a vector.
        gather: Whether elements that lie apart are read at once where they may be.

    Example:
        >>> from intarsia_loops.index import axis, lift
        >>> i = axis("i", 64)
        >>> [reading(lift(i) * k, i, 8).kind for k in (0, 1, 5)], reading(lift(i) * 5, i, 8, gather=False).kind
        (['one', 'neighbours', 'apart'], 'each')
    """
    step = ZERO if lane is None else lane_step(address, lane, lanes)
    if step is ZERO or step is ONE:
        return Reading("one" if step is ZERO else "neighbours", step)
    if lane is None or not gather:
        return Reading("each")
    if step is not None and 0 < abs(step.const() or 0) < FAR:
        return Reading("apart", step)
    remainder = lone_remainder(address, lane)
    return Reading("each") if remainder is None else Reading("wrapping", remainder=remainder)
