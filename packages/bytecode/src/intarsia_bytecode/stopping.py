"""Where a frame stops being replaced: CPython runs one instruction, and resume functions are the rest.

Terms: of the stack before the instruction, the operands are what it consumes, `under` is the part that its exception
handler keeps (empty without a handler), and what lies between is only carried to the resume function.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import CodeType
from typing import Any

from bytecode import Bytecode, Instr, Label
from bytecode.instr import TryBegin, TryEnd

from intarsia_bytecode.assemble import patched_code
from intarsia_bytecode.comprehensions import shares_slot
from intarsia_bytecode.decode import Decoded, Handler, Instruction, decode
from intarsia_bytecode.liveness import assigned_locals, live_locals, skipped_at_loop_end, successors
from intarsia_bytecode.raising import handler_left
from intarsia_bytecode.resume import (
    ResumeInfo,
    StackEntry,
    after_break,
    carried_code,
    info_of,
    place_of,
    resume_code,
    singles,
)
from intarsia_bytecode.stack import entries
from intarsia_bytecode.writer import Loader, Writer

__all__ = ["Rest", "Stop", "native_code", "rest_of", "stack_prefix"]

_TRIVIAL = frozenset({"POP_TOP", "LOAD_CONST", "LOAD_FAST", "STORE_FAST", "NOP", "SWAP", "COPY"})
_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST"})
# what they leave may be empty slots, which can't be handed on as results
_MOVES = frozenset({"PUSH_NULL", "SWAP", "COPY", "LOAD_FAST_AND_CLEAR"})


@dataclass(frozen=True, slots=True)
class Stop:
    """An instruction that CPython is to run, and what is alive before it.

    Args:
        code: The code of the frame.
        index: The decoded instruction; one that does something, not one that only moves stack entries.
        locals: Locals that have a value there, in the order in which resume functions take them.
        depth: Entries on the stack.
        number: Tells the resume functions of one call apart.
        carried: How a resume function gets the stack entries below the operands, bottom first.
        under: For each stack entry that the instruction's handler keeps, whether it is an empty slot.
        bound: Locals that certainly have a value when a resume function is called.
        told: Any rest is worth a resume function, for being called it tells that the instruction was done.
    """

    code: CodeType
    index: int
    locals: tuple[str, ...]
    depth: int
    number: int
    carried: tuple[StackEntry, ...] = ()
    under: tuple[bool, ...] = ()
    bound: frozenset[str] = frozenset()
    told: bool = False


@dataclass(frozen=True, slots=True)
class Rest:
    """What comes once the stack holds `under` and the operands.

    Args:
        items: Instructions, labels and try regions.
        resumes: Name -> code of each resume function that they call.
    """

    items: list[Any]
    resumes: dict[str, CodeType] = field(default_factory=dict)


def rest_of(stop: Stop) -> Rest:
    """Return the instruction of `stop` and what follows it in each case, in new code."""
    after = _After(stop)
    return Rest(after.instruction_and_stubs(), after.resumes)


def native_code(stop: Stop) -> tuple[CodeType, dict[str, CodeType]] | None:
    """Return the original code with resume functions behind the instruction of `stop`, when nothing precedes it.

    None when the rest isn't worth a resume function, or when the stack or the locals there aren't certain.
    """
    return _After(stop).native()


def stack_prefix(code: CodeType) -> str:
    """Return how locals for stack entries are named: as nothing of the code's own, a break before included."""
    taken, level, prefix = (*code.co_varnames, *code.co_cellvars, *code.co_freevars), 1, "stack"
    while any(name.startswith(f"{prefix}_") for name in taken):
        level += 1
        prefix = f"stack{level}"
    return prefix


class _After:
    """Puts together what follows one stop."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        self.code = stop.code
        self.decoded: Decoded = decode(stop.code)
        self.instruction = self.decoded.instructions[stop.index]
        self.handler = self.decoded.handlers[stop.index]
        self.raw, self.layout = _without_empty_slots(_raw_instructions(stop.code, self.instruction))
        self.split = stop.depth - entries(self.instruction)  # entries below the operands
        self.prefix = stack_prefix(stop.code)
        self.resumes: dict[str, CodeType] = {}

    def native(self) -> tuple[CodeType, dict[str, CodeType]] | None:
        """Put the original code together, with stubs behind the instruction."""
        if self.split or not self._is_certain():
            return None
        label, items, instructions = carried_code(self.code, 0)
        old = instructions[self.instruction.last]
        at = next((k for k, item in enumerate(items) if item is old), None)
        if at is None:
            return None
        stubs = self._stubs()
        first, second = Label(), Label()
        jumps = isinstance(old.arg, Label)
        new = Instr(_forward(old.name), second, location=old.location) if jumps else self.raw[-1]
        falls = _falls_through(self.instruction)
        ending = [Instr("JUMP_FORWARD", first, location=old.location)] if falls else []
        tail: list[Any] = [first, *stubs[0]] if falls else []
        tail += [*_landing(self.instruction, second), *stubs[-1]] if jumps else []
        items[at : at + 1] = [new, *ending]
        return patched_code(self.code, [label, *items, *tail]), self.resumes

    def _is_certain(self) -> bool:
        """Tell whether all that resume functions need is there on every path, and they are worth it."""
        if self.instruction.op in _MOVES or shares_slot(self.code, self.stop.index):
            return False
        certain = assigned_locals(self.code, self.stop.index)
        nexts = successors(self.decoded, self.instruction)
        if not nexts or any(not certain.issuperset(self._passed_locals(index)) for index in nexts):
            return False
        # a local that is unbound on this path may be bound on another, and the original's branches decide anew
        if any(live_locals(self.code, index) - set(self._passed_locals(index)) - certain for index in nexts):
            return False
        return all(self._trivial_tail(index) is None for index in nexts)

    def instruction_and_stubs(self) -> list[Any]:
        """Return the instruction, in a try region if it has a handler, and what follows in each case."""
        items: list[Any] = []
        region: TryBegin | None = None
        pristine: list[Any] = []
        if self.handler is not None:
            label, pristine, _ = carried_code(self.code, self.handler.target)
            region = TryBegin(label, self.handler.lasti, self.handler.depth)
            # 3.13 looks the handler of an inlined call's exception up one instruction before the call
            items += [region, Instr("NOP", location=self.raw[0].location)]
        jumped = Label()
        for instruction in self.raw:
            if isinstance(instruction.arg, Label):
                instruction = Instr(_forward(instruction.name), jumped, location=instruction.location)
            items.append(instruction)
        if region is not None:
            items.append(TryEnd(region))
        stubs = self._stubs()
        if len(stubs) == 1 and not _falls_through(self.instruction):
            items.extend(_landing(self.instruction, jumped))
            items.extend(stubs[0])
        elif stubs:
            items.extend(stubs[0])
            if len(stubs) > 1:
                items.extend(_landing(self.instruction, jumped))
                items.extend(stubs[1])
        items.extend(singles(pristine))
        return items

    def _stubs(self) -> list[list[Any]]:
        """Return what follows the instruction, for fall-through and jump."""
        found = []
        for number, index in enumerate(successors(self.decoded, self.instruction)):
            jumped = number == 1 or not _falls_through(self.instruction)
            found.append(self._stub(index, jumped, number))
        return found

    def _stub(self, index: int, jumped: bool, number: int) -> list[Any]:
        """Return code that goes on at a successor: in place if it is a trivial return, else in a resume function."""
        trivial = self._trivial_tail(index)
        if trivial is not None and self.split == 0:
            return trivial
        pushed = _depth_after(self.raw, self.stop.depth, jumped) - self.split
        out = Writer(self.code, self.instruction.line)
        results = [StackEntry("value", (f"{self.prefix}_{self.split + i}",)) for i in range(pushed)]
        for entry in reversed(results):
            out.emit("STORE_FAST", entry.names[0])
        if self.layout:
            results = [StackEntry("null") if kind == "null" else results[-1] for kind in self.layout]
        for is_empty in reversed(self.stop.under):
            if is_empty:  # POP_TOP takes no empty slots, storing one is fine
                out.emit("STORE_FAST", f"{self.prefix}_null")
            else:
                out.emit("POP_TOP")
        stack = [*self.stop.carried, *results]
        names = self._passed_locals(index)
        name, code = self._resume(index, names, stack, number)
        self.resumes[name] = code
        self._call_resume(out, code, [*names, *[n for entry in stack for n in entry.names]])
        return list(out.body)

    def _resume(
        self, index: int, names: Sequence[str], stack: Sequence[StackEntry], number: int
    ) -> tuple[str, CodeType]:
        """Make the resume function's code."""
        line = self.decoded.instructions[index].line
        name = f"__resume_at_{line}_{2 * self.stop.number + number}"
        before = info_of(self.code)
        places = before.places if before else frozenset()
        following = self.decoded.instructions[self.stop.index + 1 : self.stop.index + 2]
        place = place_of(self.instruction, *following)
        info = ResumeInfo(places | {place}, place in places)
        left = self.stop.index if self._left(index) else None
        said = after_break(self.code.co_name, self.instruction.line, line)
        return name, resume_code(self.code, index, said, names, stack, info, left)

    def _left(self, index: int) -> Handler | None:
        """Return the handler that a resume function at `index` begins in and leaves at once."""
        return handler_left(self.decoded, self.stop.index, index)

    def _passed_locals(self, index: int) -> list[str]:
        """Return the locals that a resume function needs; the first parameter comes first, for `super()`."""
        left = self._left(index)
        live = live_locals(self.code, index) | (live_locals(self.code, left.target) if left else frozenset())
        names = [n for n in self.stop.locals if n in live]
        first = self.code.co_varnames[0] if self.code.co_argcount else None
        if first in self.stop.locals and "__class__" in self.code.co_freevars:
            names = [first, *[n for n in names if n != first]]
        return names

    def _call_resume(self, out: Writer, code: CodeType, names: Sequence[str]) -> None:
        """Make the resume function, call it and return what it returns."""

        def make() -> None:
            flags = 0
            if code.co_freevars:
                for name in code.co_freevars:
                    out.closure_cell(name)
                out.emit("BUILD_TUPLE", len(code.co_freevars))
                flags = 8
            out.emit_function(code, flags)

        loads: list[Loader] = [partial(out.emit, "LOAD_FAST", name) for name in names]
        # this frame waits for the resume function, and must not keep alive what that one drops
        dropped = sorted(self.stop.bound.union(names))
        drops: list[Loader] = [partial(out.emit, "DELETE_FAST", name) for name in dropped]
        out.call(make, loads, drops)
        out.emit("RETURN_VALUE")

    def _trivial_tail(self, index: int) -> list[Any] | None:
        """Return the instructions from `index` to a return, if all of them are trivial."""
        if self.stop.told:
            return None
        end = index
        instructions = self.decoded.instructions
        while instructions[end].op in _TRIVIAL and end - index < 8:
            end += 1
        if instructions[end].op not in _ENDS:
            return None
        found: list[Any] = []
        for instruction in instructions[index : end + 1]:
            found.extend(singles(_raw_instructions(self.code, instruction)))
        return found


def _forward(op: str) -> str:
    """Return the jump of the same condition that goes forward: what it jumps to lies behind."""
    return op.replace("BACKWARD_NO_INTERRUPT", "FORWARD").replace("BACKWARD", "FORWARD")


def _without_empty_slots(raw: list[Instr]) -> tuple[list[Instr], tuple[str, ...]]:
    """Replace an instruction that prepares a call by the one that only loads, and return what it should push.

    What it pushes beside the callable, an empty slot or a first argument, can't be kept in a local.
    """
    (last, *_) = raw[-1:]
    arg: Any = last.arg
    order = ("value", "null") if sys.version_info >= (3, 13) else ("null", "value")
    if last.name == "LOAD_METHOD":
        return [Instr("LOAD_ATTR", arg, location=last.location)], order
    if last.name in ("LOAD_GLOBAL", "LOAD_ATTR") and isinstance(arg, tuple) and arg[0]:
        return [Instr(last.name, (False, arg[1]), location=last.location)], order
    if last.name == "LOAD_SUPER_ATTR" and arg[0]:
        return [Instr(last.name, (False, *arg[1:]), location=last.location)], order
    return raw, ()


def _falls_through(instruction: Instruction) -> bool:
    """Tell whether control may go on at the next instruction."""
    return not instruction.op.startswith("JUMP_") or "IF" in instruction.op


def _depth_after(raw: Sequence[Instr], depth: int, jumped: bool) -> int:
    """Return the stack depth after an instruction."""
    for instruction in raw:
        if instruction.name == "FOR_ITER" and jumped:
            return depth - 1  # the effect that `dis` knows counts on the instructions that the jump skips
        depth += instruction.stack_effect(jump=jumped if instruction.has_jump() else None)
    return depth


def _landing(instruction: Instruction, label: Label) -> list[Any]:
    """Return what must lie at a jump target: an exhausted loop jumps over END_FOR (3.12), and POP_TOP (3.13)."""
    skipped = ["END_FOR", "POP_TOP"][: skipped_at_loop_end(instruction)]
    return [label, *[Instr(name, lineno=instruction.line) for name in skipped]]


def _raw_instructions(code: CodeType, instruction: Instruction) -> list[Instr]:
    """Return the assembler's instructions of a decoded one."""
    found = [item for item in Bytecode.from_code(code) if isinstance(item, Instr)]
    raw = found[instruction.first : instruction.last + 1]
    if instruction.within < instruction.first:  # the bool that it takes was left to it
        raw = [Instr("TO_BOOL", location=raw[0].location), *raw]
    return raw
