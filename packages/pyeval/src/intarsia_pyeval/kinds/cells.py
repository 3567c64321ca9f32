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
def get_attribute(tx: Tracer, x: Cell, name: str) -> Value:
    """Read `cell_contents`."""
    if name == "cell_contents" and (x.content is not None or not x.known):
        return cell_store.content_of(tx, x, name, free=True)
    return do.get_attribute.default(tx, x, name)


@codegen.reconstruct.rule(Cell)
def reconstruct(out: Builder, x: Cell) -> None:
    """Push the cell: of the frame, of another function, or a new one."""
    if x.frame_name is not None:
        out.closure_cell(x.frame_name)
    elif x.owner is not None:
        out.load_source(x.owner)
    else:
        out.call(lambda: out.constant(CellType), [])
        out.remember(x)
        if x.content is not None and out.is_begun(x.content):
            out.leave_open(x, x.content)
        elif x.content is not None:
            out.emit("COPY", 1)
            out.store_attribute("cell_contents", x.content)


@codegen.emit_effects.rule(Cell)
def emit_effects(out: Builder, x: Cell) -> None:
    """Store the content in an existing cell."""
    if x.frame_name is not None:
        out.store_cell(x.frame_name, x.content)
        return
    if x.real is None:
        return  # made while tracing: built in its last state
    out.load(x)
    if x.content is None:
        out.emit("DELETE_ATTR", "cell_contents")
    else:
        out.store_attribute("cell_contents", x.content)
