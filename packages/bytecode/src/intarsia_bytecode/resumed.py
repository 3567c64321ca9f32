"""What resume functions call: the rest of a frame finds its iterators and cells as they were."""

from __future__ import annotations

from collections.abc import Iterator
from types import CellType
from typing import Any

__all__ = ["changed_size", "own_cell", "resumed_view"]


def resumed_view(mapping: Any, what: str, at: int, size: int) -> Iterator[Any]:
    """Return the iterator over a view of a dict, or a deque, that a break left at position `at`; it had `size` keys."""
    if len(mapping) != size:
        return mutated() if what == "__iter__" else changed_size()
    it: Iterator[Any] = iter(getattr(mapping, what)())
    for _ in range(at):
        next(it)
    return it


def own_cell(cell: CellType, name: str) -> Any:
    """Return what a variable holds that was a resumed function's own: unbound, it is a local to CPython's message."""
    try:
        return cell.cell_contents
    except ValueError:
        pass
    # out here, for CPython's own error has no other as its context
    raise UnboundLocalError(f"cannot access local variable {name!r} where it is not associated with a value")


def mutated() -> Iterator[Any]:
    raise RuntimeError("deque mutated during iteration")
    yield


def changed_size() -> Iterator[Any]:
    """Yield nothing: raise what a dict's iterator does once the dict has other keys."""
    raise RuntimeError("dictionary changed size during iteration")
    yield
