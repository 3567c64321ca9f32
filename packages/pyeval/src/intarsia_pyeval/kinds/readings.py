"""Clocks: what they show is read before the graph where nothing was computed before it, and else right behind it.

What is read stays open: it may be returned, printed later, and computed with. A program that must know it breaks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.draws import Reading
from intarsia_pyeval.values.numbers import Bounds, OpenNumber
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]

_CLOCKS = "monotonic perf_counter process_time thread_time time"
#: A time in seconds or nanoseconds is in between. Only the time of day is never 0.
_SECONDS, _NANOSECONDS = 1e11, 1 << 62


def _read(name: str) -> BuiltinCall:
    """Return the handler of a clock."""
    clock = vars(time)[name]
    kind = int if name.endswith("_ns") else float
    limits: Bounds = (int(name.startswith("time")), _NANOSECONDS) if kind is int else (kind(name == "time"), _SECONDS)

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        arity(name, args, keywords, 0)
        step = tx.checks.step()
        if step is None:
            raise Break("tracer.call", f"what time.{name}() shows must be known")
        reading = Reading(tx.guards, clock, (), kind, limits, step)
        reading.late = tx.extension.position() > 0
        reading.number = len(tx.effects.draws)
        tx.effects.draw(reading)
        return reading

    return handler


@do.binary.rule(Reading)
def binary(tx: Tracer, reading: Reading, op: str, other: Value, swapped: bool) -> Value | None:
    """Know of the time between two readings of one clock that it isn't negative."""
    difference: Value | None = do.binary.rules[OpenNumber](tx, reading, op, other, swapped)
    if op != "-" or not isinstance(other, Reading) or not isinstance(difference, OpenNumber):
        return difference
    first, second = (reading, other) if swapped else (other, reading)
    if first.drawn_by is second.drawn_by is not time.time and first.number < second.number and difference.limits:
        difference.limits = (difference.limits[0] * 0, difference.limits[1])
    return difference


def _clocks() -> dict[Any, BuiltinCall]:
    """Return the rows of the clocks that the machine has."""
    names = [name + end for name in _CLOCKS.split() for end in ("", "_ns")]
    return {vars(time)[name]: _read(name) for name in names if hasattr(time, name)}


#: How each is called.
CALLS: dict[Any, BuiltinCall] = _clocks()
