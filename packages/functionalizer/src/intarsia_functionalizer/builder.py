"""Writes nodes of the new graph, with the value of each computed on fake tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_ir import meta
from intarsia_ir.records import Origin
from intarsia_recorder import MetaCache, SymbolTable

__all__ = ["Builder", "at_least", "dense_order", "same_number"]

aten = torch.ops.aten
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Builder:
    """Adds nodes at the end of one graph.

    Attributes:
        where: Origins of new nodes.
        phase: Phase of new nodes.
    """

    def __init__(self, graph: fx.Graph, mode: FakeTensorMode, cache: MetaCache | None = None) -> None:
        self.graph, self.mode = graph, mode
        self.cache = cache or MetaCache(mode)
        self.symbols = SymbolTable(graph, mode.shape_env)
        self.where: tuple[Origin, ...] = ()
        self.phase = "forward"

    def call(self, op: OpOverload, *args: Any, **kwargs: Any) -> fx.Node:
        """Add `op(*args, **kwargs)`; arguments hold nodes, symbolic numbers and constants."""
        args, kwargs = self.nodes(args), self.nodes(kwargs)
        value = self.cache.call(op, *fx.map_arg((args, kwargs), meta.value))
        return self.add(op, args, kwargs, value)

    def add(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any], value: Any) -> fx.Node:
        """Add a call whose value is known."""
        node = self.graph.call_function(op, tuple(args), kwargs)
        meta.set_value(node, value)
        meta.set_origins(node, self.where)
        if self.phase != "forward":
            meta.set_phase(node, self.phase)
        return node

    def item(self, node: fx.Node, position: int) -> fx.Node:
        """Add the item at `position` of a node with several results."""
        return self.add(operator.getitem, (node, position), {}, meta.value(node)[position])

    def reshape(self, node: fx.Node, shape: Sequence[Any]) -> fx.Node:
        """Add `node` with another shape: as a view where its strides allow that, of a copy otherwise."""
        shape = list(shape)
        try:
            return self.call(aten.view.default, node, shape)
        except (RuntimeError, ValueError):
            # the strides don't allow it; an op that raised has added no node
            copy = self.call(aten.clone.default, node, memory_format=torch.contiguous_format)
            return self.call(aten.view.default, copy, shape)

    def with_strides(self, node: fx.Node, like: torch.Tensor) -> fx.Node:
        """Add a node with the values of `node` and the strides of `like`, unless it has them already."""
        return node if _same_strides(meta.value(node), like) else self.copy(node, like)

    def copy(self, node: fx.Node, like: torch.Tensor) -> fx.Node:
        """Add a copy of `node`, in memory of its own, with the strides of `like`."""
        if any(isinstance(size, int) and size == 0 for size in like.shape):  # nothing to copy, whatever the strides
            return self.call(aten.new_empty_strided.default, node, list(like.shape), list(like.stride()))
        order = dense_order(like)
        if order is None:
            return self.show_flat(self.flatten(node, like), like)
        # a dense layout is a permutation of a contiguous one
        outer_first = self.call(aten.permute.default, node, order)
        copy = self.call(aten.clone.default, outer_first, memory_format=torch.contiguous_format)
        return self.call(aten.permute.default, copy, [order.index(dim) for dim in range(len(order))])

    def flatten(self, node: fx.Node, like: torch.Tensor) -> fx.Node:
        """Add a flat piece of memory that holds the elements of `node` where the strides of `like` put them.

        For layouts with gaps, and with elements shown several times, which no other op makes.
        """
        sizes, strides = list(like.shape), list(like.stride())
        reach = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        zeros = self.call(aten.new_zeros.default, node, [reach])
        return self.call(aten.as_strided_scatter.default, zeros, node, sizes, strides, 0)

    def show_flat(self, flat: fx.Node, like: torch.Tensor) -> fx.Node:
        """Add the view of flat memory that has shape and strides of `like`."""
        return self.call(aten.as_strided.default, flat, list(like.shape), list(like.stride()), 0)

    def nodes(self, argument: Any) -> Any:
        """Return `argument` with nodes in place of symbolic numbers."""
        if isinstance(argument, _SYMBOLIC):
            self.symbols.where = self.where
            return self.symbols.node(argument)
        if isinstance(argument, tuple):
            return tuple([self.nodes(item) for item in argument])
        if isinstance(argument, list):
            return [self.nodes(item) for item in argument]
        if isinstance(argument, dict):
            return {key: self.nodes(item) for key, item in argument.items()}
        return argument


def same_number(a: Any, b: Any) -> bool:
    """Tell whether two sizes are known to be equal, without asking (and so recording) anything new."""
    if a is b:
        return True
    a, b = (x.node.expr if isinstance(x, _SYMBOLIC) else x for x in (a, b))  # a symbol may have become a number
    return bool(a == b)


def at_least(number: Any, bound: int) -> bool:
    """Tell whether a size or a number made of sizes is known to be `bound` or more, without asking anything new."""
    if isinstance(number, int):
        return number >= bound
    return bool((number.node.expr - bound).expand().is_nonnegative)


def _same_strides(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compare strides where they matter: not in dimensions of at most one element, not in empty tensors."""
    if any(isinstance(size, int) and size == 0 for size in a.shape):
        return True
    matter = [not (isinstance(size, int) and size <= 1) for size in a.shape]
    return all(same_number(x, y) for x, y, m in zip(a.stride(), b.stride(), matter, strict=True) if m)


def dense_order(like: torch.Tensor) -> list[int] | None:
    """Return the dimensions from outermost to innermost in memory, or None when memory has gaps or overlaps."""
    ones = [dim for dim, size in enumerate(like.shape) if isinstance(size, int) and size == 1]
    rest = [dim for dim in range(like.dim()) if dim not in ones]
    if not all(isinstance(like.stride(dim), int) and isinstance(like.size(dim), int) for dim in rest):
        return _contiguous_order(like)
    strides, expected = list(like.stride()), 1
    rest.sort(key=lambda dim: -strides[dim])
    for dim in reversed(rest):
        if strides[dim] != expected:
            return None
        expected *= like.size(dim)
    if not all(isinstance(strides[dim], int) for dim in ones):
        return ones + rest
    # a dimension of one element is put where a new tensor gives it the stride that it has, if there is such a place
    return sorted(range(like.dim()), key=lambda dim: (-strides[dim], dim in ones))


def _contiguous_order(like: torch.Tensor) -> list[int] | None:
    """Return the order of a tensor of symbolic sizes if its strides spell out that it's contiguous."""
    expected: Any = 1
    for dim in reversed(range(like.dim())):
        if not same_number(like.stride(dim), expected):
            return None
        expected = expected * like.size(dim)
    return list(range(like.dim()))
