"""What each output of a rewritten graph is to the caller, and which nodes the graph has to return for that.

Rules, in this order, for an output that is a tensor with base B and chain C:
  B an input, C empty        InputItself: the caller's own object
  B an input                 AliasOfInput: the view is made from the caller's tensor, after the writes
  B a constant               Constant: the tensor that the graph module holds, or a view of it
  several objects on B       the contents of B are one result; C empty: Fresh, else AliasOfOutput
  C shows B with gaps        the same, because a result of its own would have to have those gaps
  C conjugates or negates    the same, because memory of a result holds the numbers themselves
  the tangent is B's         the same: the view was made where gradients were off, of a base that has them
  otherwise                  Fresh: the view itself is the result
No two storages share a result, and no result of a Fresh output is memory of an input: a copy is made instead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from intarsia_functionalizer.builder import dense_order
from intarsia_functionalizer.rewriter import Rewriter, root_of, shows_elements_twice
from intarsia_functionalizer.storage import Base, BaseKind, Ref, Step, layout_of
from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import AliasOfInput, AliasOfOutput, Constant, Fresh, InputItself, OutputSpec, ViewStep, Write

__all__ = ["Outputs", "describe_outputs"]

aten = torch.ops.aten


@dataclass(slots=True)
class Outputs:
    """The results of a graph and what they are for."""

    results: list[fx.Node] = field(default_factory=list)
    specs: list[OutputSpec] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)


def describe_outputs(
    rewriter: Rewriter,
    values: Sequence[Any],
    requires_grad: Sequence[bool],
    root: torch.nn.Module,
    of_bases: Collection[int] = (),
) -> Outputs:
    """Return results, output specs and writes of a rewritten graph.

    Args:
        rewriter: After its run; nodes may be added.
        values: One entry per output: a Ref, a node of the new graph, or a Python constant.
        requires_grad: Of each output, as recorded.
        root: Holds the constants.
        of_bases: Numbers of outputs whose base is a result, whatever else is.
    """
    return _Describer(rewriter, values, root).describe(requires_grad, of_bases)


class _Describer:
    """Collects results; every result serves at least one purpose."""

    def __init__(self, rewriter: Rewriter, values: Sequence[Any], root: torch.nn.Module) -> None:
        self.rewriter, self.values, self.root = rewriter, values, root
        self.outputs = Outputs()
        self._positions: dict[fx.Node, int] = {}
        self._claims: dict[fx.Node, Base] = {}
        self._shared: dict[int, bool] = {}

    def describe(self, requires_grad: Sequence[bool], of_bases: Collection[int]) -> Outputs:
        self._write_inputs()
        objects: dict[int, dict[int, Ref]] = {}
        for value in self.values:
            if isinstance(value, Ref):
                objects.setdefault(id(value.base), {})[id(value)] = value
        for base, refs in objects.items():
            (first, *others) = refs.values()
            view = bool(first.steps) and (dense_order(first.value) is None or _has_bits(first.value))
            self._shared[base] = bool(others) or view
        for position in of_bases:
            if isinstance(self.values[position], Ref):
                self._shared[id(self.values[position].base)] = True
        for value, grad in zip(self.values, requires_grad, strict=True):
            self.outputs.specs.append(self._spec(value, grad))
        return self.outputs

    def _write_inputs(self) -> None:
        """Return the new contents of each written input, in the order of the first writes."""
        written = [ref.base for ref in self.rewriter.inputs if ref is not None and self._is_written(ref.base)]
        for base in written:
            if shows_elements_twice(base.value):
                raise UnsupportedError(
                    "an input is written that shows an element of memory several times, as an expanded tensor does",
                    code="functionalize.overlap",
                    where=self.rewriter.builder.where,
                    hints=("pass a copy of it",),
                )
        changed = {self.rewriter.placeholders[base.position] for base in written}
        for base in sorted(written, key=lambda base: base.first_write):
            node = base.node
            assert node is not None
            if root_of(node) in changed:
                # copied before any input changes: the epilogue writes one input after the other
                node = self.rewriter.builder.copy(node, meta.value(node))
            self.outputs.writes.append(Write(base.position, self._position(node)))

    def _is_written(self, base: Base) -> bool:
        return base.version > 0 and base.node is not self.rewriter.placeholders[base.position]

    def _spec(self, value: Any, requires_grad: bool) -> OutputSpec:
        if not isinstance(value, Ref):
            return Fresh(self._position(value)) if isinstance(value, fx.Node) else Constant(value)
        if value.value.layout is not torch.strided:
            raise UnsupportedError(
                f"an output has the layout {value.value.layout}",
                code="functionalize.layout",
                where=self.rewriter.builder.where,
            )
        base = value.base
        if base.kind is BaseKind.INPUT:
            if not value.steps:
                return InputItself(base.position)
            return AliasOfInput(base.position, _relative(value), _view_steps(value, False), requires_grad)
        if base.kind is BaseKind.CONSTANT:
            return Constant(self._constant(value))
        if not self._shared[id(base)]:
            return Fresh(self._own_result(value), tuple(value.value.stride()), requires_grad)
        position = self._own_result(Ref(base))
        if not value.steps:
            return Fresh(position, tuple(base.value.stride()), requires_grad)
        return AliasOfOutput(position, _relative(value), _view_steps(value, requires_grad), requires_grad)

    def _own_result(self, ref: Ref) -> int:
        """Return the position of a result that holds what `ref` holds, in memory that no other storage's result has."""
        node = self.rewriter.read(ref)
        owner = self._claims.setdefault(root_of(node), ref.base)
        if owner is not ref.base or root_of(node).op != "call_function":
            self.rewriter.builder.where = meta.origins(node) or self.rewriter.builder.where
            node = self.rewriter.builder.copy(node, ref.value)
            self._claims[root_of(node)] = ref.base
            if not ref.steps:
                ref.base.node = ref.base.laid_out = node
            ref.node, ref.version = node, ref.base.version
        return self._position(node)

    def _position(self, node: fx.Node) -> int:
        if node not in self._positions:
            self._positions[node] = len(self.outputs.results)
            self.outputs.results.append(node)
        return self._positions[node]

    def _constant(self, ref: Ref) -> torch.Tensor:
        """Return the tensor that the graph module holds, or a view of it."""
        node = ref.base.node
        assert node is not None
        tensor: Any = self.root
        for name in str(node.target).split("."):
            tensor = getattr(tensor, name)
        for step in ref.steps:
            if any(isinstance(leaf, fx.Node) for leaf in (*step.args, *step.kwargs.values())):
                raise UnsupportedError(
                    "an output is a view of a constant with a size that isn't fixed",
                    code="functionalize.constant",
                    where=step.origins,
                )
            with unset_fake_temporarily():
                tensor = step.op(tensor, *step.args, **step.kwargs)
            tensor = tensor if step.item is None else tensor[step.item]
        return tensor  # type: ignore[no-any-return]


def _has_bits(value: torch.Tensor) -> bool:
    return value.is_conj() or value.is_neg()


def _relative(ref: Ref) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
    """Return the layout of a view, its offset counted from the first element of the base."""
    shape, strides, offset = layout_of(ref.value)
    return shape, strides, offset - ref.base.value.storage_offset()


def _view_steps(ref: Ref, requires_grad: bool) -> tuple[ViewStep, ...]:
    """Return the chain as plain data; empty when only the layout can say it.

    What requires grad came through no `detach` of the program's: a tensor subclass recorded it, below autograd.
    """
    if any(step.op is aten.as_strided.default and not step.kwargs for step in ref.steps):
        return ()  # its offset counts from the first element of the base
    ops = [aten.alias.default if requires_grad and s.op is aten.detach.default else s.op for s in ref.steps]
    pairs = zip(ops, ref.steps, strict=True)
    return tuple(ViewStep(str(op), _plain_arguments(step), step.item) for op, step in pairs)


def _plain_arguments(step: Step) -> tuple[Any, ...]:
    """Return the arguments behind the tensor by position, with numbers in place of nodes."""
    schema = step.op._schema.arguments[1:]
    given = {**dict(zip([a.name for a in schema], step.args, strict=False)), **step.kwargs}
    last = max((n for n, a in enumerate(schema) if a.name in given), default=-1)
    values = [given.get(a.name, a.default_value) for a in schema[: last + 1]]
    return tuple(fx.map_arg(values, meta.value))
