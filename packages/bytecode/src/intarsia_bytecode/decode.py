"""Code objects decoded into instructions that the evaluator runs, for CPython 3.11, 3.12 and 3.13.

Inline caches and EXTENDED_ARG are folded away; `KW_NAMES`, `PRECALL` and `CALL` become one instruction, so that a
call is a single step. So does 3.13's `TO_BOOL` with the jump or `not` behind it, and a comparison that also turns its
result into a bool leaves that to the step behind it: a tensor is compared in the graph, then the branch breaks, as
before 3.13. `first` and `last` keep the place among CPython's own instructions.
"""

from __future__ import annotations

import dis
import sys
import weakref
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, MappingProxyType
from typing import Any

__all__ = ["FOLDED", "Decoded", "Handler", "Instruction", "decode"]

_VERSION = sys.version_info[:2]
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
_LOCALS = frozenset(dis.haslocal) | frozenset(dis.hasfree)
_SKIPPED = frozenset({"CACHE", "EXTENDED_ARG"})
_FUSED = frozenset({"KW_NAMES", "PRECALL"})
_ASK_TRUTH = frozenset({"POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE", "UNARY_NOT"})
_COMPARED_TO_BOOL = 16  # flag of 3.13's COMPARE_OP
_PAIRS = frozenset({"LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"})


#: Instructions that the decoder folds into others, or that only CPython's own machinery executes.
FOLDED = MappingProxyType(
    {
        "CACHE": "inline cache of the instruction before",
        "ENTER_EXECUTOR": "optimised code; decoded code is the original",
        "EXTENDED_ARG": "part of the next argument",
        "INTERPRETER_EXIT": "ends C's entry into the evaluation loop",
        "KW_NAMES": "part of the call that follows",
        "PRECALL": "part of the call that follows",
        "RESERVED": "never generated",
    }
)


@dataclass(slots=True, eq=False)
class Instruction:
    """One step of the evaluator. Never changed once made (not frozen: thousands are made, and that is twice as fast).

    Args:
        index: Position in `Decoded.instructions`.
        op: Name as in `dis.opmap`.
        arg: The raw argument; 0 when there is none.
        value: What the argument names: a name, a constant, or the argument itself.
        target: Position of the jump target, or -1.
        line: Line in the file, or the last known one.
        positions: (line, end line, column, end column), each may be None.
        first: Number of the first CPython instruction it covers, caches and EXTENDED_ARG not counted.
        last: Number of the last CPython instruction it covers.
        keywords: Keyword names of a call.
        within: Number of the CPython instruction whose handler it has: `first`, or the one before, a comparison, where
            that is the one that would turn its result into a bool.
    """

    index: int
    op: str
    arg: int
    value: Any
    target: int
    line: int
    positions: tuple[int | None, int | None, int | None, int | None]
    first: int
    last: int
    keywords: tuple[str, ...] = ()
    within: int = -1


@dataclass(frozen=True, slots=True)
class Handler:
    """Where an exception goes: position of the handler, stack depth there, whether `lasti` is pushed."""

    target: int
    depth: int
    lasti: bool


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Decoded:
    """A decoded code object; `handlers[i]` is the handler of `instructions[i]`, or None."""

    instructions: tuple[Instruction, ...]
    handlers: tuple[Handler | None, ...]


_cache: dict[int, tuple[weakref.ref[CodeType], Decoded]] = {}


def decode(code: CodeType) -> Decoded:
    """Return the instructions and exception handlers of `code`. Results are kept while `code` lives."""
    found = _cache.get(id(code))
    if found is not None and found[0]() is code:
        return found[1]
    key = id(code)
    decoded = _decode(code)
    _cache[key] = (weakref.ref(code, lambda _: _cache.pop(key, None)), decoded)
    return decoded


@dataclass(slots=True)
class _Step:
    """An instruction before its argument, target and place are looked up."""

    first: int
    last: int
    offset: int  # of the bytes that raise
    op: str
    arg: int
    target: int
    keywords: tuple[str, ...]
    within: int


def _decode(code: CodeType) -> Decoded:
    """Decode without the cache."""
    raw = list(_raw_instructions(code))
    asked = _truths_asked(raw)
    number_at: dict[int, int] = {}  # byte offset -> index of the step that begins or covers it
    steps: list[_Step] = []
    first, pending, keywords = -1, [], ()
    for number, (start, offset, op, arg, target) in enumerate(raw):
        pending.append(start)
        first = number if first < 0 else first
        if op in _FUSED or (op == "TO_BOOL" and number + 1 in asked):
            keywords = code.co_consts[arg] if op == "KW_NAMES" else keywords
            continue
        for begin in pending:
            number_at[begin] = len(steps)
        if op == "COMPARE_OP" and number + 1 in asked:
            arg &= ~_COMPARED_TO_BOOL
        before = number in asked
        offset = raw[number - 1][1] if before else offset
        steps.append(_Step(first, number, offset, op, arg, target, keywords, number - 1 if before else first))
        first, pending, keywords = -1, [], ()
    return _assemble(code, steps, number_at)


def _truths_asked(raw: list[tuple[int, int, str, int, int]]) -> frozenset[int]:
    """Return the numbers of the instructions for which the one before makes a bool; always empty before 3.13."""
    if _VERSION < (3, 13):
        return frozenset()
    targets = {target for *_, target in raw}
    return frozenset(
        number
        for number, (start, _, op, _, _) in enumerate(raw)
        if op in _ASK_TRUTH and start not in targets and number and _makes_bool(*raw[number - 1][2:4])
    )


def _makes_bool(op: str, arg: int) -> bool:
    """Tell whether an instruction does nothing else at its end than turn its result into a bool."""
    return op == "TO_BOOL" or (op == "COMPARE_OP" and bool(arg & _COMPARED_TO_BOOL))


def _assemble(code: CodeType, steps: list[_Step], number_at: dict[int, int]) -> Decoded:
    """Resolve arguments, jump targets, lines and handlers."""
    positions = list(code.co_positions())
    line = code.co_firstlineno
    instructions = []
    for index, s in enumerate(steps):
        where = positions[s.offset // 2] if s.offset // 2 < len(positions) else (None, None, None, None)
        line = where[0] or line
        goal = number_at[s.target] if s.target >= 0 else -1
        value = _argument(code, s.op, s.arg)
        instructions.append(
            Instruction(index, s.op, s.arg, value, goal, line, where, s.first, s.last, s.keywords, s.within)
        )
    offsets = [step.offset for step in steps]
    handlers: list[Handler | None] = [None] * len(instructions)
    for start, end, goal, depth, lasti in _exception_table(code):
        handler = Handler(number_at[goal], depth, lasti)
        low, high = bisect_left(offsets, start), bisect_left(offsets, end)
        handlers[low:high] = [handler] * (high - low)
    return Decoded(tuple(instructions), tuple(handlers))


def _raw_instructions(code: CodeType) -> Iterator[tuple[int, int, str, int, int]]:
    """Yield (offset with prefixes, offset, op, argument, byte offset of the jump target or -1)."""
    text = code.co_code
    opname, has_argument = dis.opname, dis.HAVE_ARGUMENT
    extended, start, at, end = 0, -1, 0, len(text)
    while at < end:
        number, arg = text[at], text[at + 1]
        op = opname[number]
        start = at if start < 0 else start
        if op == "CACHE":
            at += 2
            start = -1
            continue
        arg |= extended << 8
        if op == "EXTENDED_ARG":
            extended = arg
            at += 2
            continue
        following = at + 2
        while following < end and opname[text[following]] == "CACHE":
            following += 2
        target = -1
        if number in _JUMPS:
            target = following - 2 * arg if "BACKWARD" in op else following + 2 * arg
        yield start, at, op, arg if number >= has_argument or arg else 0, target
        extended, start, at = 0, -1, following


def _argument(code: CodeType, op: str, arg: int) -> Any:
    """Return what the argument names."""
    number = dis.opmap[op]
    if number in dis.hasconst:
        return code.co_consts[arg]
    if number in dis.hasname:
        return code.co_names[_name_index(op, arg)]
    if op in _PAIRS:
        return _local(code, arg >> 4), _local(code, arg & 15)
    if number in _LOCALS:
        return _local(code, arg)
    return arg


def _local(code: CodeType, index: int) -> str:
    """Return the name of a local, cell or free variable by its slot."""
    name: str = code._varname_from_oparg(index)  # type: ignore[attr-defined]
    return name


def _name_index(op: str, arg: int) -> int:
    """Strip the flag bits that some instructions keep below the index of a name."""
    if op == "LOAD_GLOBAL" or (op == "LOAD_ATTR" and _VERSION >= (3, 12)):
        return arg >> 1
    return arg >> 2 if op == "LOAD_SUPER_ATTR" else arg


def _exception_table(code: CodeType) -> Iterator[tuple[int, int, int, int, bool]]:
    """Yield (start, end, target, depth, lasti), in bytes. The format is CPython's, 6 bits a byte."""
    data = iter(code.co_exceptiontable)

    def number() -> int:
        byte = next(data)
        value = byte & 63
        while byte & 64:
            byte = next(data)
            value = value << 6 | byte & 63
        return value

    while True:
        try:
            start = number() * 2
        except StopIteration:
            return
        end = start + number() * 2
        target = number() * 2
        depth_lasti = number()
        yield start, end, target, depth_lasti >> 1, bool(depth_lasti & 1)
