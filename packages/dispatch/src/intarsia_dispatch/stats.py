"""Counting what was dispatched."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, fields

__all__ = ["Counts", "DispatchStats"]


@dataclass(frozen=True, slots=True)
class DispatchStats:
    """Counts of one dispatcher since it was made or reset.

    Args:
        frames_seen: Code objects offered to capture.
        frames_compiled: Versions compiled: every compilation of a frame counts.
        frames_eager: Code objects left to eager by an error, by the recompile limit, or by breaks that leave nothing
            to compile; not those without tensor work.
        graphs: Graphs compiled.
        fallbacks: Frames that failed to compile and run in eager instead.
        recompiles: Compilations of a frame that had been compiled before.
        faults: Calls in which a compiled graph faulted and the frame ran again in eager.
    """

    frames_seen: int = 0
    frames_compiled: int = 0
    frames_eager: int = 0
    graphs: int = 0
    fallbacks: int = 0
    recompiles: int = 0
    faults: int = 0


class Counts:
    """The mutable, thread-safe side of `DispatchStats`; it tells a second counter, too.

    Args:
        also: Called as `also(graphs=1)` with every amount; faults are told as fallbacks.
    """

    def __init__(self, also: Callable[..., None]) -> None:
        self._also = also
        self._lock = threading.Lock()
        self._values = dict.fromkeys((f.name for f in fields(DispatchStats)), 0)

    def add(self, **amounts: int) -> None:
        """Add to the named counts."""
        with self._lock:
            for name, amount in amounts.items():
                self._values[name] += amount
        # to the outside, a frame that ran again in eager is a fallback like any other
        faults = amounts.pop("faults", 0)
        if faults:
            amounts["fallbacks"] = amounts.get("fallbacks", 0) + faults
        self._also(**amounts)

    def snapshot(self) -> DispatchStats:
        """Return the counts as they are now."""
        with self._lock:
            return DispatchStats(**self._values)

    def reset(self) -> None:
        """Zero the counts; the second counter is left alone."""
        with self._lock:
            self._values = dict.fromkeys(self._values, 0)
