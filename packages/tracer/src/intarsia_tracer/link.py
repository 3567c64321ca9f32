"""Filling the named holes of replacement bytecode.

A hole is a constant of the code object. The code stores it in a local variable of the same name before it
calls it, so that `dis` shows what is called, whatever object fills the hole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType

from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import LinkableCode

__all__ = ["Hole", "link"]


@dataclass(frozen=True, slots=True)
class Hole:
    """The place of an object that isn't known when the code is made, such as a compiled graph.

    Args:
        name: What `link` is to be given the object under, such as `"__compiled_fn_0"`.
    """

    name: str

    def __repr__(self) -> str:
        return self.name


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
    if not wanted:
        return linkable.code
    consts = tuple(holes[c.name] if isinstance(c, Hole) else c for c in linkable.code.co_consts)
    return linkable.code.replace(co_consts=consts)
