"""Replacement code: of a frame that returned, and of one that broke."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any

from bytecode import Bytecode, Instr, Label
from bytecode.instr import CellVar, TryBegin, TryEnd

from intarsia_ir.records import LinkableCode
from intarsia_tracer.codegen import Builder, Loader, parameters
from intarsia_tracer.decode import Handler, Instruction, decode
from intarsia_tracer.link import Hole
from intarsia_tracer.liveness import assigned_locals, live_locals, skipped_at_loop_end, successors
from intarsia_tracer.opcodes.stack import entries
from intarsia_tracer.raising import handler_left
from intarsia_tracer.resume import ResumeInfo, StackEntry, carried_code, info_of, place_of, resume_code, singles
from intarsia_tracer.values.base import NULL, Value
from intarsia_tracer.values.functions import Cell, Globals
from intarsia_tracer.values.iterators import Enumerate, Generator, Position
from intarsia_tracer.values.mappings import DictView
from intarsia_tracer.values.sequences import Items

if TYPE_CHECKING:
    from intarsia_tracer.evaluate import EvaluatedFrame
    from intarsia_tracer.extension import Graph
    from intarsia_tracer.tracer import Tracer

__all__ = ["assemble_break", "assemble_native", "assemble_return"]

_TRIVIAL = frozenset({"POP_TOP", "LOAD_CONST", "LOAD_FAST", "STORE_FAST", "NOP", "SWAP", "COPY"})
_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST"})


def assemble_return(tx: Tracer, frame: EvaluatedFrame, value: Value, hole: str) -> tuple[LinkableCode, Graph | None]:
    """Return code that calls the graph, carries out the effects and returns `value`, and that graph."""
    out = Builder(tx, frame.code, frame.at.line)
    cells = {v.frame_name: v for v in tx.dirty if isinstance(v, Cell) and v.frame_name in frame.code.co_cellvars}
    emit_effects(tx, out, except_for=frozenset(cells.values()))
    out.load(value)
    while found := [name for name in cells if name in out.used_cells]:  # the others end with the frame
        cells.pop(found[0]).emit_effects(out)
    out.emit("RETURN_VALUE")
    graph = tx.extension.finish(tx, out.results)
    items = [*_graph_call(out, graph, hole), *out.body]
    return LinkableCode(_to_code(frame.code, out, items), (hole,) if graph else ()), graph


def emit_effects(tx: Tracer, out: Builder, except_for: frozenset[Value] = frozenset()) -> None:
    """Bring existing objects and ambient state up to where tracing left them."""
    for value in tx.dirty:
        if value in except_for:
            continue
        if value.identity() is not None or isinstance(value, (Cell, Globals)):
            value.emit_effects(out)
    for lock in tx.locks:
        out.call_method_of(lock, "acquire", [])
    tx.extension.emit_ambient(out)


def _graph_call(out: Builder, graph: Graph | None, hole: str) -> list[Instr]:
    """Return what comes before the body: fetching inputs, calling the graph, keeping its results."""
    body, out.body = out.body, []
    out._out = out.body
    if graph is not None:
        out.emit("LOAD_CONST", Hole(hole))
        out.emit("STORE_FAST", hole)
        out.call(lambda: out.emit("LOAD_FAST", hole), [partial(out.load, i) for i in graph.inputs])
        if graph.outputs:
            out.emit("UNPACK_SEQUENCE", len(graph.outputs))
            for value in graph.outputs:
                out.emit("STORE_FAST", out._temporaries[id(value)])
        else:
            out.emit("POP_TOP")
    call, out.body = out.body, body
    return [*out.fetches, *call]


def _to_code(code: CodeType, out: Builder, items: Sequence[Any]) -> CodeType:
    """Assemble: parameters, cells and free variables of `code`, then `items`."""
    made = Bytecode()
    made.name, made.qualname, made.filename = code.co_name, code.co_qualname, code.co_filename
    made.first_lineno = code.co_firstlineno
    made.argcount, made.posonlyargcount = code.co_argcount, code.co_posonlyargcount
    made.kwonlyargcount = code.co_kwonlyargcount
    made.flags = code.co_flags  # type: ignore[assignment]
    made.argnames = list(parameters(code))
    made.cellvars, made.freevars = list(code.co_cellvars), list(code.co_freevars)
    made.docstring = None
    line = code.co_firstlineno
    if code.co_freevars:
        made.append(Instr("COPY_FREE_VARS", len(code.co_freevars), lineno=line))
    made.extend(Instr("MAKE_CELL", CellVar(name), lineno=line) for name in code.co_cellvars)
    made.append(Instr("RESUME", 0, lineno=line))
    made.extend(items)
    handled = any(isinstance(item, TryBegin) for item in made)
    if not handled:
        return made.to_code(compute_exception_stack_depths=False)
    size = max(_stack_size(made), code.co_stacksize + 8)
    return made.to_code(stacksize=size, compute_exception_stack_depths=False)


def _stack_size(made: Bytecode) -> int:
    """Return how deep the stack gets, or a bound of it where the library can't follow protected ranges that overlap."""
    try:
        return made.compute_stacksize(check_pre_and_post=False)
    except AssertionError:
        # what pushes is run once, but for loops of the original, which leave the stack as they find it
        return sum(max(0, item.stack_effect()) for item in made if isinstance(item, Instr))


# ---- breaks ----------------------------------------------------------------------------------------------------


def assemble_break(tx: Tracer, frame: EvaluatedFrame, hole: str, number: int) -> tuple[LinkableCode, Graph | None]:
    """Return code that runs up to the current instruction, then it, then a resume function; and the graph.

    `frame.at` is the instruction and `frame.stack` the stack before it.

    Raises:
        Unreconstructable: A live value can't be built.
    """
    return _BreakAssembly(tx, frame, hole, number).run()


def assemble_native(tx: Tracer, frame: EvaluatedFrame, number: int, *, told: bool = False) -> LinkableCode | None:
    """Return the original code with resume functions behind the current instruction, when no graph precedes it.

    None when the rest isn't worth a resume function, or when the stack or the locals there aren't certain. `told`:
    any rest is worth one, for being called it tells that the instruction was done.
    """
    return _BreakAssembly(tx, frame, "", number, told).run_native()


class _BreakAssembly:
    """Puts one break together.

    Terms: of the stack before the instruction, the `operands` are what it consumes, `under` is the part that its
    exception handler keeps (empty without a handler), and what lies between is only carried to the resume function.
    """

    def __init__(self, tx: Tracer, frame: EvaluatedFrame, hole: str, number: int, told: bool = False) -> None:
        self.tx = tx
        self.told = told
        self.frame = frame
        self.code = frame.code
        self.hole = hole
        self.number = number
        self.out = Builder(tx, frame.code, frame.at.line)
        self.instruction = frame.at
        self.decoded = decode(frame.code)
        self.handler = self.decoded.handlers[frame.at.index]
        self.raw, self.layout = _without_empty_slots(frame.at, _raw_instructions(frame.code, frame.at))
        self.carried: list[StackEntry] = []
        self.prefix = _fresh_prefix(frame.code)
        self.bound: set[str] = set()  # locals that certainly have a value when a resume function is called
        self.resumes: dict[str, CodeType] = {}

    def run(self) -> tuple[LinkableCode, Graph | None]:
        """Assemble."""
        out, stack = self.out, self.frame.stack
        consumed = entries(self.instruction)
        split = len(stack) - consumed
        under = stack[: self.handler.depth] if self.handler else []
        live = live_locals(self.code, self.instruction.index) | self._open_generators()
        changed = [n for n in self.frame.locals if n in live and not self._unchanged(n)]
        unbound = [n for n in parameters(self.code) if self._dropped(n, live)]
        out.overwritten |= {*changed, *unbound}
        emit_effects(self.tx, out)
        for value in under:
            out.load(value)
        self._set_locals(changed, unbound)
        self.bound = {*parameters(self.code), *changed} - {*unbound, *self.code.co_cellvars}
        self.carried = [self._carry(value, index) for index, value in enumerate(stack[:split])]
        for value in stack[split:]:
            out.load(value)
        for name in out.temporaries():
            if name not in self._carried_names():
                self.out.emit("DELETE_FAST", name)
        tail = self._instruction_and_stubs(len(under), split)
        graph = self.tx.extension.finish(self.tx, out.results)
        items = [*_graph_call(out, graph, self.hole), *self._clean(out.body, graph), *tail]
        linkable = LinkableCode(_to_code(self.code, out, items), (self.hole,) if graph else (), self.resumes)
        return linkable, graph

    def _clean(self, body: list[Instr], graph: Graph | None) -> list[Instr]:
        """Return the body; nothing of ours stays behind in the frame that goes on."""
        if graph is None:
            return body
        return [Instr("DELETE_FAST", self.hole, lineno=self.out.line), *body]

    def _carried_names(self) -> set[str]:
        return {name for entry in self.carried for name in entry.names}

    def run_native(self) -> LinkableCode | None:
        """Assemble on the original code."""
        if len(self.frame.stack) != entries(self.instruction):
            return None
        certain = assigned_locals(self.code, self.instruction.index)
        nexts = successors(self.decoded, self.instruction)
        if not nexts or any(not certain.issuperset(self._passed_locals(index)) for index in nexts):
            return None
        # a local that is unbound on this path may be bound on another, and the original's branches decide anew
        if any(live_locals(self.code, index) - set(self._passed_locals(index)) - certain for index in nexts):
            return None
        if any(self._trivial_tail(index) is not None for index in nexts):
            return None
        label, items, instructions = carried_code(self.code, 0)
        old = instructions[self.instruction.last]
        at = next((k for k, item in enumerate(items) if item is old), None)
        if at is None:
            return None
        stubs = self._stubs(0, 0)
        first, second = Label(), Label()
        jumps = isinstance(old.arg, Label)
        forward = old.name.replace("BACKWARD_NO_INTERRUPT", "FORWARD").replace("BACKWARD", "FORWARD")
        new = Instr(forward, second, location=old.location) if jumps else self.raw[-1]
        falls = _falls_through(self.instruction)
        ending = [Instr("JUMP_FORWARD", first, location=old.location)] if falls else []
        tail: list[Any] = [first, *stubs[0]] if falls else []
        tail += [*_landing(self.instruction, second, self.out.line), *stubs[-1]] if jumps else []
        items[at : at + 1] = [new, *ending]
        made = [label, *items, *tail]
        return LinkableCode(_patched(self.code, made), (), self.resumes, verbatim=True)

    # -- before the instruction ----------------------------------------------------------------------------------

    def _set_locals(self, changed: Sequence[str], unbound: Sequence[str]) -> None:
        """Give the live locals their values, and unbind what was deleted."""
        for name in changed:
            self.out.load(self.frame.locals[name])
            self.out.emit("STORE_FAST", name)
        for name in unbound:
            self.out.emit("DELETE_FAST", name)

    def _open_generators(self) -> frozenset[str]:
        """Return the locals with generators that eager closes when the frame ends, so that they are alive till then."""
        values = self.frame.locals.items()
        return frozenset(n for n, v in values if isinstance(v, Generator) and v.is_open())

    def _dropped(self, name: str, live: frozenset[str]) -> bool:
        """Tell whether a parameter was deleted, or is dead and was assigned: what it held lives no longer in eager."""
        if name in self.code.co_cellvars:
            return False
        return name not in self.frame.locals or (name not in live and not self._unchanged(name))

    def _unchanged(self, name: str) -> bool:
        """Tell whether a local still is the parameter of that name."""
        return self.frame.locals[name].source is self.tx.sources.argument(name)

    def _carry(self, value: Value, index: int) -> StackEntry:
        """Keep a stack entry below the operands for the resume function."""
        if value is NULL:
            return StackEntry("null")
        parts, kind = self._parts(value)
        names = []
        for number, part in enumerate(parts):
            name = f"{self.prefix}_{index}" if len(parts) == 1 else f"{self.prefix}_{index}_{number}"
            self.out.load(part)
            self.out.emit("STORE_FAST", name)
            names.append(name)
        return StackEntry(kind, tuple(names))

    def _parts(self, value: Value) -> tuple[tuple[Value, ...], str]:
        """Return what a stack entry is made of again: iterators over lists and ranges keep their state open."""
        parts = value.carry()
        if parts is None:
            return (value,), "value"
        if isinstance(value, Enumerate):
            return parts, "enumerate"
        assert isinstance(value, Position)
        if isinstance(value.over, DictView):
            return parts, "view"
        return parts, "iterator" if isinstance(value.over, Items) else "range"

    # -- the instruction and after -------------------------------------------------------------------------------

    def _instruction_and_stubs(self, n_under: int, split: int) -> list[Any]:
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
                forward = instruction.name.replace("BACKWARD_NO_INTERRUPT", "FORWARD").replace("BACKWARD", "FORWARD")
                instruction = Instr(forward, jumped, location=instruction.location)
            items.append(instruction)
        if region is not None:
            items.append(TryEnd(region))
        stubs = self._stubs(n_under, split)
        if len(stubs) == 1 and not _falls_through(self.instruction):
            items.extend(_landing(self.instruction, jumped, self.out.line))
            items.extend(stubs[0])
        elif stubs:
            items.extend(stubs[0])
            if len(stubs) > 1:
                items.extend(_landing(self.instruction, jumped, self.out.line))
                items.extend(stubs[1])
        items.extend(singles(pristine))
        return items

    def _stubs(self, n_under: int, split: int) -> list[list[Any]]:
        """Return what follows the instruction, for fall-through and jump."""
        found = []
        for number, index in enumerate(successors(self.decoded, self.instruction)):
            jumped = number == 1 or not _falls_through(self.instruction)
            found.append(self._stub(index, n_under, split, jumped, number))
        return found

    def _stub(self, index: int, n_under: int, split: int, jumped: bool, number: int) -> list[Any]:
        """Return code that goes on at a successor: in place if it is a trivial return, else in a resume function."""
        trivial = self._trivial_tail(index)
        if trivial is not None and split == 0:
            return trivial
        pushed = _depth_after(self.raw, split + entries(self.instruction), jumped) - split
        out = Builder(self.tx, self.code, self.out.line)
        results = [StackEntry("value", (f"{self.prefix}_{split + i}",)) for i in range(pushed)]
        for entry in reversed(results):
            out.emit("STORE_FAST", entry.names[0])
        if self.layout:
            results = [StackEntry("null") if kind == "null" else results[-1] for kind in self.layout]
        for value in reversed(self.frame.stack[:n_under]):
            if value is NULL:  # POP_TOP takes no empty slots, storing one is fine
                out.emit("STORE_FAST", f"{self.prefix}_null")
            else:
                out.emit("POP_TOP")
        stack = [*self.carried, *results]
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
        name = f"__resume_at_{line}_{2 * self.number + number}"
        before = info_of(self.code)
        places = before.places if before else frozenset()
        place = place_of(self.instruction)
        info = ResumeInfo(places | {place}, place in places)
        left = self.instruction.index if self._left(index) else None
        return name, resume_code(self.code, index, name, names, stack, info, left)

    def _left(self, index: int) -> Handler | None:
        """Return the handler that a resume function at `index` begins in and leaves at once."""
        return handler_left(self.decoded, self.instruction.index, index)

    def _passed_locals(self, index: int) -> list[str]:
        """Return the locals that a resume function needs; the first parameter comes first, for `super()`."""
        left = self._left(index)
        live = live_locals(self.code, index) | (live_locals(self.code, left.target) if left else frozenset())
        names = [n for n in self.frame.locals if n in live]
        first = self.code.co_varnames[0] if self.code.co_argcount else None
        if first in self.frame.locals and "__class__" in self.code.co_freevars:
            names = [first, *[n for n in names if n != first]]
        return names

    def _call_resume(self, out: Builder, code: CodeType, names: Sequence[str]) -> None:
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
        drops: list[Loader] = [partial(out.emit, "DELETE_FAST", name) for name in sorted(self.bound.union(names))]
        out.call(make, loads, drops)
        out.emit("RETURN_VALUE")

    def _trivial_tail(self, index: int) -> list[Any] | None:
        """Return the instructions from `index` to a return, if all of them are trivial."""
        if self.told:
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


def _fresh_prefix(code: CodeType) -> str:
    """Return how locals for stack entries are named: not as those that the code itself got when it was made."""
    level = 0
    while any(name.startswith(f"__stack{level}_") for name in code.co_varnames):
        level += 1
    return f"__stack{level}"


def _patched(code: CodeType, items: Sequence[Any]) -> CodeType:
    """Assemble changed original code."""
    made = Bytecode()
    made._copy_attr_from(Bytecode.from_code(code))
    made.extend(singles(items))
    return made.to_code(stacksize=code.co_stacksize + 300, compute_exception_stack_depths=False)


def _without_empty_slots(instruction: Instruction, raw: list[Instr]) -> tuple[list[Instr], tuple[str, ...]]:
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


def _landing(instruction: Instruction, label: Label, line: int) -> list[Any]:
    """Return what must lie at a jump target: an exhausted loop jumps over END_FOR (3.12), and POP_TOP (3.13)."""
    skipped = ["END_FOR", "POP_TOP"][: skipped_at_loop_end(instruction)]
    return [label, *[Instr(name, lineno=line) for name in skipped]]


def _raw_instructions(code: CodeType, instruction: Instruction) -> list[Instr]:
    """Return the assembler's instructions of a decoded one."""
    found = [item for item in Bytecode.from_code(code) if isinstance(item, Instr)]
    return found[instruction.first : instruction.last + 1]
