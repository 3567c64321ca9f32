"""The items of lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.sequences import List

if TYPE_CHECKING:
    from intarsia_pyeval.state.effects import Effects

__all__ = ["append", "change"]


def append(effects: Effects, sequence: List, items: Iterable[Value]) -> None:
    """Add items at the end: of an existing list neither the length nor the other items matter."""
    effects.changed(sequence)
    sequence.version += 1
    sequence.extend(items)


def change(effects: Effects, sequence: List, kept: int = 0) -> list[Value]:
    """Return the items for changing; `kept` leading ones will stay as they are."""
    items = sequence.items
    effects.changed(sequence)
    sequence.version += 1
    sequence.kept = min(sequence.kept, kept)
    return items
