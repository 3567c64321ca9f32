"""The contents of cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.functions import Cell

if TYPE_CHECKING:
    from intarsia_pyeval.state.effects import Effects
    from intarsia_pyeval.tracer import Tracer

__all__ = ["content_of", "fill", "peek"]


def content_of(tx: Tracer, cell: Cell, name: str, free: bool) -> Value:
    """Return the content."""
    if not cell.known:
        cell.known = True
        assert cell.real is not None
        try:
            content = cell.real.cell_contents
        except ValueError:
            raise Break("tracer.exception", f"the variable {name!r} has no value yet") from None
        cell.content = tx.live.wrap(content, cell.source)
    if cell.content is None:
        if free:
            tx.raising.error(
                NameError,
                f"cannot access free variable {name!r} where it is not associated with a value in enclosing scope",
            )
        tx.raising.error(
            UnboundLocalError, f"cannot access local variable {name!r} where it is not associated with a value"
        )
    return cell.content


def peek(tx: Tracer, cell: Cell, name: str) -> Value | None:
    """Return the content, or None when the cell is empty."""
    if cell.content is None and cell.known:
        return None
    return content_of(tx, cell, name, free=True)


def fill(effects: Effects, cell: Cell, value: Value | None) -> None:
    """Set the content, or empty the cell."""
    effects.changed(cell)
    cell.known = True
    cell.content = value
