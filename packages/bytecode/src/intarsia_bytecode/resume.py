"""Code that goes on after a break: the instruction itself, resume functions, and the original's exception handlers.

A resume function is the rest of the original bytecode behind a prologue that puts the live stack back. Its
parameters are the live locals and stack entries; cells come through its closure. The hook captures it in turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any

from bytecode import Bytecode, Instr, Label
from bytecode.instr import CellVar, FreeVar, TryBegin, TryEnd

from intarsia_bytecode.comprehensions import renamed, shared_slots
from intarsia_bytecode.decode import Instruction, decode
from intarsia_bytecode.liveness import assigned_cells
from intarsia_bytecode.reading import read
from intarsia_bytecode.resumed import own_cell, resumed_view
from intarsia_bytecode.writer import Loader, Writer

__all__ = [
    "Place",
    "ResumeInfo",
    "StackEntry",
    "after_break",
    "carried_code",
    "info_of",
    "place_of",
    "region_at",
    "resume_code",
    "singles",
]

Place = tuple[str, int | None, int | None, int | None, int | None]
Item = Instr | Label | TryBegin | TryEnd
_AFTER = re.compile(r" \(after the break in [^()]*\)$")
_OWNER = re.compile(r"(?:.*\.)?")  # of a qualified name: all but the name
_PREFIX = frozenset({"COPY_FREE_VARS", "MAKE_CELL", "RESUME"})


@dataclass(frozen=True, slots=True)
class ResumeInfo:
    """What a resume function remembers, kept among its constants.

    Args:
        places: The instructions that broke before in this call.
        native: Whether the last of them had broken before: the rest runs in CPython.
        failed: It is no rest but all of a function: what was computed for it relied on a check that failed.
    """

    places: frozenset[Place]
    native: bool
    failed: bool = False


@dataclass(frozen=True, slots=True)
class StackEntry:
    """How a resume function gets one stack entry.

    Args:
        kind: "value", "null", or the kind of iterator that is made again: "iterator", "range", "view", "enumerate".
        names: Parameters that it is made from.
    """

    kind: str
    names: tuple[str, ...] = ()


def info_of(code: CodeType) -> ResumeInfo | None:
    """Return what a resume function remembers; None for other code."""
    last = code.co_consts[-1] if code.co_consts else None
    return last if isinstance(last, ResumeInfo) else None


def after_break(function: str, line: int, goes_on: int) -> str:
    """Return the name of what goes on after a break: tracebacks, profilers, logs and dumps show it.

    Args:
        function: Name of the function, or of what went on with it after an earlier break.
        line: Of the break.
        goes_on: Line where it goes on.

    Example:
        >>> after_break("f", 6, 6), after_break("f (after the break in line 6)", 8, 11)
        ('f (after the break in line 6)', 'f (after the break in line 8, from line 11)')
    """
    where = f"line {line}" if line == goes_on else f"line {line}, from line {goes_on}"
    return f"{_AFTER.sub('', function)} (after the break in {where})"


def place_of(instruction: Instruction, after: Instruction | None = None) -> Place:
    """Return what identifies an instruction in the user's program: resume functions share it with the original.

    A loop's condition is there twice with the same positions, before the loop and at its end. What tells them apart is
    that the second jumps back: by itself on CPython 3.11, since 3.12 in the instruction `after` it.
    """
    back = after is not None and after.op == "JUMP_BACKWARD" and instruction.op.startswith("POP_JUMP")
    return (f"{instruction.op} JUMP_BACKWARD" if back else instruction.op, *instruction.positions)


def resume_code(
    code: CodeType,
    index: int,
    name: str,
    locals_: Sequence[str],
    stack: Sequence[StackEntry],
    info: ResumeInfo,
    left: int | None = None,
) -> CodeType:
    """Return the code of a resume function.

    Args:
        code: The code that broke.
        index: Decoded instruction to go on at.
        name: Name of the function.
        locals_: Locals that are passed, the first parameter of the original first.
        stack: The stack there, bottom first.
        info: What it remembers.
        left: Decoded instruction whose try region ends with it, when that is where it goes on from: the function
            begins with a place in that region.
    """
    original = read(code)
    start = Label()
    items = _with_label(original, code, index, start)
    region = region_at(items, decode(code).instructions[left].within) if left is not None else None
    body = _reachable(items, [start, *([region.target] if region is not None else [])])
    made = Bytecode()
    made._copy_attr_from(original)
    free = [*code.co_freevars, *code.co_cellvars]
    _set_signature(made, name, locals_, stack, free)
    made.cellvars = [region.fresh for region in shared_slots(code) if region.makes_cell]
    line = decode(code).instructions[index].line
    made.extend(_prologue(code, stack, len(free), made.cellvars, line))
    if region is not None:
        begin = region.copy()
        made.extend([begin, Instr("NOP", lineno=line), TryEnd(begin)])
    made.append(Instr("JUMP_FORWARD", start, lineno=line))
    unbound = _maybe_unbound(original, code)
    own = renamed(code, [item for item in original if isinstance(item, Instr)])
    for item in body:
        for part in own.get(id(item)) or singles([item]):
            if id(part) in unbound:
                made.extend(_checked(part, code))  # type: ignore[arg-type]
            else:
                made.append(_as_free(part, code))
    size = max(code.co_stacksize, len(stack)) + 8
    built = made.to_code(stacksize=size, compute_exception_stack_depths=False)
    return built.replace(co_consts=(*built.co_consts, info))


def _set_signature(
    made: Bytecode, name: str, locals_: Sequence[str], stack: Sequence[StackEntry], free: list[str]
) -> None:
    """Give the function its name, parameters and free variables."""
    made.name = name
    made.qualname = f"{_OWNER.match(made.qualname)[0]}{name}"  # type: ignore[index]  # it may match nothing
    made.argnames = [*locals_, *[n for entry in stack for n in entry.names]]
    made.argcount, made.posonlyargcount, made.kwonlyargcount = len(made.argnames), 0, 0
    made.freevars, made.cellvars = free, []
    made.flags = made.flags & ~0x2C | 0x10 if free else made.flags & ~0x3C
    made.docstring = None


def _prologue(code: CodeType, stack: Sequence[StackEntry], n_free: int, cells: Sequence[str], line: int) -> list[Instr]:
    """Make cells, and put the stack back."""
    out = Writer(code, line)
    if n_free:
        out.emit("COPY_FREE_VARS", n_free)
    for name in cells:
        out.emit("MAKE_CELL", CellVar(name))
    out.emit("RESUME", 0)
    for entry in stack:
        _put_back(entry, out)
    for name in dict.fromkeys(n for entry in stack for n in entry.names):
        out.emit("DELETE_FAST", name)
    return out.body


def _put_back(entry: StackEntry, out: Writer) -> None:
    """Push one stack entry."""
    loads: list[Loader] = [partial(out.emit, "LOAD_FAST", name) for name in entry.names]
    if entry.kind == "null":
        out.emit("PUSH_NULL")
    elif entry.kind == "enumerate":
        inner = StackEntry(_INNER[len(entry.names)], entry.names[:-1])
        out.call(partial(out.emit, "LOAD_CONST", enumerate), [partial(_put_back, inner, out), loads[-1]])
    elif entry.kind == "view":
        out.call(partial(out.emit, "LOAD_CONST", resumed_view), loads)
    else:
        loads[0]()
        if entry.kind != "value":
            out.emit("GET_ITER")
        if entry.kind == "iterator":
            out.set_state(loads[1])


#: Number of parameters of an enumeration -> what it enumerates.
_INNER = {2: "range", 3: "iterator", 5: "view"}


def carried_code(code: CodeType, index: int) -> tuple[Label, list[Item], list[Instr]]:
    """Return what can be reached from a decoded instruction.

    Returns:
        The label of that instruction, the reachable items, and all of CPython's instructions by their numbers: those
        among the items are the same objects.
    """
    original = read(code)
    start = Label()
    instructions = [item for item in original if isinstance(item, Instr)]
    return start, _reachable(_with_label(original, code, index, start), [start]), instructions


def _with_label(original: Bytecode, code: CodeType, index: int, start: Label) -> list[Item]:
    """Return the instructions with a label before a decoded one."""
    wanted = decode(code).instructions[index].first
    out: list[Item] = []
    number = 0
    for item in original:
        if isinstance(item, Instr):
            if number == wanted:
                out.append(start)
            number += 1
        out.append(item)  # type: ignore[arg-type]
    return out


def region_at(items: Sequence[Item], number: int) -> TryBegin | None:
    """Return the try region around an instruction, by its number among CPython's."""
    loads = [region for item, region in zip(items, _regions(items), strict=True) if isinstance(item, Instr)]
    return loads[number]


def _regions(items: Sequence[Item]) -> list[TryBegin | None]:
    """Return the try region of each item."""
    regions: list[TryBegin | None] = []
    current: TryBegin | None = None
    for item in items:
        if isinstance(item, TryBegin):
            current = item
        regions.append(current)
        if isinstance(item, TryEnd):
            current = None
    return regions


def _reachable(items: list[Item], starts: Sequence[Label]) -> list[Item]:
    """Drop what can't be reached from `starts`, and the try regions of what was dropped."""
    regions = _regions(items)
    places = {id(item): index for index, item in enumerate(items) if isinstance(item, Label)}
    seen: set[int] = set()
    work = [places[id(start)] for start in starts]
    while work:
        index = work.pop()
        while index < len(items) and index not in seen:
            seen.add(index)
            item = items[index]
            region = regions[index]
            if isinstance(item, Instr):
                if region is not None:
                    work.append(places[id(region.target)])
                if isinstance(item.arg, Label):
                    work.append(places[id(item.arg)])
                if item.is_final():
                    break
            index += 1
    return _with_regions(items, regions, seen)


def _with_regions(items: list[Item], regions: list[TryBegin | None], seen: set[int]) -> list[Item]:
    """Keep the seen items, in try regions made anew."""
    out: list[Item] = []
    old: TryBegin | None = None
    new: TryBegin | None = None
    for index, item in enumerate(items):
        if index not in seen or isinstance(item, (TryBegin, TryEnd)):
            continue
        if isinstance(item, Instr) and regions[index] is not old:
            if new is not None:
                out.append(TryEnd(new))
            old = regions[index]
            new = old.copy() if old is not None else None
            if new is not None:
                out.append(new)
        out.append(item)
    if new is not None:
        out.append(TryEnd(new))
    return out


def singles(items: Iterable[Item]) -> Iterator[Item]:
    """Split 3.13's instructions for two locals: the assembler gets them wrong beyond the 16th local."""
    for item in items:
        if isinstance(item, Instr) and item.name in _PAIRS:
            arg: Any = item.arg
            for name, part in zip(_PAIRS[item.name], arg, strict=True):
                yield Instr(name, part, location=item.location)
        else:
            yield item


_PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}


def _maybe_unbound(original: Iterable[Any], code: CodeType) -> frozenset[int]:
    """Return the ids of loads and deletions of the function's own cells that may find them empty."""
    if not code.co_cellvars:
        return frozenset()
    certain = assigned_cells(code)
    uses = [item for item in original if isinstance(item, Instr)]
    found = []
    for step in decode(code).instructions:
        use = uses[step.last]
        looks = step.op in ("LOAD_DEREF", "DELETE_DEREF")
        if looks and isinstance(use.arg, CellVar) and step.value not in certain[step.index]:
            found.append(id(use))
    return frozenset(found)


def _checked(use: Instr, code: CodeType) -> list[Item]:
    """Return a use of a cell that fails as that of a local does: in a resume function it is a free variable."""
    arg: Any = use.arg
    out = Writer(code, location=use.location)
    cell = partial(out.push_cell, FreeVar(arg.name))
    out.call(partial(out.emit, "LOAD_CONST", own_cell), [cell, partial(out.emit, "LOAD_CONST", arg.name)])
    if use.name == "LOAD_DEREF":
        return [*out.body]
    out.emit("POP_TOP")
    return [*out.body, _as_free(use, code)]


def _as_free(item: Item, code: CodeType) -> Item:
    """Turn a use of the original's own cells into a use of free variables.

    3.13 loads cells as if they were locals; a cell that is a parameter then goes by its plain name.
    """
    if not isinstance(item, Instr):
        return item
    arg: Any = item.arg
    own_cell = item.name == "LOAD_FAST" and arg in code.co_cellvars
    if not own_cell and not isinstance(arg, CellVar):
        return item
    name = arg if isinstance(arg, str) else arg.name
    if name not in code.co_cellvars:  # a comprehension's own
        return item
    return Instr(item.name, FreeVar(name), location=item.location)
