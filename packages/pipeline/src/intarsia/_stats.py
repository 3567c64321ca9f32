"""Counters of what was compiled, zeroed by `reset`."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, fields

__all__ = ["Counters", "Stats", "difference"]


@dataclass(frozen=True, slots=True)
class Stats:
    """How much was compiled since the last `reset`. All are counts.

    Args:
        frames_seen: Python frames offered to the compiler.
        frames_compiled: Frames whose code was replaced.
        frames_eager: Frames left to run as they are.
        graphs: Graphs compiled.
        kernels_generated: Kernels in those graphs.
        extern_calls: Calls of library ops in those graphs.
        fallbacks: Frames or graphs that failed to compile and run in eager instead.
        recompiles: Compilations of a frame that had been compiled before.
    """

    frames_seen: int = 0
    frames_compiled: int = 0
    frames_eager: int = 0
    graphs: int = 0
    kernels_generated: int = 0
    extern_calls: int = 0
    fallbacks: int = 0
    recompiles: int = 0


class Counters:
    """The mutable, thread-safe side of `Stats`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Counter[str] = Counter()

    def add(self, **amounts: int) -> None:
        """Add to the named counters."""
        with self._lock:
            for name, amount in amounts.items():  # `update` asks for more stack, which may be short
                self._values[name] += amount

    def snapshot(self) -> Stats:
        """Return the counters as they are now."""
        with self._lock:
            return Stats(**self._values)

    def reset(self) -> None:
        """Set every counter to zero."""
        with self._lock:
            self._values.clear()


def difference(later: Stats, earlier: Stats) -> Stats:
    """Return what was added between two snapshots."""
    return Stats(**{f.name: getattr(later, f.name) - getattr(earlier, f.name) for f in fields(Stats)})
