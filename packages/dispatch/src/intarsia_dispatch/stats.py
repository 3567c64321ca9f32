"""Counting what was dispatched."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

__all__ = ["Counters", "DispatchStats", "as_fallbacks", "difference"]


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


Record = TypeVar("Record")


class Counters(Generic[Record]):
    """The mutable, thread-safe side of a frozen record of counts.

    Args:
        record: The record's class; every field is a count.
        also: Called as `also(graphs=1)` with every amount.

    Example:
        >>> counters = Counters(DispatchStats)
        >>> counters.add(graphs=2, faults=1)
        >>> counters.snapshot().graphs
        2
    """

    def __init__(self, record: type[Record], also: Callable[..., None] | None = None) -> None:
        self._record = record
        self._also = also
        self._lock = threading.Lock()
        self._values: Counter[str] = Counter()

    def add(self, **amounts: int) -> None:
        """Add to the named counts."""
        with self._lock:
            for name, amount in amounts.items():  # `update` asks for more stack, which may be short
                self._values[name] += amount
        if self._also is not None:
            self._also(**amounts)

    def snapshot(self) -> Record:
        """Return the counts as they are now."""
        with self._lock:
            values = dict(self._values)
        return self._record(**values)  # code that the hook may look at, which counts

    def after_fork(self) -> None:
        """Make the lock new, which another thread of the parent may have held."""
        self._lock = threading.Lock()

    def reset(self) -> None:
        """Zero the counts; what was told to `also` is left alone."""
        with self._lock:
            self._values.clear()


def difference(later: Record, earlier: Record) -> Record:
    """Return what was added between two snapshots."""
    names = (field.name for field in fields(later))  # type: ignore[arg-type]
    return type(later)(**{name: getattr(later, name) - getattr(earlier, name) for name in names})


def as_fallbacks(tell: Callable[..., None]) -> Callable[..., None]:
    """Return `tell` for the outside, to which a frame that ran again in eager is a fallback like any other."""

    def told(*, faults: int = 0, **amounts: int) -> None:
        if faults:
            amounts["fallbacks"] = amounts.get("fallbacks", 0) + faults
        tell(**amounts)

    return told
