"""`associative_scan`: recorded as the operations of a scan in a logarithmic number of steps.

Terms: `combine(left, right)` is associative; item `i` of the result combines items `0 ... i` of the input, in order.
Phases: neighbours are combined, the result is scanned, which gives all odd items; one more combination gives the even
ones. The user's function sees many items in one tensor, where torch's own sees them one at a time (by `vmap`). That is
the same for operators that work element by element on the items and on numbers; anything else breaks.

Source: G. Blelloch, Prefix sums and their applications, 1990.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import TYPE_CHECKING

import torch

from intarsia_ir import meta
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import operators
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.sequences import Items, List, Slice, Tuple
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["call_scan"]


_ELEMENTWISE = """
    abs add clamp clip cos div exp expm1 floor_divide ge gt le log log1p logaddexp logical_and logical_not logical_or
    lt maximum minimum mul multiply ne neg negative eq pow reciprocal relu rsqrt sigmoid sign sin sqrt square sub
    subtract tanh true_divide truediv where and_ or_ xor
"""
_BY_ELEMENT = frozenset(_ELEMENTWISE.split())
_NAMES = ("combine_fn", "xs", "dim", "reverse", "combine_mode")


def call_scan(
    plugin: Recording, tx: Tracer, function: FunctionType, args: Sequence[Value], keywords: Keywords
) -> Value | None:
    """Model a call of `associative_scan`; None when `function` is another."""
    if (function.__module__, function.__name__) != ("torch._higher_order_ops.associative_scan", "associative_scan"):
        return None
    given = {"reverse": Const(False), "combine_mode": Const("pointwise"), **dict(zip(_NAMES, args)), **keywords}
    if len(args) > len(_NAMES) or sorted(given) != sorted(_NAMES):
        raise Break("tracer.exception", "associative_scan is called with other arguments")
    combine, xs, dim, reverse, mode = (given[name] for name in _NAMES)
    leaves = _leaves(xs)
    if mode.as_python() == "pointwise" and leaves[0].fake.device.type == "cpu":
        raise Break("tracer.operation_raised", "associative_scan of tensors on the CPU needs combine_mode='generic'")
    axis, n_dims = operators.index(tx, dim), leaves[0].fake.dim()
    if type(axis) is not int or not -n_dims <= axis < n_dims:
        raise Break("tracer.operation_raised", f"associative_scan along dimension {axis} of {n_dims}")
    scan = _Scan(plugin, tx, combine, xs)
    flipped, rows = do.truth(tx, reverse), scan.moved(leaves, axis % n_dims, 0)
    found = scan.flip(scan.run(scan.flip(rows))) if flipped else scan.run(rows)
    return scan.structured(scan.moved(found, 0, axis % n_dims))


def _leaves(xs: Value) -> list[TensorValue]:
    """Return the tensors: one, or those of a tuple or list."""
    items = list(xs.items) if isinstance(xs, Items) and xs.type() in (tuple, list) else [xs]
    leaves = [item for item in items if isinstance(item, TensorValue)]
    if len(leaves) < len(items) or len({str(leaf.fake.shape) for leaf in leaves}) != 1 or not leaves[0].fake.dim():
        raise Break("tracer.call", "associative_scan takes tensors of one shape here, in a tuple or list at most")
    return leaves


class _Scan:
    """One call: the function and the structure of its operands. What is scanned lies first, as in eager's results."""

    def __init__(self, plugin: Recording, tx: Tracer, combine: Value, xs: Value) -> None:
        self.plugin, self.tx, self.combine, self.xs = plugin, tx, combine, xs

    def run(self, items: Sequence[Value]) -> list[Value]:
        """Scan along the first dimension."""
        n = int(operators.index(self.tx, self.tx.live.from_python(_fake(items[0]).shape[0])))
        if n == 0:
            raise Break("tracer.operation_raised", "associative_scan along a dimension of size 0")
        if n == 1:
            return self._part(items, 0, 1)
        paired = self._combined(self._part(items, 0, n - 1, 2), self._part(items, 1, n, 2))
        odd = self.run(paired)
        first = self._part(items, 0, 1)
        if n == 2:
            return self._joined(first, odd)
        even = self._combined(self._part(odd, 0, (n - 1) // 2), self._part(items, 2, n, 2))
        even = self._joined(first, even)
        if n % 2 == 0:
            return self._interleaved(even, odd)
        return self._joined(self._interleaved(self._part(even, 0, n // 2), odd), self._part(even, n // 2, n // 2 + 1))

    def structured(self, leaves: Sequence[Value]) -> Value:
        """Return tensors in the structure of the input."""
        if isinstance(self.xs, TensorValue):
            return leaves[0]
        return Tuple(leaves) if self.xs.type() is tuple else List(leaves)

    def moved(self, items: Sequence[Value], dim: int, to: int) -> list[Value]:
        """Move a dimension."""
        return [item if dim == to else self._record(torch.movedim, item, Const(dim), Const(to)) for item in items]

    def flip(self, items: Sequence[Value]) -> list[Value]:
        """Turn the order."""
        return [self._record(torch.flip, item, Tuple([Const(0)])) for item in items]

    def _combined(self, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        """Call the user's function on many items at once, and look at what it did."""
        last = next(iter(reversed(self.plugin.scopes.graph.nodes)))
        result = do.call(self.tx, self.combine, [self.structured(left), self.structured(right)], {})
        found = _leaves(result)
        alike = [
            (str(f.fake.shape), f.fake.dtype) == (str(_fake(a).shape), _fake(a).dtype) for f, a in zip(found, left)
        ]
        if len(found) != len(left) or not all(alike):
            raise Break("tracer.call", "the function of an associative_scan gives other shapes or types than it takes")
        known = {item.node for item in (*left, *right) if isinstance(item, TensorValue)}
        for node in reversed(list(_after(self.plugin.scopes.graph, last))):
            self._check(node, known)
            known.add(node)
        return list(found)

    def _check(self, node: torch.fx.Node, known: set[torch.fx.Node]) -> None:
        """Break at what isn't done element by element, on items or numbers."""
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if node.op == "placeholder" and meta.value(node).dim() == 0:
            return
        others = [arg for arg in node.all_input_nodes if arg not in known and meta.value(arg).dim()]
        if node.op not in ("call_function", "call_method") or name not in _BY_ELEMENT or others:
            raise Break("tracer.call", f"the function of an associative_scan isn't element by element: {node}")

    def _part(self, items: Sequence[Value], start: int, stop: int, step: int = 1) -> list[Value]:
        """Return a slice."""
        key = Tuple([Slice([Const(start), Const(stop), Const(step)])])
        return [self._record(operator.getitem, item, key) for item in items]

    def _joined(self, first: Sequence[Value], second: Sequence[Value]) -> list[Value]:
        return [self._record(torch.cat, Tuple(both)) for both in zip(first, second)]

    def _interleaved(self, even: Sequence[Value], odd: Sequence[Value]) -> list[Value]:
        stacked = [self._record(torch.stack, Tuple(both), Const(1)) for both in zip(even, odd)]
        return [self._record(torch.flatten, s, Const(0), Const(1)) for s in stacked]

    def _record(self, function: object, *args: Value) -> Value:
        return self.plugin.record(self.tx, "call_function", function, args, {})


def _fake(value: Value) -> torch.Tensor:
    assert isinstance(value, TensorValue)
    fake: torch.Tensor = value.fake
    return fake


def _after(graph: torch.fx.Graph, last: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """Yield the nodes behind one, the latest first."""
    for node in reversed(graph.nodes):
        if node is last:
            return
        yield node
