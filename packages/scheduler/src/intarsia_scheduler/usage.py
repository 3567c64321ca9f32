"""Memory over time: what a call holds beyond its inputs and constants at each of its launches and library calls."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia_loops.kernels import bytes_at_capture
from intarsia_loops.launches import Launches
from intarsia_scheduler.memory import steps_of

__all__ = ["Held", "held"]


@dataclass(frozen=True, slots=True)
class Held:
    """What is held while one launch or library call runs.

    Args:
        makes: Buffers that it writes, or that the call returns.
        is_call: It is a library call.
        n_bytes: Of everything that was made so far and is used then or later, results of the graph included. Where
            sizes are symbols, of the sizes at capture.
    """

    makes: tuple[str, ...]
    is_call: bool
    n_bytes: int


def held(launches: Launches) -> tuple[Held, ...]:
    """Return what is held at each step of launches, in the order in which they run.

    It says what is needed, not where it lies: an arena is there for all of the call, and `peak` counts that.
    """
    known = steps_of(launches)
    hints, end = launches.program.facts.hints, len(known.steps)
    found = []
    change: dict[int, int] = {}
    for name, start in known.first.items():
        if name in known.buffers:
            size = bytes_at_capture(known.buffers[name], hints)
            stop = end if name in known.returned else known.last[name]
            change[start] = change.get(start, 0) + size
            change[stop + 1] = change.get(stop + 1, 0) - size
    now = 0
    for position, step in enumerate(known.steps):
        now += change.get(position, 0)
        found.append(Held(step.writes, step.call is not None, now))
    return tuple(found)
