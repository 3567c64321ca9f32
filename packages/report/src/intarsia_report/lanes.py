"""Pieces of work on rows on which any two are apart, or one lies in the other: viewers of traces drop what overlaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Placed", "placed"]

SLACK = 1000  # microseconds by which the clocks that starts and durations are from may differ


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a piece of work is shown.

    Args:
        row: 0, or a further one, where it overlaps with what is on those before.
        start: Microseconds, whole ones: as numbers of JSON these are exact since 1970, and parts of them aren't.
        duration: Likewise.
    """

    row: int
    start: int
    duration: int


def placed(spans: Sequence[tuple[float, float]]) -> list[Placed]:
    """Return where each piece of work is shown, in the order in which they are given.

    Args:
        spans: Start and duration of each, in seconds.

    Example:
        >>> placed([(0.0, 2.0), (1.0, 0.5), (1.9999, 1.0), (1.2, 5.0)])  # apart, but for clocks, is apart
        [Placed(row=0, start=0, duration=2000000), Placed(row=0, start=1000000, duration=500000), \
Placed(row=0, start=2000000, duration=999900), Placed(row=1, start=1200000, duration=5000000)]
    """
    times = [(int(start * 1e6), int((start + seconds) * 1e6)) for start, seconds in spans]
    rows: list[_Row] = []
    found: dict[int, Placed] = {}
    for number in sorted(range(len(times)), key=lambda k: (times[k][0], -times[k][1])):
        for row in range(len(rows) + 1):
            if row == len(rows):
                rows.append(_Row())
            fit = rows[row].fit(*times[number])
            if fit is not None:
                found[number] = Placed(row, fit[0], fit[1] - fit[0])
                break
    return [found[k] for k in range(len(times))]


class _Row:
    """A row that is filled in the order of starts."""

    def __init__(self) -> None:
        self._last = 0  # where what came last starts
        self._ends: list[int] = []  # of what is open there, the innermost last

    def fit(self, start: int, end: int) -> tuple[int, int] | None:
        """Put a piece of work here and return its start and end; None where it overlaps with another."""
        ends, first = list(self._ends), max(start, self._last)
        while ends and ends[-1] < end:
            if ends[-1] - start > SLACK:
                if end - ends[-1] > SLACK:
                    return None
                end = ends[-1]  # it ends with what it is in
                break
            first = max(first, ends.pop())
        if first - start > SLACK:
            return None
        end = max(first, end)
        self._last, self._ends = first, [*ends, end]
        return first, end
