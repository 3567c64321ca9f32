"""Cells of variables that functions share."""

from __future__ import annotations

from types import CellType
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.stores import cell_store
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.functions import Cell

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.get_attribute.rule(Cell)
def get_attribute(tx: Tracer, cell: Cell, name: str) -> Value:
    """Read `cell_contents`."""
    if name == "cell_contents" and (cell.content is not None or not cell.known):
        return cell_store.content_of(tx, cell, name, free=True)
    return do.get_attribute.default(tx, cell, name)


@codegen.reconstruct.rule(Cell)
def reconstruct(out: Builder, cell: Cell) -> None:
    """Push the cell: of the frame, of another function, or a new one."""
    if cell.frame_name is not None:
        out.closure_cell(cell.frame_name)
    elif cell.owner is not None:
        out.load_source(cell.owner)
    else:
        out.call(lambda: out.constant(CellType), [])
        out.remember(cell)
        if cell.content is not None and out.is_begun(cell.content):
            out.leave_open(cell, cell.content)
        elif cell.content is not None:
            out.emit("COPY", 1)
            out.store_attribute("cell_contents", cell.content)


@codegen.emit_effects.rule(Cell)
def emit_effects(out: Builder, cell: Cell) -> None:
    """Store the content in an existing cell."""
    if cell.frame_name is not None:
        out.store_cell(cell.frame_name, cell.content)
        return
    if cell.real is None:
        return  # made while tracing: built in its last state
    out.load(cell)
    if cell.content is None:
        out.emit("DELETE_ATTR", "cell_contents")
    else:
        out.store_attribute("cell_contents", cell.content)
