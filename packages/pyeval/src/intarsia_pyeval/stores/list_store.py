"""The items of lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.sequences import List

if TYPE_CHECKING:
    from intarsia_pyeval.state.effects import Effects

__all__ = ["append", "change"]


def append(effects: Effects, x: List, items: Iterable[Value]) -> None:
    """Add items at the end: of an existing list neither the length nor the other items matter."""
    effects.changed(x)
    x.version += 1
    x.extend(items)


def change(effects: Effects, x: List, kept: int = 0) -> list[Value]:
    """Return the items for changing; `kept` leading ones will stay as they are."""
    items = x.items
    effects.changed(x)
    x.version += 1
    x.kept = min(x.kept, kept)
    return items
