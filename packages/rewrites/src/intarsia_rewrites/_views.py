"""Rules of layout: views and copies that change nothing, and views of views.

Layouts are never derived here: the chain of views is run on a meta tensor that has the layout of its base, and the
layout that comes out is compared. So a rule can't disagree with ATen about what a view is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from intarsia_rewrites._rules import Call, Context, Found, Rule, is_static, same_value, tensor_of

__all__ = ["RULES"]

aten = torch.ops.aten
Layout = tuple[tuple[int, ...], tuple[int, ...], int]


def identity_view(node: fx.Node, context: Context) -> Found:
    """A view, or a view of views, that gives x as it is -> x.

        t(t(x)) -> x      view(view(x, [6]), [2, 3]) -> x      expand(x, shape of x) -> x      slice(x, 0, 0, end) -> x

    Condition: size and strides are equal. Law: these views show elements of x alone, and with another offset equal
    sizes and strides would show one beyond its last or before its first.
    """
    base: Any = node
    while isinstance(base, fx.Node) and base.target in _VIEWS:
        base = base.args[0]
        if same_value(node, base):
            return _as_node(base)
    return None


def view_of_view(node: fx.Node, context: Context) -> Found:
    """view(view(x, a), b) -> view(x, b);  expand(expand(x, a), b) -> expand(x, b).

    Condition: the shorter way gives the same strides. Law: both list the elements of x in the same order.
    """
    inner = node.args[0]
    if not isinstance(inner, fx.Node):
        return None
    value = tensor_of(node)
    if value is None or not is_static(value):
        return None
    if node.target in _RESHAPES and inner.target in _RESHAPES:
        target = aten.view.default
    elif inner.target is node.target:
        target = aten.expand.default
    else:
        return None
    x, shape = inner.args[0], list(value.shape)
    expected = _run(x, [node, inner])
    if expected is None or expected != _run_call(x, target, shape):
        return None
    return Call(target, (x, shape), {})


def permute_of_permute(node: fx.Node, context: Context) -> Found:
    """permute(permute(x, p), q) -> permute(x, p[q]), also of transpose and t.

    Law: permutations compose. (When they cancel out, `identity_view` is first.)
    """
    outer = _permutation(node)
    inner = node.args[0] if outer is not None else None
    first = _permutation(inner)
    if outer is None or first is None or not isinstance(inner, fx.Node):
        return None
    return Call(aten.permute.default, (inner.args[0], [first[d] for d in outer]), {})


def needless_clone(node: fx.Node, context: Context) -> Found:
    """clone(x) -> x.

    Condition: the strides stay the same, and no result would come to share memory. Law: nothing is written.
    """
    x = node.args[0]
    return _as_node(x) if same_value(node, x) else None


def cat_of_one(node: fx.Node, context: Context) -> Found:
    """cat([x]) -> x.

    Condition: the strides stay the same, and no result would come to share memory. Law: nothing is joined.
    """
    if not isinstance(node.args[0], (tuple, list)) or len(node.args[0]) != 1:
        return None
    x = node.args[0][0]
    return _as_node(x) if same_value(node, x) else None


_RESHAPES = frozenset([aten.view.default, aten._unsafe_view.default])
_VIEWS = _RESHAPES | frozenset(
    [
        aten.alias.default,
        aten.detach.default,
        aten.diagonal.default,
        aten.expand.default,
        aten.permute.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.t.default,
        aten.transpose.int,
        aten.unfold.default,
        aten.unsqueeze.default,
    ]
)


def _as_node(value: Any) -> fx.Node | None:
    return value if isinstance(value, fx.Node) else None


def _run(base: Any, chain: Sequence[fx.Node]) -> Layout | None:
    """Return the layout of `chain[0]` in terms of `base`; `chain` lists views from the outermost to the innermost."""
    value = _meta_like(base)
    for node in reversed(chain):
        if value is None or len(node.all_input_nodes) > 1:  # a size among its arguments, in a list of them too
            return None
        value = node.target(value, *node.args[1:], **node.kwargs)  # type: ignore[operator]
    return None if value is None else (tuple(value.shape), value.stride(), int(value.storage_offset()))


def _run_call(base: Any, target: Any, shape: Sequence[int]) -> Layout | None:
    value = _meta_like(base)
    try:
        value = target(value, shape)
    except RuntimeError:  # not viewable that way
        return None
    return None if value is None else (tuple(value.shape), value.stride(), int(value.storage_offset()))


def _meta_like(node: Any) -> Any:
    value = tensor_of(node)
    if value is None or not is_static(value):
        return None
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _permutation(node: Any) -> list[int] | None:
    """Return which dimension of its operand each dimension of a permuting view is."""
    value = tensor_of(node)
    if value is None or not isinstance(node, fx.Node):
        return None
    order = list(range(value.dim()))
    args: Any = node.args
    if node.target is aten.permute.default:
        return [d % len(order) for d in args[1]]
    if node.target is aten.t.default:
        return order[::-1]
    if node.target is aten.transpose.int and order:
        a, b = args[1] % len(order), args[2] % len(order)
        order[a], order[b] = order[b], order[a]
        return order
    return None


RULES: tuple[Rule, ...] = (
    Rule(_VIEWS, identity_view),
    Rule(_RESHAPES | {aten.expand.default}, view_of_view),
    Rule(frozenset([aten.permute.default, aten.transpose.int, aten.t.default]), permute_of_permute),
    Rule(frozenset([aten.clone.default, aten.lift_fresh_copy.default]), needless_clone),
    Rule(frozenset([aten.cat.default]), cat_of_one),
)
