"""What replacement code calls around a graph some of whose results are checks, or behind numbers that it drew.

A graph that raises needs nothing here: whoever calls it for replaced code runs the frame anew in CPython.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

__all__ = ["Drawing", "InVain", "passed", "undo_all"]


class InVain(NamedTuple):
    """How a graph is called whose run may turn out to be in vain.

    Args:
        before: Called before the graph; what it returns is the last argument of `after`. None: there is none.
        after: From the graph's results and the number of checks among them, to the results behind these if all are
            true; to None, with everything as it was before the graph, if one isn't.
    """

    before: Callable[[], Any] | None
    after: Callable[..., tuple[Any, ...] | None]


def passed(results: Sequence[Any], count: int) -> tuple[Any, ...] | None:
    """Return the results behind the first `count` ones if those are true; None if one isn't."""
    return tuple(results[count:]) if all(map(bool, results[:count])) else None


class Drawing(threading.local):
    """The state of Python's random generator before the draws of one replacement code, in each thread.

    Example:
        >>> drawing = Drawing()
        >>> drawing.begin()
        >>> first = random.random()
        >>> drawing.undo()
        >>> random.random() == first
        True
    """

    def __init__(self) -> None:
        self._state: Any = None

    def begin(self) -> None:
        """Note the state: draws follow, and then the graph."""
        self._state = random.getstate()

    def undo(self) -> None:
        """Go back to it: the graph raised, and the frame begins anew."""
        random.setstate(self._state)


def undo_all(steps: Sequence[Callable[[], None]]) -> None:
    """Put back what several steps before a graph did, the last one first."""
    for undo in reversed(steps):
        undo()
