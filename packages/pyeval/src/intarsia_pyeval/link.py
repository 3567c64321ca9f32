"""Filling the named holes of replacement bytecode."""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType

from intarsia_bytecode import Hole, fill_holes
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import LinkableCode

__all__ = ["Hole", "link"]


def link(linkable: LinkableCode, holes: Mapping[str, object]) -> CodeType:
    """Return the code object with every hole filled; `linkable` is unchanged.

    Args:
        linkable: Replacement bytecode, as in `Capture.code`.
        holes: One object for each name in `linkable.holes`; compiled graphs take the graph's inputs
            positionally and return a list or tuple of its flat outputs.

    Raises:
        InvalidArgumentError: `holes` lacks a name, or has one that the code doesn't.
    """
    wanted, given = set(linkable.holes), set(holes)
    if wanted != given:
        raise InvalidArgumentError(
            f"the code has the holes {sorted(wanted)}, but objects were given for {sorted(given)}",
            code="tracer.holes",
        )
    return fill_holes(linkable.code, holes)
