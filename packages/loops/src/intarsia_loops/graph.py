"""The GraphModule view of a program, as it crosses package borders.

Each item is the callable target of a call_function node: calling it interprets it, so FX can run, print, lint and
deep-copy the graph. Arguments of a node are the buffers that the item reads, in the order of `reads`, then the size
symbols that are known by then. The view is derived from a `Program`; `from_fx` gives the program back, also after edits
to the graph (nodes erased, arguments replaced, targets swapped for other item targets).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import SizeFacts
from intarsia_loops._items import made_by, outs_of, renamed
from intarsia_loops.index import IndexExpr, lift
from intarsia_loops.program import Buffer, Extern, Item, Placement, Program, TensorRef
from intarsia_loops.shown import Shown, makers, shown_by, symbols_of
from intarsia_loops.symbols import symbol as size_symbol
from intarsia_loops.targets import ItemOp, ViewOp, target_of

__all__ = ["from_fx", "to_fx"]


@dataclass(frozen=True, slots=True)
class _Frame:
    """What a program has besides its items: kept on the view as a whole.

    Args:
        inputs: Buffer of each tensor input and constant; None for a size symbol.
        facts: Size facts.
        placement: Memory plan, if made.
    """

    inputs: Mapping[str, Buffer | None] = field(default_factory=dict)
    facts: SizeFacts = field(default_factory=SizeFacts)
    placement: Placement | None = None

    def __deepcopy__(self, memo: Any) -> _Frame:
        return self


def to_fx(program: Program, *, values: Mapping[str, Any] | None = None) -> fx.GraphModule:
    """Return the GraphModule view of a program.

    Args:
        program: Nests and extern calls (loops), or kernels and extern calls (kernels).
        values: Fake tensors of buffers, where known; they become the nodes' recorded values.

    Example:
        >>> from intarsia_loops.index import axis, lift
        >>> from intarsia_loops.program import Nest, load, val
        >>> i = axis("i0", 3)
        >>> x = load("x", (lift(i),), "f32")
        >>> f32 = Buffer((lift(3),), (lift(1),), "f32")
        >>> double = Nest("y", (i,), (), "map", val("add", x, x, dtype="f32"), "f32")
        >>> y = TensorRef("y", (lift(3),), (lift(1),), lift(0))
        >>> gm = to_fx(Program({"x": f32, "y": f32}, ("x",), (double,), (y,)))
        >>> gm(torch.tensor([1.0, 2.0, 3.0]))
        (tensor([2., 4., 6.]),)
        >>> from_fx(gm).items == (double,)
        True
    """
    return _Writer(program, values or {}).graph_module()


def from_fx(gm: fx.GraphModule) -> Program:
    """Return the program that a GraphModule is a view of, edits to the graph included.

    A module that somebody built anew from the nodes of a view is one, too; it has lost the facts and the placement.

    Raises:
        InvalidArgumentError: A node is of another kind, or nothing tells what an input looks like.
    """
    frame = gm.frame if isinstance(gm, _View) else _Frame()
    return _Reader(gm, frame).program()


class _View(fx.GraphModule):
    """A GraphModule whose Python code is generated when it is first needed: most views are only read.

    Generating it costs more than building the graph. Everything that depends on the code asks for it first: calls
    through `forward`, text and line maps through attributes that are missing until then.
    """

    def __init__(self, root: Mapping[str, Any], graph: fx.Graph) -> None:
        self.__dict__["_is_deferred"] = True
        super().__init__(root, graph)  # type: ignore[arg-type]
        self.frame = _Frame()

    def __deepcopy__(self, memo: Any) -> _View:
        copied: Any = super().__deepcopy__(memo)
        copied.frame = self.frame
        return copied  # type: ignore[no-any-return]

    def recompile(self) -> Any:
        """Generate the code now; only the call that comes with construction is put off."""
        if self.__dict__.pop("_is_deferred", False):
            self.__dict__["_has_no_code"] = True
            return None
        self.__dict__.pop("_has_no_code", None)
        return super().recompile()

    def forward(self, *args: Any) -> Any:
        self.recompile()  # replaces this method by the generated one
        return self.forward(*args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and not name.startswith("__") and self.__dict__.get("_has_no_code"):
            self.recompile()
            return getattr(self, name)
        return super().__getattr__(name)


_READS_SIZES = MappingProxyType({"size": torch.ops.aten.sym_size.int, "stride": torch.ops.aten.sym_stride.int})


class _Writer:
    def __init__(self, program: Program, values: Mapping[str, Any]) -> None:
        self.program, self.values = program, values
        self.graph = fx.Graph()
        self.env: dict[str, fx.Node] = {}
        self.made = makers(program)
        self.all_symbols = tuple(sorted(symbols_of(program.buffers.values()) | self.made.keys()))
        self.symbols: tuple[str, ...] = ()  # those that are known so far

    def graph_module(self) -> _View:
        program = self.program
        for name in program.inputs:
            self._note(name, self.graph.placeholder(name), ())
        for name in program.constants:
            self._note(name, self.graph.get_attr(name), ())
        self._read_sizes((*program.inputs, *program.constants))
        missing = [s for s in self.all_symbols if s not in self.env and s not in self.made]
        if missing:
            raise InvalidArgumentError(f"no input has the size {missing[0]}", code="loops.arguments")
        for item in program.items:
            self._item(item)
            if self.made and isinstance(item, Extern):
                self._read_sizes(item.outs)
        self.graph.output(tuple([self._output(v) for v in program.outputs]))
        gm = _View(dict(program.constants), self.graph)
        inputs = {n: program.buffers.get(n) for n in (*program.inputs, *program.constants)}
        gm.frame = _Frame(MappingProxyType(inputs), program.facts, program.placement)
        return gm

    def _note(self, name: str, node: fx.Node, origins: Iterable[Any]) -> None:
        self.env[name] = node
        meta.set_origins(node, origins)
        if name in self.values:
            meta.set_value(node, self.values[name])

    def _read_sizes(self, names: Iterable[str]) -> None:
        """Add a node for each symbol that inputs or results are the first to show."""
        sizes: dict[str, Shown] = {}
        for shown in shown_by(names, self.program.buffers):
            if shown.symbol not in self.env:
                sizes.setdefault(shown.symbol, shown)
        for symbol in sorted(sizes):
            shown = sizes[symbol]
            args = (self.env[shown.name], shown.dim)
            self._note(symbol, self.graph.call_function(_READS_SIZES[shown.kind], args), ())
        self.symbols = tuple([s for s in self.all_symbols if s in self.env])

    def _item(self, item: Item) -> None:
        op = target_of(item, self.program.buffers, self.symbols)
        args = tuple([self.env[n] for n in (*op.reads, *op.symbols)])
        single = op.is_single and op.outs[0]
        node = self.graph.create_node("call_function", op, args, {}, op.outs[0] if single else None)
        if single:
            self._note(op.outs[0], node, item.origins)
            return
        meta.set_origins(node, item.origins)
        for k, out in enumerate(op.outs):
            if out:
                self._note(
                    out, self.graph.create_node("call_function", operator.getitem, (node, k), {}, out), item.origins
                )

    def _output(self, value: Any) -> Any:
        if isinstance(value, TensorRef):
            buffer = self.program.buffers[value.buffer]
            if (value.shape, value.strides) == (buffer.shape, buffer.strides) and value.offset is lift(0):
                return self.env[value.buffer]
            args = (self.env[value.buffer], *[self.env[s] for s in self.symbols])
            node = self.graph.call_function(ViewOp(value, buffer, self.symbols), args)
            meta.copy_origins(self.env[value.buffer], node)
            return node
        return self.env[repr(value)] if isinstance(value, IndexExpr) and repr(value) in self.env else value


class _Reader:
    def __init__(self, gm: fx.GraphModule, frame: _Frame) -> None:
        self.gm, self.frame = gm, frame
        self.names: dict[fx.Node, Any] = {}
        self.buffers: dict[str, Buffer] = {n: b for n, b in frame.inputs.items() if b is not None}
        self.inputs: list[str] = []
        self.constants: dict[str, Any] = {}
        self.items: list[Item] = []
        self.outputs: tuple[Any, ...] = ()

    def program(self) -> Program:
        for node in self.gm.graph.nodes:
            getattr(self, f"_{node.op}", self._unknown)(node)
        return Program(
            MappingProxyType(self.buffers),
            tuple(self.inputs),
            tuple(self.items),
            self.outputs,
            self.frame.facts,
            self.frame.placement,
            MappingProxyType(self.constants),
        )

    def _unknown(self, node: fx.Node) -> None:
        raise InvalidArgumentError(
            f"node {node.name} ({node.op} of {node.target}) is no item of a loop program", code="loops.not_a_view"
        )

    def _placeholder(self, node: fx.Node) -> None:
        self.names[node] = str(node.target)
        self.inputs.append(str(node.target))

    def _get_attr(self, node: fx.Node) -> None:
        self.names[node] = str(node.target)
        self.constants[str(node.target)] = getattr(self.gm, str(node.target))

    def _call_function(self, node: fx.Node) -> None:
        target = node.target
        if isinstance(target, ItemOp):
            self._item(node, target)
        elif isinstance(target, ViewOp):
            self.buffers.setdefault(self.names[node.args[0]], target.buffer)  # type: ignore[index]
            self.names[node] = replace(target.ref, buffer=self.names[node.args[0]])  # type: ignore[index]
        elif target is operator.getitem:
            self.names[node] = self.names[node.args[0]][node.args[1]]  # type: ignore[index]
        elif target in _READS_SIZES.values():
            buffer = self.buffers[self.names[node.args[0]]]  # type: ignore[index]
            numbers = buffer.shape if target is _READS_SIZES["size"] else buffer.strides
            self.names[node] = repr(numbers[node.args[1]])  # type: ignore[index]
        else:
            self._unknown(node)

    def _item(self, node: fx.Node, op: ItemOp) -> None:
        now = {old: self.names[arg] for old, arg in zip(op.reads, node.args, strict=False)}  # type: ignore[index]
        for old, new in now.items():
            self.buffers.setdefault(new, op.buffers[old])
        results = made_by(op.item)
        taken = {m: f"{node.name}_{m}" if len(results) > 1 else node.name for m in results if m in self.buffers}
        changed = {old: new for old, new in {**now, **taken}.items() if old != new}
        item = renamed(op.item, changed) if changed else op.item
        for old, new in zip(results, made_by(item), strict=True):
            if old in op.buffers:
                self.buffers[new] = op.buffers[old]
        self.items.append(item)
        outs = outs_of(item)
        self.names[node] = outs[0] if len(outs) == 1 else outs

    def _output(self, node: fx.Node) -> None:
        self.outputs = tuple([self._result(v) for v in node.args[0]])  # type: ignore[union-attr]

    def _result(self, value: Any) -> Any:
        if not isinstance(value, fx.Node):
            return value
        name = self.names[value]
        if isinstance(name, TensorRef):
            return name
        if name not in self.buffers:
            return self._size(value, name)
        buffer = self.buffers[name]
        return TensorRef(name, buffer.shape, buffer.strides, lift(0))

    def _size(self, node: fx.Node, name: str) -> Any:
        """An output that is an input but no known buffer: a size symbol of the frame, or of some buffer."""
        numbers = {out for item in self.items for out in outs_of(item)}
        if name in self.frame.inputs or name in numbers or name in symbols_of(self.buffers.values()):
            return size_symbol(name, self.frame.facts)
        raise InvalidArgumentError(
            f"nothing tells what the input {node.name} looks like: this is no view of a loop program",
            code="loops.not_a_view",
            hints=("make it with intarsia_lowering.lower or intarsia_loops.to_fx",),
        )
