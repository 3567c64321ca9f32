"""The rewriting of one graph: every node in order, reads through view chains, writes through their inverses.

Only tensors that share storage with something written need that; every other node is copied as it is, because
contents are always handed on with the strides that they had in the original program.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_functionalizer.builder import Builder, at_least, dense_order, same_number
from intarsia_functionalizer.libraries import (
    call_form,
    has_twins,
    is_nested,
    refs_in,
    results_of,
    shared_operands,
)
from intarsia_functionalizer.storage import Base, BaseKind, Items, Ref, Step
from intarsia_functionalizer.twins import Twin, find_twin
from intarsia_functionalizer.views import INVERSES, TURNS_INTO_VIEW
from intarsia_ir import aten as aten_dialect
from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.higher_order import HigherOrderOp

__all__ = ["Rewriter", "root_of", "shows_elements_twice"]

aten = torch.ops.aten


class Rewriter:
    """Builds the functional form of a graph.

    Args:
        source: FX(aten, effects); read only.
        mode: The mode of its fake tensors.
        fuel: Number of writes that may be rewritten; None: all. The rest stay in the graph as effects.
        subgraph: Makes the functional form of a graph of a higher-order op.

    Attributes:
        graph: The new graph; has no output node yet.
        inputs: One entry per placeholder: the Ref of a tensor, None for other values.
        placeholders: The placeholders of the new graph.
        n_rewritten: Number of writes rewritten so far.
    """

    def __init__(
        self,
        source: fx.Graph,
        mode: FakeTensorMode,
        fuel: int | None,
        subgraph: Callable[[fx.GraphModule], fx.GraphModule],
    ) -> None:
        self.source, self.fuel, self.subgraph = source, fuel, subgraph
        self.graph = fx.Graph()
        self.builder = Builder(self.graph, mode)
        self.inputs: list[Ref | None] = []
        self.n_rewritten = 0
        self._values: dict[fx.Node, Any] = {}
        self._bases: list[Base] = []
        self.placeholders: list[fx.Node] = []
        self._settled = False
        self._time = 0

    def run(self) -> Any:
        """Rewrite every node and return the argument of the output node, with Refs in place of tensors."""
        for time, node in enumerate(self.source.nodes):
            self._time = time
            if node.op == "output":
                return fx.map_arg(node.args[0], self._values.__getitem__)
            self._values[node] = self._rewrite(node)
        raise AssertionError("a verified graph has an output")

    def _rewrite(self, node: fx.Node) -> Any:
        """Add what `node` means to the new graph, and return what it is: a Ref, Items, or a node for other values."""
        if node.op != "call_function":
            return self._source(node)
        if node.target is operator.getitem:
            return self._item(node)
        effects = aten_dialect.effects(node.target)
        if effects.writes or effects.views:
            self.builder.where, self.builder.phase = meta.origins(node), meta.phase(node)
            if effects.writes and (aten_dialect.written_nodes(node) or not has_twins(node.target)):
                return self._write_op(node)
            if effects.views:
                return self._view_op(node)
        if is_nested(meta.value(node)) and not has_twins(node.target):
            self.builder.where, self.builder.phase = meta.origins(node), meta.phase(node)
            return self._library_call(node, node.target, [])
        return self._fresh(self._copy(node))

    # ---- sources, fresh tensors, views

    def _source(self, node: fx.Node) -> Any:
        """Copy a placeholder or get_attr node."""
        copy, value = self._copy(node), meta.value(node)
        kind = BaseKind.INPUT if node.op == "placeholder" else BaseKind.CONSTANT
        ref = self._new_ref(kind, copy, value) if isinstance(value, torch.Tensor) else None
        if kind is BaseKind.INPUT:
            if ref is not None:
                ref.base.position = len(self.inputs)
            self.builder.symbols.bind(value, copy)
            self.inputs.append(ref)
            self.placeholders.append(copy)
        return copy if ref is None else ref

    def _new_ref(self, kind: BaseKind, node: fx.Node | None, value: torch.Tensor) -> Ref:
        base = Base(kind, node, value)
        self._bases.append(base)
        return Ref(base, (), node, 0)

    def _copy(self, node: fx.Node) -> fx.Node:
        """Copy a node; its arguments are what their tensors hold now."""
        copy = self.graph.node_copy(node, self._argument)
        if isinstance(node.target, HigherOrderOp):
            copy.target = node.target.with_programs([self.subgraph(program) for program in node.target.programs])
        return copy

    def _argument(self, node: fx.Node) -> Any:
        return self._node(self._values[node])

    def _fresh(self, node: fx.Node) -> Any:
        """Return what a node is whose tensors are in storage of their own."""
        value = meta.value(node)
        if isinstance(value, torch.Tensor):
            return self._new_ref(BaseKind.FRESH, node, value)
        if isinstance(value, (list, tuple)):
            refs = [self._new_ref(BaseKind.FRESH, None, v) if isinstance(v, torch.Tensor) else v for v in value]
            return Items(node, refs)
        return node

    def _item(self, node: fx.Node) -> Any:
        """Pick a result of a node with several; its getitem node is copied if it still tells the truth."""
        source, position = node.args
        assert isinstance(source, fx.Node) and isinstance(position, int)
        items = self._values[source]
        if not isinstance(items, Items):
            return items[position] if isinstance(items, list) else self._copy(node)
        ref = items.refs[position]
        if not isinstance(ref, Ref):
            return self._copy(node)
        if ref.node is None and ref.version == ref.base.version:
            ref.node = self.graph.node_copy(node, lambda _: items.node)
            if ref.base.node is None:
                ref.base.node = ref.node
        return ref

    def _view_op(self, node: fx.Node) -> Any:
        """Copy a view op and note it as a step of a chain."""
        viewed = aten_dialect.viewed_nodes(node)
        if not viewed:  # a number of the program taken for a tensor, as autograd conjugates a factor: nobody shares it
            return self._fresh(self._copy(node))
        op, parent = node.target, self._values[viewed[0]]
        assert isinstance(op, OpOverload)
        first = node.args[0] if node.args else None
        if not isinstance(parent, Ref) or not isinstance(first, fx.Node) or parent is not self._values[first]:
            raise self._unsupported(f"{op} views something else than its first argument", "functionalize.view")
        last_read = parent.base.last_read
        copy, value = self._copy(node), meta.value(node)
        parent.base.last_read = last_read  # looking at a tensor isn't reading it
        args, kwargs, version = copy.args[1:], copy.kwargs, parent.base.version
        if isinstance(value, torch.Tensor):
            return Ref(parent.base, self._chain(parent, op, args, kwargs, value), copy, version)
        origins = meta.origins(node)
        steps = [Step(op, args, kwargs, item, position, value, origins) for position, item in enumerate(value)]
        return Items(copy, [Ref(parent.base, (*parent.steps, step), None, version) for step in steps])

    def _chain(self, parent: Ref, op: OpOverload, args: Any, kwargs: Any, value: torch.Tensor) -> tuple[Step, ...]:
        """Return the chain of `op(parent, *args, **kwargs)`."""
        if op is not aten.as_strided.default:
            return (*parent.steps, Step(op, args, kwargs, value, origins=self.builder.where))
        if parent.value.is_neg() or parent.value.is_conj():
            raise self._unsupported(
                "as_strided is called on a tensor with a negative or conjugate bit: its memory holds other numbers",
                "functionalize.as_strided",
            )
        # as_strided addresses the storage, whatever view it is called on; we count from the first element of the base
        offset = value.storage_offset() - parent.base.value.storage_offset()
        # where an input starts in its storage is known at run time only: an offset that the program gives is kept
        given = kwargs.get("storage_offset", args[2] if len(args) > 2 else None)
        absolute = {} if given is None or parent.base.kind is not BaseKind.INPUT else {"storage_offset": given}
        if absolute and parent.base.version:
            raise self._absolute_offset()
        layout = (list(value.shape), list(value.stride()), offset)
        return (Step(op, layout, absolute, value, origins=self.builder.where),)

    # ---- reading

    def read(self, ref: Ref) -> fx.Node:
        """Return the node that holds what `ref` holds now, with the strides of the original program."""
        base = ref.base
        base.last_read = self._time
        if ref.version != base.version or ref.node is None:
            ref.node, ref.version = self._replay(base, ref.steps), base.version
        return ref.node

    def laid_out(self, base: Base) -> fx.Node:
        """Return the present contents of a base with the strides that views of it count on."""
        if base.laid_out is None:
            assert base.node is not None
            base.laid_out = self.builder.with_strides(base.node, base.value)
        return base.laid_out

    def _replay(self, base: Base, steps: Sequence[Step]) -> fx.Node:
        """Apply view steps to the present contents of a base."""
        node = self.laid_out(base)
        path: tuple[int, ...] = ()
        for step in steps:
            path = (*path, id(step))
            if path not in base.replayed:
                base.replayed[path] = self._apply(base, step, node)
            node = base.replayed[path]
        return node

    def _apply(self, base: Base, step: Step, node: fx.Node) -> fx.Node:
        if step.op is aten.as_strided.default:
            self._check_reach(base, step)
            sizes, strides, offset = step.args
            node = self._own_memory(base)
            offset = offset + meta.value(node).storage_offset()
            return self.builder.add(step.op, (node, *self.builder.nodes((sizes, strides, offset))), {}, step.value)
        if step.item is None:
            return self.builder.add(step.op, (node, *step.args), dict(step.kwargs), step.value)
        whole = self.builder.add(step.op, (node, *step.args), dict(step.kwargs), step.results)
        return self.builder.item(whole, step.item)

    def _own_memory(self, base: Base) -> fx.Node:
        """Return the contents of a base in memory whose layout the graph decides: not an input's, not a constant's."""
        node = self.laid_out(base)
        if root_of(node).op != "call_function" and not self._settled:
            node = base.node = base.laid_out = self.builder.copy(node, base.value)
        return node

    def _check_reach(self, base: Base, step: Step) -> None:
        """Refuse an as_strided view of written memory that shows elements which the base doesn't."""
        if step.kwargs:
            raise self._absolute_offset()
        sizes, strides, offset = step.args
        last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        inside = at_least(offset, 0) and at_least(base.value.numel() - last, 1)
        if dense_order(base.value) is None or not inside:
            raise self._unsupported(
                "as_strided shows elements of the storage that the tensor it starts from doesn't have, "
                "and the storage is written",
                "functionalize.as_strided",
            )

    def _absolute_offset(self) -> UnsupportedError:
        return self._unsupported(
            "as_strided is given an offset in the storage of an input, and the storage is written",
            "functionalize.as_strided",
        )

    def _node(self, value: Any) -> Any:
        """Return the node, or nodes, that hold a value of the original graph now."""
        if isinstance(value, Ref):
            return self.read(value)
        if isinstance(value, Items):
            tensors = [ref for ref in value.refs if isinstance(ref, Ref)]
            if all(ref.version == ref.base.version for ref in tensors):
                for ref in tensors:
                    ref.base.last_read = self._time
                return value.node
            return [self.read(ref) for ref in tensors]
        if isinstance(value, list):
            return [self._node(item) for item in value]
        return value

    # ---- writing

    def _write_op(self, node: fx.Node) -> Any:
        """Rewrite an op that writes; return what the op returned."""
        op = node.target
        assert isinstance(op, OpOverload)
        bound = _bind(node)
        if torch.Tag.inplace_view in op.tags:
            return self._change_metadata(node, op, bound)
        if not has_twins(op) and not self._is_out_of_fuel():
            self.n_rewritten += 1
            return self._library_call(node, op, aten_dialect.node_effects(node).writes)
        targets = [self._targets(bound[name]) for name in aten_dialect.node_effects(node).writes]
        if self._is_out_of_fuel():
            self._settle()
            return self._returned(node, targets, self._copy(node))
        self.n_rewritten += 1
        whole = self._whole_contents(op, bound)
        if whole is not None:
            self.write(targets[0][0], whole)
            return targets[0][0]
        twin = find_twin(op)
        if twin is None:
            raise self._unsupported(f"{op} writes, and no functional op says what", "functionalize.no_twin")
        result = self._drawn(op, bound, targets[0][0])
        if result is None:
            result = self._call_twin(twin, {**_missing_defaults(op, twin), **bound}, targets[0][0])
        self._take_contents(twin, result, targets)
        return self._returned(node, targets, result)

    def _is_out_of_fuel(self) -> bool:
        return self.fuel is not None and self.n_rewritten >= self.fuel

    def _library_call(self, node: fx.Node, op: Any, writes: Sequence[str]) -> Any:
        """Call an operator of a user's library in functional form; return what it returned."""
        bound = _bind(node)
        written = {name: [*refs_in(fx.map_arg(bound.get(name), self._values.__getitem__))] for name in writes}
        targets = [ref for refs in written.values() for ref in refs]
        read = [v for name, v in bound.items() if name not in written]
        self._refuse_shared(op, targets, [*refs_in(fx.map_arg(read, self._values.__getitem__))])
        arguments = {name: fx.map_arg(value, self._argument) for name, value in bound.items()}
        nodes = call_form(self.builder, node, arguments, [ref.value for ref in targets])
        results, contents = nodes[: len(nodes) - len(targets)], nodes[len(nodes) - len(targets) :]
        for ref, new in zip(targets, contents, strict=True):
            self.write(ref, new)
        fresh = iter([self._new_ref(BaseKind.FRESH, result, meta.value(result)) for result in results])
        return results_of(op, meta.value(node), written, lambda value: self._own_result(value, fresh))

    def _own_result(self, value: Any, fresh: Iterator[Ref]) -> Any:
        """Return what stands for one result of a call: a Ref for a tensor, a node or a number for a number."""
        if isinstance(value, torch.Tensor):
            return next(fresh)
        if isinstance(value, (list, tuple)):
            return [self._own_result(item, fresh) for item in value]
        return self.builder.nodes(value)

    def _refuse_shared(self, op: OpOverload, written: Sequence[Ref], others: Sequence[Ref]) -> None:
        if shared_operands(written, others) is not None:
            raise self._unsupported(
                f"{op} writes an operand that shares elements with another", "functionalize.shared_operands",
                "pass a copy of one of them",
            )  # fmt: skip
        if any(shows_elements_twice(ref.value) for ref in written):
            raise self._unsupported(
                f"{op} writes an operand that shows elements several times", "functionalize.shared_operands"
            )

    def _targets(self, argument: Any) -> list[Ref]:
        """Return the tensors that a written argument stands for."""
        items = argument if isinstance(argument, (list, tuple)) else [argument]
        values = [self._values[item] for item in items]
        refs = [ref for value in values for ref in (value.refs if isinstance(value, Items) else [value])]
        if items is argument:
            for ref in refs:
                ref.base.in_list = True
        return refs

    def _whole_contents(self, op: OpOverload, bound: dict[str, Any]) -> fx.Node | None:
        """Return the new contents, before cast and broadcast, if the op doesn't look at the old ones."""
        if op is aten.copy_.default:
            return self.read(self._values[bound["src"]])
        if op is aten.fill_.Tensor:
            return self.read(self._values[bound["value"]])
        if op in (aten.fill_.Scalar, aten.zero_.default):
            number = fx.map_arg(bound.get("value", 0), self._argument)
            return self.builder.call(aten.full_like.default, self.read(self._values[bound["self"]]), number)
        return None

    def _drawn(self, op: OpOverload, bound: dict[str, Any], target: Ref) -> fx.Node | None:
        """Return what a random op draws where its twin would draw other numbers, or None."""
        value = target.value
        if op is aten.bernoulli_.float:
            # it fills memory from the first element to the last; the twin's result is row-major whatever it's given
            order = _memory_order(value)
            if order == list(range(value.dim())):
                return None
            turned = self.builder.call(aten.permute.default, self.read(target), order)
            numbers = {name: fx.map_arg(bound[name], self._argument) for name in ("p", "generator") if name in bound}
            drawn = self.builder.call(aten.bernoulli.p, turned, numbers.pop("p", 0.5), **numbers)
            return self.builder.call(aten.permute.default, drawn, [order.index(dim) for dim in range(len(order))])
        if op is aten.normal_.default and not value.is_contiguous() and torch.empty_like(value).is_contiguous():
            size = value.numel()
            if not isinstance(size, int) or size >= 16:  # contiguous memory is filled with other numbers from there on
                message = f"{op} fills memory that has gaps, which no functional op does"
                raise self._unsupported(message, "functionalize.no_twin")
        return None

    def _call_twin(self, twin: Twin, bound: dict[str, Any], target: Ref) -> fx.Node:
        """Add the call of a functional twin."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for position, parameter in enumerate(twin.op._schema.arguments):
            source = twin.parameters.get(parameter.name)
            if source is None or source not in bound:
                continue
            value = fx.map_arg(bound[source], self._argument)
            if parameter.kwarg_only or len(args) != position:
                kwargs[parameter.name] = value
            else:
                args.append(value)
        inherited = {name: getattr(target.value, name) for name in twin.inherited}
        return self.builder.call(twin.op, *args, **kwargs, **inherited)

    def _take_contents(self, twin: Twin, result: fx.Node, targets: Sequence[list[Ref]]) -> None:
        """Write the results of a twin to the tensors that they are the new contents of."""
        single = len(twin.op._schema.returns) == 1
        for position, refs in enumerate(targets):
            contents = result if single else self.builder.item(result, twin.n_own + position)
            if isinstance(meta.value(contents), torch.Tensor):
                self.write(refs[0], contents)
            else:  # a list of tensors, updated together
                for number, ref in enumerate(refs):
                    self.write(ref, self.builder.item(contents, number))

    def _returned(self, node: fx.Node, targets: Sequence[list[Ref]], result: fx.Node) -> Any:
        """Return what the original op returned: tensors that it wrote, or its own results, the first of `result`."""
        assert isinstance(node.target, OpOverload)
        returns = node.target._schema.returns
        if not returns:
            return None
        if all(r.alias_info is not None for r in returns):
            refs = [refs[0] for refs in targets]
            return refs[0] if len(returns) == 1 else refs
        if len(returns) == 1:
            value = meta.value(result)
            return self._fresh(self.builder.item(result, 0) if isinstance(value, (list, tuple)) else result)
        values = meta.value(result)[: len(returns)]
        return Items(result, [self._new_ref(BaseKind.FRESH, None, value) for value in values])

    def _change_metadata(self, node: fx.Node, op: OpOverload, bound: dict[str, Any]) -> Ref:
        """Rewrite an op that turns its argument into a view of itself: the Ref changes, as the object did."""
        ref: Ref = self._values[bound["self"]]
        if op is aten.detach_.default:
            return ref
        view = TURNS_INTO_VIEW.get(op)
        if view is None:
            raise self._unsupported(f"{op} gives a tensor another storage", "functionalize.storage")
        if any(ref is other for other in self.inputs):
            raise self._unsupported(
                f"{op} changes the shape or strides of an input, which its owner would see", "functionalize.metadata"
            )
        args, kwargs = fx.map_arg((node.args[1:], node.kwargs), self._argument)
        ref.steps, ref.version = self._chain(ref, view, args, kwargs, meta.value(node)), -1
        return ref

    def write(self, ref: Ref, new: fx.Node) -> None:
        """Make `new`, cast and broadcast to what `ref` is, its contents; everything else in the storage stays."""
        base = ref.base
        if base.kind is BaseKind.CONSTANT:
            raise self._unsupported(
                "a tensor that the graph holds as a constant is written",
                "functionalize.constant",
                "make it an input of the graph, as a front end does with parameters and buffers",
            )
        if any(type(size) is int and size == 0 for size in ref.value.shape):
            return  # there is no element to write
        new = self._conform(new, ref.value)
        if shows_elements_twice(ref.value) or any(step.op not in INVERSES for step in ref.steps):
            new = self._scatter(ref, new)
        else:
            parents = [self._replay(base, ref.steps[:depth]) for depth in range(len(ref.steps))]
            for step, parent in zip(reversed(ref.steps), reversed(parents), strict=True):
                new = INVERSES[step.op](self.builder, step, parent, new)
        if base.first_write < 0:
            base.first_write = self._time
        base.node, base.laid_out, base.replayed = new, None, {}
        base.version += 1

    def _conform(self, new: fx.Node, value: torch.Tensor) -> fx.Node:
        """Cast and broadcast new contents."""
        have = meta.value(new)
        if have.dtype != value.dtype or have.device != value.device:
            new = self.builder.call(aten._to_copy.default, new, dtype=value.dtype, device=value.device)
        missing = value.dim() - have.dim()
        if all(type(n) is int and n == 1 for n in value.shape[:missing]):  # expanded, it would get strides of 0 there
            for _ in range(missing):
                new = self.builder.call(aten.unsqueeze.default, new, 0)
            missing = 0
        if missing == 0 and all(map(same_number, meta.value(new).shape, value.shape)):
            return new
        return self.builder.call(aten.expand.default, new, list(value.shape))

    def _scatter(self, ref: Ref, new: fx.Node) -> fx.Node:
        """Write through the storage: for views that have no local inverse, or that show elements several times."""
        base, value = ref.base, ref.value
        sizes, strides = list(value.shape), list(value.stride())
        for dim in reversed(range(value.dim())):
            if same_number(strides[dim], 0) and not same_number(sizes[dim], 1):
                # all copies of an element take the same value, or eager would have refused the write
                new = self.builder.call(aten.select.int, new, dim, 0)
                del sizes[dim], strides[dim]
        for step in ref.steps:
            if step.op is aten.as_strided.default:
                self._check_reach(base, step)
        offset = value.storage_offset() - base.value.storage_offset()
        if dense_order(base.value) is None:
            flat = self.builder.flatten(self.laid_out(base), base.value)
            flat = self.builder.call(aten.as_strided_scatter.default, flat, new, sizes, strides, offset)
            return self.builder.show_flat(flat, base.value)
        memory = self._own_memory(base)
        offset = offset + meta.value(memory).storage_offset()
        return self.builder.call(aten.as_strided_scatter.default, memory, new, sizes, strides, offset)

    # ---- out of fuel

    def _settle(self) -> None:
        """Make memory hold the present contents of everything, once, so that later effects can act on it."""
        if self._settled:
            return
        self._settled = True
        for base in self._bases:
            if base.version == 0:
                continue
            contents = self.laid_out(base)
            if base.kind is BaseKind.INPUT:
                memory = self.placeholders[base.position]
                self.builder.call(aten.copy_.default, memory, contents)
            else:
                memory = self.builder.copy(contents, base.value)
            base.node, base.laid_out, base.replayed, base.version = memory, None, {}, base.version + 1

    def _unsupported(self, explanation: str, code: str, *hints: str) -> UnsupportedError:
        return UnsupportedError(explanation, code=code, where=self.builder.where, hints=hints)


def root_of(node: fx.Node) -> fx.Node:
    """Return the node whose memory `node` shows: itself, unless it's a view; one of several results is its own."""
    while node.op == "call_function":
        viewed = aten_dialect.viewed_nodes(node)
        if not viewed or (node.target is operator.getitem and not aten_dialect.viewed_nodes(viewed[0])):
            break
        node = viewed[0]
    return node


def _bind(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of a call by the names of the parameters."""
    assert isinstance(node.target, OpOverload)
    names = [argument.name for argument in node.target._schema.arguments if not argument.kwarg_only]
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _memory_order(value: torch.Tensor) -> list[int]:
    """Return the dimensions from outermost to innermost in memory; as they are where that isn't known."""
    strides = list(value.stride())
    if not all(isinstance(number, int) for number in (*strides, *value.shape)):
        return list(range(value.dim()))
    places = iter(sorted((d for d, n in enumerate(value.shape) if n != 1), key=lambda dim: -strides[dim]))
    return [dim if size == 1 else next(places) for dim, size in enumerate(value.shape)]


def _missing_defaults(op: OpOverload, twin: Twin) -> dict[str, Any]:
    """Return the defaults of `op` that its twin doesn't have, by the names of the parameters of `op`."""
    defaults = {a.name: a.default_value for a in op._schema.arguments if a.has_default_value()}
    required = {a.name for a in twin.op._schema.arguments if not a.has_default_value()}
    return {
        source: defaults[source] for name, source in twin.parameters.items() if name in required and source in defaults
    }


def shows_elements_twice(value: torch.Tensor) -> bool:
    """Tell whether some dimension of more than one element has stride 0."""
    return any(
        same_number(stride, 0) and not (isinstance(size, int) and size <= 1)
        for size, stride in zip(value.shape, value.stride(), strict=True)
    )
