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


def content_of(tx: Tracer, x: Cell, name: str, free: bool) -> Value:
    """Return the content."""
    if not x.known:
        x.known = True
        assert x.real is not None
        try:
            found = x.real.cell_contents
        except ValueError:
            raise Break("tracer.exception", f"the variable {name!r} has no value yet") from None
        x.content = tx.live.wrap(found, x.source)
    if x.content is None:
        if free:
            tx.raising.error(
                NameError,
                f"cannot access free variable {name!r} where it is not associated with a value in enclosing scope",
            )
        tx.raising.error(
            UnboundLocalError, f"cannot access local variable {name!r} where it is not associated with a value"
        )
    return x.content


def peek(tx: Tracer, x: Cell, name: str) -> Value | None:
    """Return the content, or None when the cell is empty."""
    if x.content is None and x.known:
        return None
    return content_of(tx, x, name, free=True)


def fill(effects: Effects, x: Cell, value: Value | None) -> None:
    """Set the content, or empty the cell."""
    effects.changed(x)
    x.known = True
    x.content = value
