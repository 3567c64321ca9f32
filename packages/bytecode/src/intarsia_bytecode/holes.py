"""Filling the named holes of replacement code.

A hole is a constant of the code object. The code stores it in a local variable of the same name before it
calls it, so that `dis` shows what is called, whatever object fills the hole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType

__all__ = ["Hole", "fill_holes", "holes_of"]


@dataclass(frozen=True, slots=True)
class Hole:
    """The place of an object that isn't known when the code is made, such as a compiled graph.

    Args:
        name: What `fill_holes` is to be given the object under, such as `"__compiled_fn_0"`.
    """

    name: str

    def __repr__(self) -> str:
        return self.name


def holes_of(code: CodeType) -> frozenset[str]:
    """Return the names of the holes in `code`, not those of functions nested in it."""
    return frozenset(constant.name for constant in code.co_consts if isinstance(constant, Hole))


def fill_holes(code: CodeType, objects: Mapping[str, object]) -> CodeType:
    """Return the code with every hole filled; `code` is unchanged, and returned where it has none.

    Raises:
        KeyError: `objects` lacks a name.
    """
    if not holes_of(code):
        return code
    consts = tuple(objects[c.name] if isinstance(c, Hole) else c for c in code.co_consts)
    return code.replace(co_consts=consts)
