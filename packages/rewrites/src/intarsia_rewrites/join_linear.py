"""`join_linear`: products of one matrix with several known ones become one product, of which each takes its part.

    %1 = aten.addmm.default(%a, %x, %u)               %w = aten.cat.default([%u, %v], 1)
    %2 = aten.addmm.default(%b, %x, %v)         ->    %c = aten.cat.default([%a, %b])
                                                      %3 = aten.addmm.default(%c, %x, %w)
                                                      %1 = aten.slice.Tensor(%3, 1, 0, n)
                                                      %2 = aten.slice.Tensor(%3, 1, n, n + m)

Queries, keys and values of attention, and the two halves of a gated layer, read one input: one product reads it once.
It pays where the joined weights are computed ahead, which is `fold_values`' part.

Side conditions. Weights, and biases, are known: computed from inputs whose values stay. Either each has one bias for
each column or none has any, not scaled; one element type. Parts are views, whose rows lie further apart: what can't
view them so, and a result of the program, gets a copy. Law: the columns of a product are computed apart; in floats the
library may add them up in another order, so that they differ by a few units in the last place of the sum of magnitudes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_rewrites._draft import Draft
from intarsia_rewrites._known import known_nodes
from intarsia_rewrites._layouts import Layouts
from intarsia_rewrites._rules import is_static, tensor_of

__all__ = ["join_linear"]

_OPS: Any = torch.ops.aten
_TURNED = frozenset({_OPS.t.default, _OPS.permute.default, _OPS.transpose.int})


def join_linear(
    gm: fx.GraphModule, *, known: Collection[str], fuel: int | None = None, check: bool = True
) -> fx.GraphModule:
    """Return `gm` with its products of one matrix with known ones joined.

    Args:
        gm: FX(aten), pure, with fake values on its nodes (`meta["val"]`).
        known: Names of the inputs whose values stay: weights of a frozen model.
        fuel: Number of groups that may be joined, in program order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph; the given one when there is nothing to do.

    Raises:
        VerifyError: `gm` isn't FX(aten), pure.
        InvalidArgumentError: `fuel` is negative.

    Example:
        >>> from intarsia_ir.aten import parse_ir
        >>> gm = parse_ir('''// dialect: aten 2
        ... graph(%x: f32[2, 4], %u: f32[4, 3], %v: f32[4, 5]) {
        ...   %0: f32[2, 3] = aten.mm.default(%x, %u)
        ...   %1: f32[2, 5] = aten.mm.default(%x, %v)
        ...   %2: f32[2, 3] = aten.relu.default(%0)
        ...   %3: f32[2, 5] = aten.relu.default(%1)
        ...   return (%2, %3)
        ... }
        ... ''')
        >>> joined = join_linear(gm, known={"u", "v"})
        >>> [str(n.target) for n in joined.graph.nodes if n.op == "call_function"][:3]
        ['aten.cat.default', 'aten.mm.default', 'aten.slice.Tensor']
    """
    draft = Draft(gm, fuel, check)
    layouts = Layouts(draft)
    for products in _groups(draft.graph, known_nodes(draft.graph, known)):
        if draft.burn("joined"):
            _join(draft, products, layouts)
    if layouts.before:
        layouts.run()
    return draft.finish()


def _groups(graph: fx.Graph, constants: set[fx.Node]) -> list[list[fx.Node]]:
    """Return the products that can be joined, those of each matrix in program order."""
    groups: dict[Any, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "call_function" and node not in constants and (key := _key(node, constants)) is not None:
            groups.setdefault(key, []).append(node)
    return [products for products in groups.values() if len(products) > 1]


def _key(node: fx.Node, known: set[fx.Node]) -> Any:
    """Return what products must have in common; None for what is no product with a known matrix."""
    if node.target is _OPS.mm.default:
        x, weight = node.args
    elif node.target is _OPS.addmm.default and not node.kwargs:
        bias, x, weight = node.args
        if bias not in known or meta.value(bias).dim() != 1:  # type: ignore[arg-type]
            return None
    else:
        return None
    value = tensor_of(weight)
    if weight not in known or value is None or not is_static(value):
        return None
    return node.target, x, value.dtype


def _join(draft: Draft, products: Sequence[fx.Node], layouts: Layouts) -> None:
    first, target = products[0], products[0].target
    weights: list[Any] = [product.args[-1] for product in products]
    biases: list[Any] = [product.args[0] for product in products] if target is _OPS.addmm.default else []
    for operand in (*weights, *biases):
        _hoist(operand, first)
    joined: Any = (products[0].args[-2], _columns(draft, weights, first))
    if biases:
        joined = (draft.insert_computed(first, _OPS.cat.default, (biases,), {}, first), *joined)
    product = draft.insert_computed(first, target, joined, {}, first)
    start = 0
    for node, weight in zip(products, weights, strict=True):
        end = start + meta.value(weight).shape[1]
        part = draft.insert_computed(node, _OPS.slice.Tensor, (product, 1, start, end), {}, node)
        layouts.before[part] = meta.value(node)
        draft.replace(node, part, also=(node,))
        start = end


def _columns(draft: Draft, weights: Sequence[fx.Node], before: fx.Node) -> fx.Node:
    """Insert a matrix of the columns of all; where these lie along memory, as a linear layer's do, so they do there."""
    if any(node.target not in _TURNED or meta.value(node).stride(0) != 1 for node in weights):
        return draft.insert_computed(before, _OPS.cat.default, (list(weights), 1), {}, before)
    rows = [node.args[0] for node in weights]
    joined = draft.insert_computed(before, _OPS.cat.default, (rows,), {}, before)
    return draft.insert_computed(before, _OPS.t.default, (joined,), {}, before)


def _hoist(node: fx.Node, before: fx.Node) -> None:
    """Move a node, and what it is computed from, in front of another one that comes earlier."""
    if node.op == "placeholder" or node < before:
        return
    for operand in node.all_input_nodes:
        _hoist(operand, before)
    before.prepend(node)
