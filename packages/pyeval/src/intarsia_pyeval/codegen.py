"""Bytecode that builds values, calls the graph and carries out side effects, for CPython 3.11, 3.12 and 3.13.

The code has three parts, put together at the end: what is fetched from the call before anything changes, the call
of the graph, and the body. The body is written first; it decides what is fetched and which results are needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

from bytecode import Label
from bytecode.instr import CellVar

from intarsia_bytecode import Hole, Loader, Writer, begin_anew, parameters
from intarsia_ir.records import (
    AnswerSource,
    ArgumentSource,
    ArraySource,
    AttributeSource,
    CellSource,
    DictItemSource,
    GlobalSource,
    ItemSource,
    LengthSource,
    ModuleSource,
    PlainAttributeSource,
    ReferentSource,
    SizeSource,
    Source,
    TypeSource,
)
from intarsia_pyeval.breaks import Foreclosed, Unreconstructable
from intarsia_pyeval.checking import Drawing, InVain, undo_all
from intarsia_pyeval.descriptors import is_data_descriptor, is_plain_lookup
from intarsia_pyeval.operation import operation
from intarsia_pyeval.stores import stand_in_store
from intarsia_pyeval.tracer import Extension
from intarsia_pyeval.values.base import NULL, Value
from intarsia_pyeval.values.constants import ATOMS, NONE, Const
from intarsia_pyeval.values.draws import Draw, Reading, Step
from intarsia_pyeval.values.functions import Cell, MadeFunction
from intarsia_pyeval.values.made import Made, MadeClass
from intarsia_pyeval.values.numbers import OpenNumber
from intarsia_pyeval.values.objects import Object, Traceback
from intarsia_pyeval.values.sequences import Tuple

if TYPE_CHECKING:
    from types import CodeType

    from intarsia_pyeval.extension import Graph
    from intarsia_pyeval.tracer import Tracer

__all__ = ["Builder", "emit_ambient", "emit_effects", "native_method", "reconstruct"]


@operation
def emit_ambient(out: Builder, extension: Extension) -> None:
    """Emit bytecode that sets ambient state, such as a library's modes, as the plug-in `extension` left it."""


@operation
def reconstruct(out: Builder, value: Value) -> None:
    """Emit bytecode that pushes the value.

    Raises:
        Unreconstructable: It can't be built.
    """
    raise Unreconstructable(f"{value.describe()} can't be built by bytecode")


@operation
def emit_effects(out: Builder, value: Value) -> None:
    """Emit bytecode that brings the existing object up to the state that tracing left it in."""


class Builder(Writer):
    """Writes bytecode that loads values.

    Args:
        tx: The capture.
        code: The code of the captured frame.
        line: Line that the generated instructions get.
    """

    def __init__(self, tx: Tracer, code: CodeType, line: int) -> None:
        super().__init__(code, line)
        self.tx = tx
        self.fetches: list[Any] = []
        self.behind: list[Any] = []  # what is jumped to, behind all else
        self.results: list[Value] = []  # values that the graph gives
        self.overwritten: frozenset[str] = frozenset(code.co_cellvars)  # parameters that can't be read later
        self._temporaries: dict[int, str] = {}  # id of a model -> local that holds it
        self._fetched: dict[int, str] = {}  # id of a source -> local that holds it
        self._loading: set[int] = set()
        self._open: dict[int, list[Cell]] = {}  # id of a model that is being made -> cells to hold it
        self._undone: list[Callable[[], None]] = []
        if any(not isinstance(draw, Step) or draw.undo is None for draw in self._changing()):
            self._begin_drawing()
        for draw in tx.effects.draws:
            self._draw(draw)

    # -- instructions --------------------------------------------------------------------------------------------

    def constant(self, value: Any) -> None:
        """Push an object: atoms as constants, others from where they were found, if they were."""
        if type(value) in ATOMS:
            self.emit("LOAD_CONST", value)
            return
        source = self.tx.classes.place(value)
        if source is not None:
            self.load_source(source)
            return
        recipe = stand_in_store.made_again(self.tx, value) if self.tx.live.stand_ins.used else None
        if recipe is not None:
            self.load(recipe)
        else:
            self.emit("LOAD_CONST", value)

    def plain_attribute(self, getter: Any, owner: Loader, name: str) -> None:
        """Push an attribute as a `__getattribute__` written in C finds it."""
        self.call(lambda: self.emit("LOAD_CONST", getter), [owner, lambda: self.emit("LOAD_CONST", name)])

    def own_dict(self, owner: Object) -> None:
        """Push the dictionary of an instance, past what its class makes of look-ups."""
        if is_plain_lookup(owner.cls):
            self.load(owner)
            self.load_attribute("__dict__")
        else:
            getter = native_method(owner.cls, "__getattribute__")
            self.plain_attribute(getter, partial(self.load, owner), "__dict__")

    def store_attribute(self, name: str, value: Value) -> None:
        """Pop the top and set its attribute."""
        self.load(value)
        self.emit("SWAP", 2)
        self.emit("STORE_ATTR", name)

    def store_item(self, value: Value, key: Value) -> None:
        """Pop the top and set its item."""
        self.load(value)
        self.emit("SWAP", 2)
        self.load(key)
        self.emit("STORE_SUBSCR")

    def call_method_of(self, value: Value, name: str, args: Sequence[Loader]) -> None:
        """Call a method for its effect."""
        self.load(value)
        self.call_method(name, args)
        self.emit("POP_TOP")

    def call_with_keywords(self, function: Any, args: Sequence[Value], keywords: Mapping[str, Value]) -> None:
        """Push the result of a call with keywords."""
        self.push_callable(partial(self.constant, function))
        self.build_tuple(args)
        self.build_map([(Const(name), value) for name, value in keywords.items()])
        self.emit("CALL_FUNCTION_EX", 1)

    def wrap_call(self, function: Any) -> None:
        """Replace the top by `function(top)`."""
        name = self.temporary()
        self.emit("STORE_FAST", name)
        self.call(lambda: self.constant(function), [lambda: self.emit("LOAD_FAST", name)])

    def close(self, hole: str) -> tuple[list[Any], Graph | None]:
        """Return what comes before the body (fetching inputs, calling the graph, keeping its results), and the graph.

        Where checks fail, the frame begins anew: `behind` has the code.

        Raises:
            Foreclosed: There are checks, and the graph can't be run in vain.
        """
        checks = self.tx.checks
        may_be = checks.conditions and not self._changing()
        in_vain = self.tx.extension.runs_in_vain() if may_be else None
        if checks.conditions and in_vain is None:
            checks.foreclose()
        graph = self.tx.extension.finish(self.tx, [*checks.conditions, *self.results])
        call: list[Any] = []
        if graph is not None:
            self._out = call
            self.emit("LOAD_CONST", Hole(hole))
            self.emit("STORE_FAST", hole)
            _check_early(graph.inputs)
            inputs = [partial(self.load, i) for i in graph.inputs]
            results = partial(self.call, lambda: self.emit("LOAD_FAST", hole), inputs)
            if in_vain is not None:
                self._check(in_vain, results, len(checks.conditions), hole)
            else:
                results()
            self._keep(graph.outputs[len(checks.conditions) :])
            self._out = self.body
        return [*self.fetches, *call], graph

    def _keep(self, results: Sequence[Value]) -> None:
        """Keep the results of the graph, which lie on the stack in a sequence."""
        if not results:
            self.emit("POP_TOP")
            return
        self.emit("UNPACK_SEQUENCE", len(results))
        for value in results:
            self.emit("STORE_FAST", self._temporaries[id(value)])
        for value in results:
            wrapper = self.tx.extension.wrapper(value)
            if wrapper is not None:
                function, others = wrapper
                loads: list[Loader] = [partial(self.emit, "LOAD_FAST", self._temporaries[id(value)])]
                self.call(partial(self.constant, function), loads + [partial(self.load, other) for other in others])
                self.emit("STORE_FAST", self._temporaries[id(value)])

    def _check(self, in_vain: InVain, results: Loader, count: int, hole: str) -> None:
        """Push the results of the graph behind its checks; where one fails, go to code that begins the frame anew."""
        loads: list[Loader] = [results, lambda: self.emit("LOAD_CONST", count)]
        dropped = [hole, *self._fetched.values()]
        if in_vain.before is not None:
            state = self.temporary()
            self.call(lambda: self.emit("LOAD_CONST", in_vain.before), [])
            self.emit("STORE_FAST", state)
            loads.append(lambda: self.emit("LOAD_FAST", state))
            dropped.append(state)
        self.call(lambda: self.emit("LOAD_CONST", in_vain.after), loads)
        failed = Label()
        self.emit("COPY", 1)
        self.jump_if_none(failed)
        before, self._out = self._out, self.behind
        self.behind.append(failed)
        self.emit("POP_TOP")
        begin_anew(self.code, self, dropped)
        self._out = before

    def _changing(self) -> list[Value]:
        """Return what is drawn, and changes something: clocks aren't put back."""
        return [draw for draw in self.tx.effects.draws if not isinstance(draw, Reading)]

    def _begin_drawing(self) -> None:
        """Note where the generator is: if the graph raises, the frame draws its numbers again."""
        drawing = Drawing()
        self._undone.append(drawing.undo)
        self._out = self.fetches
        self.call(partial(self.emit, "LOAD_CONST", drawing.begin), [])
        self.emit("POP_TOP")
        self._out = self.body

    def _draw(self, draw: Value) -> None:
        """Draw a random number before anything else, whether anybody needs it or not; read a clock when it is time."""
        assert isinstance(draw, (Draw, Step))
        self._out = self.body if isinstance(draw, Reading) and draw.late else self.fetches
        loads: list[Loader] = [partial(self.load, arg) for arg in draw.args]
        self.call(partial(self.emit, "LOAD_CONST", draw.drawn_by), loads)
        given = draw if isinstance(draw, Draw) else draw.gives
        if given is not None:
            self.emit("STORE_FAST", self._temporaries.setdefault(id(given), self.temporary()))
        else:
            self.emit("POP_TOP")
        if isinstance(draw, Step) and draw.undo is not None:
            self._undone.append(draw.undo)
        self._out = self.body

    @property
    def undo(self) -> Callable[[], None] | None:
        """What puts back what comes before the graph."""
        return None if not self._undone else partial(undo_all, tuple(self._undone))

    # -- values --------------------------------------------------------------------------------------------------

    def load(self, value: Value) -> None:
        """Push a value.

        Raises:
            Unreconstructable: It, or what it holds, can't be built.
        """
        name = self._temporaries.get(id(value))
        if name is not None:
            self.emit("LOAD_FAST", name)
        elif self.tx.extension.is_result(value):
            self.results.append(value)
            self._temporaries[id(value)] = name = self.temporary()
            emit_effects(self, value)  # what else it holds by now
            self.emit("LOAD_FAST", name)
        elif value.source is not None and not isinstance(value, Cell):
            self.load_source(value.source)
        elif value is NULL:
            self.emit("PUSH_NULL")
        else:
            self._build(value)

    def _build(self, value: Value) -> None:
        """Push a value that has no place to be fetched from."""
        real = value.identity()
        if real is not None and not isinstance(value, (Cell, Made, MadeClass)):
            self.constant(real)
            return
        if self.is_begun(value):
            raise Unreconstructable(f"{value.describe()} refers back to itself")
        self._loading.add(id(value))
        reconstruct(self, value)
        self._loading.discard(id(value))
        if value.shared and id(value) not in self._temporaries:
            self.remember(value)
        for cell in self._open.pop(id(value), ()):
            self.load(cell)
            self.store_attribute("cell_contents", value)

    def is_begun(self, value: Value) -> bool:
        """Tell whether a value is about to be made, of what is being made now."""
        return id(value) in self._loading

    def leave_open(self, cell: Cell, content: Value) -> None:
        """Fill a cell once its content, which is about to be made, is there."""
        self._open.setdefault(id(content), []).append(cell)

    def remember(self, value: Value) -> str:
        """Keep the top in a local: later loads of `value` take it from there."""
        name = self._temporaries[id(value)] = self.temporary()
        self.tx.live.keep(value)
        self.emit("COPY", 1)
        self.emit("STORE_FAST", name)
        self._loading.discard(id(value))
        return name

    def is_leaf(self, value: Value) -> bool:
        """Tell whether loading a value can't lead back to what is being built."""
        if isinstance(value, Const) or id(value) in self._temporaries or self.tx.extension.is_result(value):
            return True
        if value.source is not None and not isinstance(value, Cell):
            return True
        return isinstance(value, Tuple) and all(self.is_leaf(item) for item in value.items)

    def build_list(self, items: Sequence[Value]) -> None:
        """Push a new list."""
        for item in items:
            self.load(item)
        self.emit("BUILD_LIST", len(items))

    def build_tuple(self, items: Sequence[Value]) -> None:
        """Push a new tuple."""
        for item in items:
            self.load(item)
        self.emit("BUILD_TUPLE", len(items))

    def build_map(self, entries: Sequence[tuple[Value, Value]]) -> None:
        """Push a new dict."""
        for key, value in entries:
            self.load(key)
            self.load(value)
        self.emit("BUILD_MAP", len(entries))

    def sequence_of_class(self, cls: Any, items: Sequence[Value]) -> None:
        """Push a tuple of a class, made without its own constructor where it has named fields."""
        if cls is tuple:
            self.build_tuple(items)
        elif hasattr(cls, "_fields"):
            parts = [lambda: self.constant(cls), lambda: self.build_tuple(items)]
            self.call(lambda: self.constant(tuple.__new__), parts)
        else:
            self.call(lambda: self.constant(cls), [lambda: self.build_tuple(items)])

    def make_function(self, function: MadeFunction) -> None:
        """Push a function made by the traced code."""
        flags = 0
        if function.defaults:
            self.build_tuple(function.defaults)
            flags |= 1
        if function.keyword_defaults is not None:
            self.load(function.keyword_defaults)
            flags |= 2
        if function.annotations is not None:
            self.load(function.annotations)
            flags |= 4
        if function.closure:
            self.build_tuple(function.closure)
            flags |= 8
        self.emit_function(function.code, flags)

    def call_unbound(self, method: Any, owner: Value, args: Sequence[Loader]) -> None:
        """Call a method of a built-in base class for its effect."""
        self.call(lambda: self.emit("LOAD_CONST", method), [lambda: self.load(owner), *args])
        self.emit("POP_TOP")

    def write_attributes(self, owner: Object, written: Mapping[str, Value | None]) -> None:
        """Set and delete attributes, past any `__setattr__` of the class: that ran while tracing."""
        plain = all(
            (self.tx.classes.find(owner.cls, name) or (None,))[0]
            in (getattr(object, name), getattr(BaseException, name))
            for name in ("__setattr__", "__delattr__")
        )
        for name, value in written.items():
            if isinstance(value, Traceback):
                continue
            # the object may lack what the program gave it before it took it away
            for each in (value,) if value is not None else (NONE, None):
                self._write_attribute(owner, name, each, plain=plain)

    def _write_attribute(self, owner: Object, name: str, value: Value | None, *, plain: bool) -> None:
        """Set an attribute, or delete one that is there."""
        if self._is_shadowed(owner.cls, name):
            self.own_dict(owner)
            if value is not None:
                self.store_item(value, Const(name))
            else:
                self.emit("LOAD_CONST", name)
                self.emit("DELETE_SUBSCR")
        elif plain:
            self.load(owner)
            self.emit("DELETE_ATTR", name) if value is None else self.store_attribute(name, value)
        else:
            named: list[Loader] = [partial(self.constant, name)]
            if value is None:
                self.call_unbound(native_method(owner.cls, "__delattr__"), owner, named)
            else:
                loads: list[Loader] = [*named, partial(self.load, value)]
                self.call_unbound(native_method(owner.cls, "__setattr__"), owner, loads)

    def _is_shadowed(self, cls: Any, name: str) -> bool:
        """Tell whether an entry of an instance's dictionary can't be set by its name: a descriptor takes it."""
        raw = (self.tx.classes.find(cls, name) or (None,))[0]
        if isinstance(raw, MemberDescriptorType) or (issubclass(cls, BaseException) and hasattr(BaseException, name)):
            return False
        return is_data_descriptor(raw)

    # -- the frame's own variables -------------------------------------------------------------------------------

    def store_cell(self, name: str, content: Value | None) -> None:
        """Set the content of a cell of the frame, or empty it; it may be empty where the program filled it before."""
        if content is None and not (name in self.code.co_freevars or name in parameters(self.code)):
            return
        self.load(NONE if content is None else content)
        self.emit("STORE_DEREF", self.variable(name))
        if content is None:
            self.emit("DELETE_DEREF", self.variable(name))

    # -- sources -------------------------------------------------------------------------------------------------

    def load_source(self, source: Source) -> None:
        """Push what a source gives at the beginning of the call."""
        if isinstance(source, ArgumentSource) and source.name not in self.overwritten:
            self.emit("LOAD_FAST", source.name)
            return
        name = self._fetched.get(id(source))
        if name is None:
            before, self._out = self._out, self.fetches
            name = self._fetch(source)
            self._out = before
        self.emit("LOAD_FAST", name)

    def _fetch(self, source: Source) -> str:
        """Fetch a source into a local, its base first."""
        local = self._fetched.get(id(source))
        if local is not None:
            return local
        if isinstance(source, ArgumentSource):
            if source.name not in self.overwritten:
                return source.name
            if source.name in self.code.co_cellvars:
                self.emit("LOAD_DEREF", CellVar(source.name))
            else:
                self.emit("LOAD_FAST", source.name)
        elif isinstance(source, CellSource):
            self.emit("LOAD_DEREF", self.variable(source.name))
        elif isinstance(source, GlobalSource):
            self.emit("LOAD_GLOBAL", (False, source.name))
        elif isinstance(source, ModuleSource):
            self.emit("LOAD_CONST", sys.modules)
            self.emit("LOAD_CONST", source.name)
            self.emit("BINARY_SUBSCR")
        elif isinstance(source, AttributeSource):
            self.emit("LOAD_FAST", self._fetch(source.base))
            self.load_attribute(source.name)
        elif isinstance(source, PlainAttributeSource):
            holder = self._fetch(source.base)
            self.plain_attribute(object.__getattribute__, partial(self.emit, "LOAD_FAST", holder), source.name)
        elif isinstance(source, ItemSource):
            self.emit("LOAD_FAST", self._fetch(source.base))
            self.emit("LOAD_CONST", source.key)
            self.emit("BINARY_SUBSCR")
        elif isinstance(source, DictItemSource):
            held = self._fetch(source.base)
            loads: list[Loader] = [partial(self.emit, "LOAD_FAST", held), partial(self.emit, "LOAD_CONST", source.key)]
            self.call(lambda: self.emit("LOAD_CONST", dict.__getitem__), loads)
        elif isinstance(source, SizeSource):
            self.emit("LOAD_FAST", self._fetch(source.base))
            self.call_method(source.kind, [] if source.dim is None else [partial(self.constant, source.dim)])
        elif isinstance(source, (TypeSource, LengthSource)):
            base = self._fetch(source.base)
            function = type if isinstance(source, TypeSource) else len
            self.call(lambda: self.emit("LOAD_CONST", function), [lambda: self.emit("LOAD_FAST", base)])
        elif isinstance(source, (ReferentSource, AnswerSource)):
            held = self._fetch(source.base)
            self.call(lambda: self.emit("LOAD_FAST", held), [])
        elif isinstance(source, ArraySource):
            array = self._fetch(source.base)
            maker = self.tx.extension.array_maker()
            self.call(lambda: self.emit("LOAD_CONST", maker), [lambda: self.emit("LOAD_FAST", array)])
        else:
            raise Unreconstructable(f"{source} can't be fetched by bytecode")
        name = self._fetched[id(source)] = self.temporary()
        self.emit("STORE_FAST", name)
        return name


def _check_early(inputs: Sequence[Value]) -> None:
    """See that the graph needs nothing that is read behind it.

    Raises:
        Foreclosed: It does.
    """
    for value in inputs:
        if isinstance(value, Reading) and value.late:
            raise Foreclosed(value.step)
        if isinstance(value, OpenNumber):
            _check_early(value.parts)


def native_method(cls: Any, name: str) -> Any:
    """Return a method of the nearest base class that is written in C and defines it."""
    for base in cls.__mro__:
        method = base.__dict__.get(name)
        if method is not None and type(method) in (type(object.__new__), type(object.__init__)):
            return method
    return getattr(object, name)
