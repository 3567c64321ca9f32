"""Variables of inlined comprehensions that share their slot with a cell of the function (CPython 3.12 and newer).

`[x for x in items]` runs in the frame of its function. When the function has a cell `x`, be it for another
comprehension whose `x` a lambda captures, the comprehension puts the cell aside and uses the slot for its variable:

    before:  LOAD_FAST_AND_CLEAR x ... STORE_FAST x, LOAD_FAST x ... STORE_FAST x
    after:   LOAD_CONST None       ... STORE_FAST .x_7, LOAD_FAST .x_7 ... POP_TOP

In a resume function the cell is a free variable, in another slot; so the variable gets a name of its own, and nothing
has to be put aside. A comprehension whose own variable is captured makes a cell of it (MAKE_CELL), which is named, too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from bytecode import Instr
from bytecode.instr import CellVar

from intarsia_bytecode.decode import decode
from intarsia_bytecode.depths import stack_depths
from intarsia_bytecode.liveness import successors

__all__ = ["Region", "renamed", "shared_slots", "shares_slot"]

_FAST = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "STORE_FAST", "DELETE_FAST"})
_DEREF = frozenset({"MAKE_CELL", "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLOSURE"})


@dataclass(frozen=True, slots=True)
class Region:
    """One comprehension's use of the slot of a cell.

    Args:
        name: The variable.
        enters: The decoded instruction that puts the cell aside.
        inside: Decoded instructions while it is aside.
        leaves: Decoded instructions that put it back.
        makes_cell: Whether the comprehension's own variable is a cell.
    """

    name: str
    enters: int
    inside: frozenset[int]
    leaves: frozenset[int]
    makes_cell: bool

    @property
    def fresh(self) -> str:
        """What the variable is called apart from the function's."""
        return f".{self.name}_{self.enters}"


def shared_slots(code: CodeType) -> tuple[Region, ...]:
    """Return the comprehensions of a function that use the slot of a cell, outer ones first."""
    if sys.version_info < (3, 12) or not code.co_cellvars:
        return ()
    cells = frozenset(code.co_cellvars)
    entries = [i for i in decode(code).instructions if i.op == "LOAD_FAST_AND_CLEAR" and i.value in cells]
    if not entries:
        return ()
    depths = stack_depths(code)
    return tuple(sorted((_region(code, i.index, depths) for i in entries), key=lambda r: -len(r.inside)))


def _region(code: CodeType, enters: int, depths: tuple[int, ...]) -> Region:
    """Follow control from where the cell is put aside to where it is put back: as little lies on the stack again."""
    decoded = decode(code)
    name = decoded.instructions[enters].value
    inside: set[int] = set()
    leaves: set[int] = set()
    work = [enters + 1]
    while work:
        index = work.pop()
        step = decoded.instructions[index]
        if index in inside or index in leaves:
            continue
        stores = step.op.startswith("STORE_FAST") and _names(step.value)[0] == name
        if stores and depths[index] <= depths[enters] + 1:
            leaves.add(index)
            continue
        inside.add(index)
        handler = decoded.handlers[index]
        work += [handler.target] if handler is not None and handler.depth > depths[enters] else []
        work += [goal for goal in successors(decoded, step) if goal < len(decoded.instructions)]
    own = [decoded.instructions[i] for i in inside]
    makes_cell = any(step.op == "MAKE_CELL" and step.value == name for step in own)
    return Region(name, enters, frozenset(inside), frozenset(leaves), makes_cell)


def shares_slot(code: CodeType, index: int) -> bool:
    """Tell whether a comprehension uses the slot of a cell at a decoded instruction: no function is cut there."""
    return any(index in region.inside or index in region.leaves for region in shared_slots(code))


def _names(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def renamed(code: CodeType, loads: list[Instr]) -> Mapping[int, list[Instr]]:
    """Return what replaces instructions of a function in its resume functions.

    Args:
        code: The function's code.
        loads: The assembler's instructions of it, all of them in order.

    Returns:
        id of an instruction -> what stands for it.
    """
    found: dict[int, list[Instr]] = {}
    for region in shared_slots(code):
        for step in decode(code).instructions:
            old = loads[step.last]
            if step.index == region.enters:
                found[id(old)] = [Instr("LOAD_CONST", None, location=old.location)]
            elif step.index in region.leaves:
                rest = _parts(old)[1:]
                found[id(old)] = [Instr("POP_TOP", location=old.location), *rest]
            elif step.index in region.inside and region.name in map(_plain, _names(old.arg)):
                found[id(old)] = [_with_name(part, region) for part in _parts(old)]
    return found


def _parts(old: Instr) -> list[Instr]:
    """Return an instruction for two locals as two."""
    ops = old.name.replace("_FAST_", "_FAST ").split(" ") if old.name.count("_FAST") == 2 else [old.name]
    if len(ops) == 1:
        return [old]
    return [Instr(op, arg, location=old.location) for op, arg in zip(ops, _names(old.arg), strict=True)]


def _plain(arg: Any) -> Any:
    return getattr(arg, "name", arg)


def _with_name(part: Instr, region: Region) -> Instr:
    """Return an instruction with the fresh name, if it is about the variable."""
    if _plain(part.arg) != region.name or part.name not in _FAST | _DEREF:
        return part
    as_cell = region.makes_cell and (part.name in _DEREF or part.name == "LOAD_FAST")
    return Instr(part.name, CellVar(region.fresh) if as_cell else region.fresh, location=part.location)
