"""Following layouts: what a changed layout of one value makes of those that are computed from it."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx
from torch.utils import _pytree as pytree

from intarsia_ir import aten, meta
from intarsia_rewrites._draft import Draft, value_of

__all__ = ["Layouts"]

_OPS: Any = torch.ops.aten
_READS_MEMORY = frozenset(
    {_OPS.as_strided.default, _OPS.as_strided_scatter.default, _OPS.view.dtype, _OPS.sym_stride.int}
)


class Layouts:
    """One walk over the program that follows the layouts as they change.

    Whoever changes one overrides `visit`, or notes the old value of a node in `before` ahead of the walk. A result of
    the program, and the operand of an op whose values depend on the layout (random numbers, `as_strided`) or that can't
    view the new one, gets its old layout back.

    Args:
        draft: The program.

    Attributes:
        before: Old values of the nodes whose layout changed.
    """

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.before: dict[fx.Node, Any] = {}
        self._restored: dict[fx.Node, fx.Node] = {}  # copies in the old layout

    def run(self) -> None:
        """Visit all nodes, in program order."""
        for node in list(self.draft.graph.nodes):
            self.visit(node)

    def visit(self, node: fx.Node) -> None:
        """Give a node the layout that its operands' new ones lead to, or its operands their old ones."""
        if not any(n in self.before for n in node.all_input_nodes):
            return
        if _depends_on_layout(node) or not self.compute(node):
            node.args, node.kwargs = fx.node.map_arg(
                (node.args, node.kwargs), lambda n: self._in_old_layout(n, node) if n in self.before else n
            )

    def compute(self, node: fx.Node) -> bool:
        """Compute a node's value anew; False when it can't take operands of these layouts."""
        old = meta.value(node)
        try:
            new = value_of(node)
        except (RuntimeError, ValueError):  # a view that the new layout doesn't have
            return False
        if _strides(new) != _strides(old):
            self.before[node] = old
            meta.set_value(node, new)
        return True

    def copy(self, x: fx.Node, layout: torch.memory_format, user: fx.Node, source: fx.Node | None = None) -> fx.Node:
        """Insert a copy of `x` before `user`, with the origins of `source`; None: those of `user`."""
        return self._call(user, source or user, _OPS.clone.default, (x,), {"memory_format": layout})

    def _in_old_layout(self, operand: fx.Node, user: fx.Node) -> fx.Node:
        """Return a tensor of the same values that has the layout of old."""
        if operand not in self._restored:
            old = self.before[operand]
            order = sorted(range(old.dim()), key=lambda d: (-old.stride(d), d))
            back = [order.index(d) for d in range(old.dim())]
            straight = order == list(range(old.dim()))
            node = operand if straight else self._call(user, operand, _OPS.permute.default, (operand, order))
            node = self.copy(node, torch.contiguous_format, user, operand)
            node = node if straight else self._call(user, operand, _OPS.permute.default, (node, back))
            self._restored[operand] = node
        return self._restored[operand]

    def _call(self, user: fx.Node, source: fx.Node, target: Any, args: Any, kwargs: Any = None) -> fx.Node:
        return self.draft.insert_computed(user, target, args, kwargs or {}, source)


def _depends_on_layout(node: fx.Node) -> bool:
    return node.op == "output" or node.target in _READS_MEMORY or _draws(node)


def _draws(node: fx.Node) -> bool:
    """Tell whether a call draws numbers: attention without dropout doesn't."""
    if not aten.node_effects(node).random:
        return False
    for position, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.name == "dropout_p":
            given = node.args[position] if position < len(node.args) else argument.default_value
            return bool(node.kwargs.get("dropout_p", given) != 0)
    return True


def _strides(value: Any) -> list[Any]:
    return [v.stride() if isinstance(v, torch.Tensor) else None for v in pytree.tree_leaves(value)]
