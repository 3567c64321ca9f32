"""Code objects decoded into instructions that the evaluator runs, for CPython 3.11, 3.12 and 3.13.

Inline caches and EXTENDED_ARG are folded away; `KW_NAMES`, `PRECALL` and `CALL` become one instruction, so that a
call is a single step. `first` and `last` keep the place among CPython's own instructions.
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


def _decode(code: CodeType) -> Decoded:
    """Decode without the cache."""
    raw = list(_raw_instructions(code))
    number_at: dict[int, int] = {}  # byte offset -> index of the step that begins or covers it
    steps: list[tuple[int, int, int, str, int, int, tuple[str, ...]]] = []
    pending_first, pending_offsets, keywords = -1, [], ()
    for number, (start, offset, op, arg, target) in enumerate(raw):
        pending_offsets.append(start)
        pending_first = number if pending_first < 0 else pending_first
        if op in _FUSED:
            keywords = code.co_consts[arg] if op == "KW_NAMES" else keywords
            continue
        for begin in pending_offsets:
            number_at[begin] = len(steps)
        steps.append((pending_first, number, offset, op, arg, target, keywords))
        pending_first, pending_offsets, keywords = -1, [], ()
    return _assemble(code, steps, number_at)


def _assemble(code: CodeType, steps: list[Any], number_at: dict[int, int]) -> Decoded:
    """Resolve arguments, jump targets, lines and handlers."""
    positions = list(code.co_positions())
    line = code.co_firstlineno
    instructions, offsets = [], []
    for index, (first, last, offset, op, arg, target, keywords) in enumerate(steps):
        where = positions[offset // 2] if offset // 2 < len(positions) else (None, None, None, None)
        line = where[0] or line
        goal = number_at[target] if target >= 0 else -1
        value = _argument(code, op, arg)
        instructions.append(Instruction(index, op, arg, value, goal, line, where, first, last, keywords))
        offsets.append(offset)
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
