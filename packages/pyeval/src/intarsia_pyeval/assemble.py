"""Replacement code: of a frame that returned, and of one that broke."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bytecode import Instr

from intarsia_bytecode import (
    StackEntry,
    Stop,
    decode,
    entries,
    live_locals,
    native_code,
    parameters,
    replacement_code,
    rest_of,
    shares_slot,
    stack_prefix,
)
from intarsia_ir.records import ArgumentSource, LinkableCode, Origin, Source
from intarsia_pyeval import codegen
from intarsia_pyeval.breaks import Unreconstructable
from intarsia_pyeval.codegen import Builder
from intarsia_pyeval.stores import dict_store, instance_store
from intarsia_pyeval.trust import is_trusted
from intarsia_pyeval.values.base import NULL, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.deques import Deque
from intarsia_pyeval.values.functions import Cell, Globals
from intarsia_pyeval.values.iterators import Enumerate, Generator, Position
from intarsia_pyeval.values.mappings import Dict, DictView
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.sequences import Items

if TYPE_CHECKING:
    from types import CodeType

    from intarsia_pyeval.evaluate import EvaluatedFrame
    from intarsia_pyeval.extension import Graph
    from intarsia_pyeval.tracer import Tracer

__all__ = ["assemble_break", "assemble_native", "assemble_return"]


def assemble_return(tx: Tracer, frame: EvaluatedFrame, value: Value, hole: str) -> tuple[LinkableCode, Graph | None]:
    """Return code that calls the graph, carries out the effects and returns `value`, and that graph."""
    out = Builder(tx, frame.code, frame.at.line)
    cells = {
        v.frame_name: v for v in tx.effects.dirty if isinstance(v, Cell) and v.frame_name in frame.code.co_cellvars
    }
    emit_effects(tx, out, except_for=frozenset(cells.values()))
    out.load(value)
    while used_cells := [name for name in cells if name in out.used_cells]:  # the others end with the frame
        codegen.emit_effects(out, cells.pop(used_cells[0]))
    out.emit("RETURN_VALUE")
    before, graph = out.close(hole)
    items = [*before, *out.body, *out.behind]
    code, holes = replacement_code(frame.code, items), (hole,) if graph else ()
    return LinkableCode(code, holes, undo=out.undo, changes=_changes(tx, frame.code)), graph


def _changes(tx: Tracer, code: CodeType) -> tuple[tuple[str, Origin | None], ...]:
    """Return what existed before the call and is another afterwards, with the lines that changed it.

    Variables of the frame itself end with it. An entry that was replaced by itself, as `self.n += 1` does with a
    tensor, is no change.
    """
    changes = []
    for value in tx.effects.dirty:
        is_cell = isinstance(value, Cell) and value.real is not None
        existed = value.identity() is not None or is_cell or isinstance(value, Globals)
        if existed and not _is_keywords(value, code) and not _is_as_it_was(tx, value):
            names = [f"globals[{key!r}]" for key in value.log] if isinstance(value, Globals) else ()
            for text in names or [str(value.source) if value.source is not None else value.describe()]:
                changes.append((text, tx.effects.places.get(value)))
    return tuple(changes)


def _is_keywords(value: Value, code: CodeType) -> bool:
    """Tell whether a value is the dict of a frame's `**` parameter, which each call makes anew."""
    if not code.co_flags & inspect.CO_VARKEYWORDS or not isinstance(value.source, ArgumentSource):
        return False
    return value.source.name == parameters(code)[-1]


def _is_as_it_was(tx: Tracer, value: Value) -> bool:
    """Tell whether all that was written to a dict or an instance is what was there before."""
    if isinstance(value, Dict) and isinstance(value.real, dict):
        old: dict[Any, Any] = value.real
        stored = [(key, dict_store.item_source(tx, value, key), new) for key, (_, _, new) in value.log.items()]
    elif type(value) is Object and value.base is None and value.source is not None:
        old = instance_store.real_dict(value.value) or {}
        stored = [(name, instance_store.own_source(tx, value, name), new) for name, new in value.written.items()]
    else:  # a library's own without a place was made for this call, such as a context manager
        return isinstance(value, Object) and value.source is None and is_trusted(value.cls.__module__)
    return all(new is not None and _is_same(new, place, dict.get(old, key, tx)) for key, place, new in stored)


def _is_same(new: Value, place: Source | None, old: Any) -> bool:
    """Tell whether a value is the one that was at a place: it was read there, or is the same constant."""
    read = new.source is not None and new.source == place
    return read or (isinstance(new, Const) and new.value is old)


def emit_effects(tx: Tracer, out: Builder, except_for: frozenset[Value] = frozenset()) -> None:
    """Bring existing objects and ambient state up to where tracing left them."""
    for value in tx.effects.dirty:
        if value in except_for:
            continue
        if value.identity() is not None or isinstance(value, (Cell, Globals)):
            codegen.emit_effects(out, value)
    for lock in tx.effects.locks:
        out.call_method_of(lock, "acquire", [])
    codegen.emit_ambient(out, tx.extension)


# ---- breaks ----------------------------------------------------------------------------------------------------


def assemble_break(tx: Tracer, frame: EvaluatedFrame, hole: str, number: int) -> tuple[LinkableCode, Graph | None]:
    """Return code that runs up to the current instruction, then it, then a resume function; and the graph.

    `frame.at` is the instruction and `frame.stack` the stack before it.

    Raises:
        Unreconstructable: A live value can't be built.
    """
    if shares_slot(frame.code, frame.at.index):
        raise Unreconstructable("a variable of a comprehension lies where the function keeps a cell")
    return _BreakAssembly(tx, frame, hole, number).run()


def assemble_native(frame: EvaluatedFrame, number: int, *, told: bool = False) -> LinkableCode | None:
    """Return the original code with resume functions behind the current instruction, when no graph precedes it.

    None when the rest isn't worth a resume function, or when the stack or the locals there aren't certain. `told`:
    any rest is worth one, for being called it tells that the instruction was done.
    """
    stop = Stop(frame.code, frame.at.index, tuple(frame.locals), len(frame.stack), number, told=told)
    native = native_code(stop)
    return None if native is None else LinkableCode(native[0], (), native[1], verbatim=True)


class _BreakAssembly:
    """Puts one break together: what comes before the instruction. `intarsia_bytecode.stopping` has the terms."""

    def __init__(self, tx: Tracer, frame: EvaluatedFrame, hole: str, number: int) -> None:
        self.tx = tx
        self.frame = frame
        self.code = frame.code
        self.hole = hole
        self.number = number
        self.out = Builder(tx, frame.code, frame.at.line)
        self.prefix = stack_prefix(frame.code)

    def run(self) -> tuple[LinkableCode, Graph | None]:
        """Assemble."""
        out, stack, at = self.out, self.frame.stack, self.frame.at
        split = len(stack) - entries(at)
        handler = decode(self.code).handlers[at.index]
        under = stack[: handler.depth] if handler else []
        live = live_locals(self.code, at.index) | self._open_generators()
        changed = [n for n in self.frame.locals if n in live and not self._unchanged(n)]
        unbound = [n for n in parameters(self.code) if self._dropped(n, live)]
        out.overwritten |= {*changed, *unbound}
        emit_effects(self.tx, out)
        for value in under:
            out.load(value)
        self._set_locals(changed, unbound)
        bound = {*parameters(self.code), *changed} - {*unbound, *self.code.co_cellvars}
        carried = tuple(self._carry(value, index) for index, value in enumerate(stack[:split]))
        for value in stack[split:]:
            out.load(value)
        kept = {name for entry in carried for name in entry.names}
        for name in out.temporaries():
            if name not in kept:
                out.emit("DELETE_FAST", name)
        empty = tuple(value is NULL for value in under)
        names = tuple(self.frame.locals)
        rest = rest_of(
            Stop(self.code, at.index, names, len(stack), self.number, carried, empty, bound=frozenset(bound))
        )
        before, graph = out.close(self.hole)
        items = [*before, *self._clean(out.body, graph), *rest.items, *out.behind]
        holes = (self.hole,) if graph else ()
        linkable = LinkableCode(replacement_code(self.code, items), holes, rest.resumes, undo=self.out.undo)
        return linkable, graph

    def _clean(self, body: list[Any], graph: Graph | None) -> list[Any]:
        """Return the body; nothing of ours stays behind in the frame that goes on."""
        if graph is None:
            return body
        return [Instr("DELETE_FAST", self.hole, location=self.out.location), *body]

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
        if isinstance(value.over, (Deque, DictView)):
            return parts, "view"
        return parts, "iterator" if isinstance(value.over, Items) else "range"
