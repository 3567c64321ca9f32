"""The process-wide state of the pipeline: counters, and what `reset` must clear. Nothing below the pipeline has any."""

from __future__ import annotations

from intarsia._stats import Counters, Stats

__all__ = ["COUNTERS", "stats"]

COUNTERS = Counters()


def stats() -> Stats:
    """Return how much was compiled since the last `reset()`."""
    return COUNTERS.snapshot()
