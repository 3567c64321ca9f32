"""The GraphModule view of a program, as it crosses package borders.

Each item is the callable target of a call_function node: calling it interprets it, so FX can run, print, lint and
deep-copy the graph. Arguments of a node are the buffers that the item reads, in the order of `reads`, then the size
symbols it needs. The view is derived from a `Program`; `from_fx` gives the program back, also after edits to the graph
(nodes erased, arguments replaced, targets swapped for other item targets).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import SizeFacts
from intarsia_loops._evaluate import call_extern, run_kernel, run_nest, tensor_of
from intarsia_loops._run import symbols_of
from intarsia_loops._symbols import symbol as size_symbol
from intarsia_loops.index import IndexExpr, lift
from intarsia_loops.program import Buffer, Extern, Item, Kernel, Nest, Placement, Program, TensorRef
from intarsia_loops.rewrites import matching_buffers, reads_in_order, rename_buffers

__all__ = ["ExternOp", "ItemOp", "KernelOp", "NestOp", "ViewOp", "from_fx", "to_fx"]

_FRAME_KEY = "intarsia_loops"


@dataclass(frozen=True, slots=True)
class _Frame:
    """What a program has besides its items: kept on the GraphModule as a whole.

    Args:
        dialect: `"loops"` or `"kernels"`.
        inputs: Buffer of each tensor input and constant; None for a size symbol.
        facts: Size facts.
        placement: Memory plan, if made.
    """

    dialect: str
    inputs: Mapping[str, Buffer | None]
    facts: SizeFacts
    placement: Placement | None

    def __deepcopy__(self, memo: Any) -> _Frame:
        return self


class ItemOp:
    """Callable target of one item. Equal when the items do the same, whatever their buffers are called.

    Attributes:
        item: The nest, kernel or extern call.
        buffers: Every buffer that it reads or makes.
        reads: Buffers read, in the order of the node's arguments.
        symbols: Size symbols, the arguments after them.
        outs: Buffers that reach memory; with one the node is that tensor, else a tuple of them.
    """

    kind: ClassVar[str] = "item"

    def __init__(self, item: Any, buffers: Mapping[str, Buffer], symbols: tuple[str, ...] = ()) -> None:
        self.item = item
        self.reads = _reads(item)
        self.outs = _outs(item)
        names = (*self.reads, *_made(item))
        self.buffers: Mapping[str, Buffer] = {n: buffers[n] for n in names if n}
        self.symbols = symbols
        self._hash = hash(self._summary())
        self.__name__ = self.__qualname__ = self._label()
        self.__module__ = f"intarsia_loops.{self.kind}"

    def __call__(self, *args: Any) -> Any:
        tensors, sizes = args[: len(self.reads)], args[len(self.reads) :]
        made = self._run(dict(zip(self.reads, tensors, strict=True)), dict(zip(self.symbols, sizes, strict=True)))
        return made[self.outs[0]] if self.is_single else tuple(made.get(o) for o in self.outs)

    @property
    def is_single(self) -> bool:
        """Whether the node is one tensor rather than a tuple."""
        return len(self.outs) == 1

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ItemOp) or type(other) is not type(self) or other._hash != self._hash:
            return False
        return self._matches(other)

    def __deepcopy__(self, memo: Any) -> ItemOp:
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__name__} -> {', '.join(self.outs)})"

    def _label(self) -> str:
        raise NotImplementedError

    def _summary(self) -> Any:
        raise NotImplementedError

    def _matches(self, other: Any) -> bool:
        raise NotImplementedError

    def _same_buffers(self, other: ItemOp, names: Mapping[str, str]) -> bool:
        return all(self.buffers[a] == other.buffers[b] for a, b in names.items())

    def _run(self, memory: dict[str, torch.Tensor], sizes: dict[str, int]) -> dict[str, torch.Tensor]:
        raise NotImplementedError


class NestOp(ItemOp):
    """Target of a nest."""

    kind = "nests"

    def _label(self) -> str:
        return str(self.item.kind)

    def _summary(self) -> Any:
        nest = self.item
        return (nest.kind, nest.dtype, nest.body.op, nest.body.size, tuple([a.extent for a in nest.axes]))

    def _matches(self, other: Any) -> bool:
        names = matching_buffers((self.item,), (other.item,))
        return names is not None and self._same_buffers(other, names)

    def _run(self, memory: dict[str, torch.Tensor], sizes: dict[str, int]) -> dict[str, torch.Tensor]:
        return {self.item.out: run_nest(self.item, self.buffers[self.item.out], memory, sizes)}


class KernelOp(ItemOp):
    """Target of a kernel."""

    kind = "kernels"

    def _label(self) -> str:
        return "kernel_" + "_".join(dict.fromkeys(s.kind for s in self.item.steps))

    def _summary(self) -> Any:
        return (len(self.item.local), tuple([(s.kind, s.dtype, s.body.op, s.body.size) for s in self.item.steps]))

    def _matches(self, other: Any) -> bool:
        names = matching_buffers(self.item.steps, other.item.steps)
        if names is None or len(self.item.rows) != len(other.item.rows):
            return False
        return {names[n] for n in self.item.local} == other.item.local and self._same_buffers(other, names)

    def _run(self, memory: dict[str, torch.Tensor], sizes: dict[str, int]) -> dict[str, torch.Tensor]:
        return run_kernel(self.item, self.buffers, memory, sizes)


class ExternOp(ItemOp):
    """Target of an extern call."""

    kind = "externs"

    def _label(self) -> str:
        return str(self.item.target).replace(".", "_").replace("::", "_")

    def _summary(self) -> Any:
        return str(self.item.target)

    def _matches(self, other: Any) -> bool:
        return bool(self._form() == other._form())

    def _form(self) -> Any:
        """The call with buffers named by position."""
        place = {n: f"b{k}" for k, n in enumerate(dict.fromkeys((*self.reads, *self.outs)))}
        return (
            self.item.target,
            _map_refs(self.item.args, lambda r: replace(r, buffer=place[r.buffer])),
            _map_refs(self.item.kwargs, lambda r: replace(r, buffer=place[r.buffer])),
            tuple([place[o] if o else "" for o in self.outs]),
            tuple([self.buffers[n] for n in place if n]),
        )

    def _run(self, memory: dict[str, torch.Tensor], sizes: dict[str, int]) -> dict[str, torch.Tensor]:
        return call_extern(self.item, self.buffers, memory, sizes)


class ViewOp:
    """Target of an output that is a strided view of a buffer."""

    def __init__(self, ref: TensorRef, symbols: tuple[str, ...] = ()) -> None:
        self.ref = ref
        self.symbols = symbols
        self.__name__ = self.__qualname__ = "view"
        self.__module__ = "intarsia_loops.views"

    def __call__(self, base: torch.Tensor, *sizes: int) -> torch.Tensor:
        return tensor_of(self.ref, {self.ref.buffer: base}, dict(zip(self.symbols, sizes, strict=True)))

    def __hash__(self) -> int:
        return hash((self.ref.shape, self.ref.strides, self.ref.offset))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ViewOp) and replace(other.ref, buffer=self.ref.buffer) == self.ref

    def __deepcopy__(self, memo: Any) -> ViewOp:
        return self


_OPS: Mapping[type, type[ItemOp]] = MappingProxyType({Nest: NestOp, Kernel: KernelOp, Extern: ExternOp})


def to_fx(program: Program, *, values: Mapping[str, Any] | None = None) -> fx.GraphModule:
    """Return the GraphModule view of a program.

    Args:
        program: Nests and extern calls (loops), or kernels and extern calls (kernels).
        values: Fake tensors of buffers, where known; they become the nodes' recorded values.

    Example:
        >>> from intarsia_loops.index import axis, lift
        >>> from intarsia_loops.program import load, val
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


class _View(fx.GraphModule):
    """A GraphModule whose Python code is generated when it is first needed: most views are only read.

    Generating it costs more than building the graph. Everything that depends on the code asks for it first: calls
    through `forward`, text and line maps through attributes that are missing until then.
    """

    def __init__(self, root: Mapping[str, Any], graph: fx.Graph) -> None:
        self.__dict__["_is_deferred"] = True
        super().__init__(root, graph)  # type: ignore[arg-type]

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


class _Writer:
    def __init__(self, program: Program, values: Mapping[str, Any]) -> None:
        self.program, self.values = program, values
        self.graph = fx.Graph()
        self.env: dict[str, fx.Node] = {}
        self.symbols = tuple(sorted(symbols_of(program.buffers.values())))

    def graph_module(self) -> fx.GraphModule:
        program = self.program
        for name in program.inputs:
            self._note(name, self.graph.placeholder(name), ())
        for name in program.constants:
            self._note(name, self.graph.get_attr(name), ())
        for symbol in self.symbols:
            if symbol not in self.env:
                self._size_node(symbol)
        for item in program.items:
            self._item(item)
        self.graph.output(tuple([self._output(v) for v in program.outputs]))
        gm = _View(dict(program.constants), self.graph)
        is_kernels = any(isinstance(item, Kernel) for item in program.items) or program.placement is not None
        inputs = {n: program.buffers.get(n) for n in (*program.inputs, *program.constants)}
        gm.meta[_FRAME_KEY] = _Frame(
            "kernels" if is_kernels else "loops", MappingProxyType(inputs), program.facts, program.placement
        )
        return gm

    def _note(self, name: str, node: fx.Node, origins: Iterable[Any]) -> None:
        self.env[name] = node
        meta.set_origins(node, origins)
        if name in self.values:
            meta.set_value(node, self.values[name])

    def _size_node(self, symbol: str) -> None:
        for name in (*self.program.inputs, *self.program.constants):
            buffer = self.program.buffers.get(name)
            for dim, extent in enumerate(buffer.shape if buffer else ()):
                if repr(extent) == symbol:
                    node = self.graph.call_function(torch.ops.aten.sym_size.int, (self.env[name], dim))
                    self._note(symbol, node, ())
                    return
        raise InvalidArgumentError(f"no input has the size {symbol}", code="loops.arguments")

    def _item(self, item: Item) -> None:
        op = _OPS[type(item)](item, self.program.buffers, self.symbols)
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
            node = self.graph.call_function(ViewOp(value, self.symbols), args)
            meta.copy_origins(self.env[value.buffer], node)
            return node
        return self.env[repr(value)] if isinstance(value, IndexExpr) and repr(value) in self.env else value


def _frame(gm: fx.GraphModule) -> _Frame:
    """Return what a GraphModule view keeps about its program as a whole.

    Raises:
        InvalidArgumentError: The module was not made by `to_fx`.
    """
    frame = gm.meta.get(_FRAME_KEY)
    if not isinstance(frame, _Frame):
        raise InvalidArgumentError(
            "this GraphModule is no view of a loop program",
            code="loops.not_a_view",
            hints=("make it with intarsia_loops.lower or intarsia_loops.to_fx",),
        )
    return frame


def from_fx(gm: fx.GraphModule) -> Program:
    """Return the program that a GraphModule is a view of, edits to the graph included.

    Raises:
        InvalidArgumentError: The module was not made by `to_fx`, or a node is of another kind.
    """
    return _Reader(gm, _frame(gm)).program()


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
            self.names[node] = replace(target.ref, buffer=self.names[node.args[0]])  # type: ignore[index]
        elif target is operator.getitem:
            self.names[node] = self.names[node.args[0]][node.args[1]]  # type: ignore[index]
        elif target is torch.ops.aten.sym_size.int:
            self.names[node] = repr(self.buffers[self.names[node.args[0]]].shape[node.args[1]])  # type: ignore[index]
        else:
            self._unknown(node)

    def _item(self, node: fx.Node, op: ItemOp) -> None:
        now = {old: self.names[arg] for old, arg in zip(op.reads, node.args, strict=False)}  # type: ignore[index]
        made = _made(op.item)
        taken = {m: f"{node.name}_{m}" if len(made) > 1 else node.name for m in made if m in self.buffers}
        changed = {old: new for old, new in {**now, **taken}.items() if old != new}
        item = _renamed(op.item, changed) if changed else op.item
        for old, new in zip(made, _made(item), strict=True):
            if old:
                self.buffers[new] = op.buffers[old]
        self.items.append(item)
        outs = _outs(item)
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
            return size_symbol(name, self.frame.facts)
        buffer = self.buffers[name]
        return TensorRef(name, buffer.shape, buffer.strides, lift(0))


# ---- the three kinds of items -------------------------------------------------------------------------------


def _reads(item: Item) -> tuple[str, ...]:
    """Buffers read from memory, in order of first appearance."""
    if isinstance(item, Extern):
        return tuple(dict.fromkeys(r.buffer for r in item.refs()))
    if isinstance(item, Nest):
        return reads_in_order(item)
    made: set[str] = set()
    found: dict[str, None] = {}
    for step in item.steps:
        found.update(dict.fromkeys(n for n in reads_in_order(step) if n not in made))
        made.add(step.out)
    return tuple(found)


def _outs(item: Item) -> tuple[str, ...]:
    if isinstance(item, Nest):
        return (item.out,)
    return item.outs if isinstance(item, Extern) else item.writes()


def _made(item: Item) -> tuple[str, ...]:
    """Every buffer that the item defines, local ones included."""
    return tuple(s.out for s in item.steps) if isinstance(item, Kernel) else _outs(item)


def _renamed(item: Item, names: Mapping[str, str]) -> Item:
    if isinstance(item, Nest):
        return rename_buffers(item, names)
    if isinstance(item, Kernel):
        local = frozenset(names.get(n, n) for n in item.local)
        return replace(item, steps=tuple(rename_buffers(s, names) for s in item.steps), local=local)

    def moved(ref: TensorRef) -> TensorRef:
        return replace(ref, buffer=names.get(ref.buffer, ref.buffer))

    return replace(
        item,
        outs=tuple(names.get(o, o) for o in item.outs),
        args=_map_refs(item.args, moved),
        kwargs=_map_refs(item.kwargs, moved),
    )


def _map_refs(value: Any, change: Any) -> Any:
    if isinstance(value, TensorRef):
        return change(value)
    return tuple(_map_refs(v, change) for v in value) if isinstance(value, tuple) else value
