"""Progress of long runs, as lines: they are seen where the output is a file, too."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

__all__ = ["Progress"]


class Progress:
    """Says how far a run is, at most once in a while.

    Args:
        what: What is counted.
        every: Seconds between lines.
    """

    def __init__(self, what: str, every: float = 30.0) -> None:
        self._what, self._every = what, every
        self._start = self._last = time.monotonic()

    def tell(self, count: Callable[[], int]) -> None:
        """Print a line, if it is time; `count` is asked only then."""
        now = time.monotonic()
        if now - self._last >= self._every:
            self._last = now
            print(f"{count()} {self._what} after {now - self._start:.0f} s", file=sys.stderr, flush=True)
