"""Guards as text: a line each. Many sources that are all those of inputs are the numbers of these.

    guard OverlapGuard(source('self.w'), InputSources('0:12, 14'), reason='w is written ...')

That a written input shares memory with none of a thousand others would be a thousand sources, in as many guards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from intarsia_ir._literals import Opaque
from intarsia_ir._record_text import InputSources, record_text
from intarsia_ir.guards import DistinctGuard, OverlapGuard
from intarsia_ir.records import GuardRecord, InputSpec

__all__ = ["guard_lines", "guard_of"]

_FEW = 4  # sources that are written out


def guard_lines(guards: Sequence[GuardRecord], inputs: Sequence[InputSpec], opaque: Opaque) -> Iterator[str]:
    """Yield the lines of guards of a program with these inputs."""
    places = {id(spec.source): number for number, spec in enumerate(inputs) if spec.source is not None}
    yield from (f"guard {record_text(_shortened(guard, places), opaque)}" for guard in guards)


def guard_of(guard: GuardRecord, inputs: Sequence[InputSpec]) -> GuardRecord:
    """Return a guard by what was written of it.

    Raises:
        ValueError: A number in it is none of an input.
    """
    if isinstance(guard, _OF_OTHERS) and isinstance(guard.others, InputSources):
        return replace(guard, others=guard.others.sources(inputs))
    return guard


_OF_OTHERS = (OverlapGuard, DistinctGuard)


def _shortened(guard: GuardRecord, places: dict[int, int]) -> GuardRecord:
    if not isinstance(guard, _OF_OTHERS) or len(guard.others) <= _FEW:
        return guard
    numbers = [places.get(id(source)) for source in guard.others]
    defined = [number for number in numbers if number is not None]
    others: Any = InputSources(_ranges(defined))  # in a record that is only written
    return replace(guard, others=others) if len(defined) == len(numbers) else guard


def _ranges(numbers: Sequence[int]) -> str:
    """The text of numbers, in their order; what goes up by one is a range."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number:
            parts[-1][1] = number + 1
        else:
            parts.append([number, number + 1])
    return ", ".join(f"{low}:{high}" if high - low > 1 else str(low) for low, high in parts)
