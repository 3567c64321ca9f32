"""Which locals a piece of code may still read: backward data flow over decoded instructions."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import CodeType

from intarsia_bytecode.decode import Decoded, Instruction, decode

__all__ = [
    "asks_for_locals",
    "assigned_cells",
    "assigned_locals",
    "live_locals",
    "reads_own_frame",
    "runs_text",
    "skipped_at_loop_end",
    "successors",
]

_PAIRS = {
    "LOAD_FAST_LOAD_FAST": ((0, 1), ()),
    "STORE_FAST_LOAD_FAST": ((1,), (0,)),
    "STORE_FAST_STORE_FAST": ((), (0, 1)),
}
_FINAL = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
_JUMPS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
#: Globals whose use may look at the frame, so that no local is dead. The first three are modelled.
_READERS = frozenset({"dir", "locals", "vars", "breakpoint", "eval", "exec"})
_ASKING = frozenset({"dir", "locals", "vars"})
_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_OTHER_READERS = frozenset({"_getframe", "currentframe", "set_trace"})


def reads_own_frame(code: CodeType) -> bool:
    """Tell whether code may ask for its frame: a function that goes on in its place is another one."""
    return "_getframe" in code.co_names or "currentframe" in code.co_names


def runs_text(code: CodeType) -> bool:
    """Tell whether code may run text in its frame: it must be the frame as written."""
    return any(name in code.co_names and _loads_global(code, name) for name in ("eval", "exec"))


def asks_for_locals(code: CodeType) -> float:
    """Return how often code may ask for its variables (`locals()`, `vars()`, `dir()`); infinite in a loop."""
    if not _ASKING.intersection(code.co_names):
        return 0
    found = decode(code).instructions
    asking = [i.index for i in found if i.value in _ASKING and i.op in _GLOBALS]
    loops = [(i.target, i.index) for i in found if 0 <= i.target <= i.index]
    if any(start <= index <= end for index in asking for start, end in loops):
        return math.inf
    return len(asking)


def _loads_global(code: CodeType, name: str) -> bool:
    """Tell whether code uses a name as a global, not only as an attribute."""
    return any(i.value == name and i.op in _GLOBALS for i in decode(code).instructions)


def live_locals(code: CodeType, index: int) -> frozenset[str]:
    """Return the locals that may be read from instruction `index` on, handlers included."""
    readers = _READERS.intersection(code.co_names)
    if _OTHER_READERS.intersection(code.co_names) or any(_loads_global(code, name) for name in readers):
        return frozenset(code.co_varnames)
    # cells aren't passed on as locals: 3.13 loads them as if they were, and an inlined comprehension uses their slots
    return _flow(decode(code))[index] - {*code.co_cellvars, *code.co_freevars}


def successors(decoded: Decoded, instruction: Instruction) -> list[int]:
    """Return where control may go after an instruction, without exceptions; fall-through first."""
    found = []
    if instruction.op not in _FINAL and instruction.op not in _JUMPS:
        found.append(instruction.index + 1)
    if instruction.target >= 0:
        skipped = skipped_at_loop_end(instruction)
        found.append(instruction.target + skipped)
    return found


def assigned_locals(code: CodeType, index: int) -> frozenset[str]:
    """Return the locals that have a value whenever instruction `index` is reached."""
    return _forward(code, _after)[index]


def assigned_cells(code: CodeType) -> list[frozenset[str]]:
    """Return, for each instruction, the cells of the function's own that have a value whenever it is reached."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    lost = {i.value for other in inner for i in decode(other).instructions if i.op == "DELETE_DEREF"}

    def after(known: frozenset[str], instruction: Instruction) -> frozenset[str]:
        if instruction.op == "DELETE_DEREF":
            return known - {instruction.value}
        stored = instruction.op in ("STORE_DEREF", "LOAD_DEREF") and instruction.value not in lost
        return known | {instruction.value} if stored else known

    return _forward(code, after)


def _forward(code: CodeType, transfer: Callable[[frozenset[str], Instruction], frozenset[str]]) -> list[frozenset[str]]:
    """Return what certainly has a value before each instruction, by what each instruction does to that."""
    decoded = decode(code)
    count = len(decoded.instructions)
    before: list[frozenset[str] | None] = [None] * count
    n_parameters = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    before[0] = frozenset(code.co_varnames[:n_parameters])
    work = [0]
    while work:
        at = work.pop()
        known = before[at]
        assert known is not None
        after = transfer(known, decoded.instructions[at])
        handler = decoded.handlers[at]
        goals = [(goal, after) for goal in successors(decoded, decoded.instructions[at]) if goal < count]
        goals += [(handler.target, known & after)] if handler else []
        for goal, values in goals:
            old = before[goal]
            new = values if old is None else old & values
            if new != old:
                before[goal] = new
                work.append(goal)
    return [found or frozenset() for found in before]


def _after(known: frozenset[str], instruction: Instruction) -> frozenset[str]:
    """Return the locals that have a value after an instruction."""
    read, written = _locals_of(instruction)
    if instruction.op in ("DELETE_FAST", "LOAD_FAST_AND_CLEAR"):
        return known - read
    return known | read | written


def skipped_at_loop_end(instruction: Instruction) -> int:
    """Return how many instructions FOR_ITER jumps over at its target: 3.12 skips END_FOR, 3.13 POP_TOP too."""
    if instruction.op != "FOR_ITER" or sys.version_info < (3, 12):
        return 0
    return 2 if sys.version_info >= (3, 13) else 1


def _flow(decoded: Decoded) -> list[frozenset[str]]:
    """Return the live locals before each instruction."""
    count = len(decoded.instructions)
    live: list[frozenset[str]] = [frozenset()] * count
    nexts = [successors(decoded, instruction) for instruction in decoded.instructions]
    changed = True
    while changed:
        changed = False
        for instruction in reversed(decoded.instructions):
            index = instruction.index
            after: frozenset[str] = frozenset().union(*[live[n] for n in nexts[index] if n < count])
            read, written = _locals_of(instruction)
            before = (after - written) | read
            handler = decoded.handlers[index]
            if handler is not None:
                before |= live[handler.target]
            if before != live[index]:
                live[index] = before
                changed = True
    return live


def _locals_of(instruction: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """Return the locals that an instruction reads and writes."""
    op, value = instruction.op, instruction.value
    if op in _PAIRS:
        reads, writes = _PAIRS[op]
        written = frozenset(value[i] for i in writes)
        return frozenset(value[i] for i in reads) - (written if op == "STORE_FAST_LOAD_FAST" else frozenset()), written
    if op in ("LOAD_FAST", "LOAD_FAST_CHECK", "DELETE_FAST", "LOAD_FAST_AND_CLEAR", "MAKE_CELL"):
        return frozenset((value,)), frozenset()
    return frozenset(), frozenset((value,)) if op == "STORE_FAST" else frozenset()
