"""`pass_back_through_pools`: a gradient is masked before maxima are passed back, not after it.

    %r = relu(%x); %p, %i = max_pool2d_with_indices(%r, ...)
    %b = max_pool2d_with_indices_backward(%g, %r, ..., %i)     %h = where(le(%p, 0), 0, %g)
    %y = where(le(%r, 0), 0, %b)                           ->  %d = full(...), of the shape and strides of %r
                                                               %y = max_pool2d_with_indices_backward(%h, %d, ..., %i)

Law: the same numbers, to the bit. What isn't zero in `%b` are gradients of windows whose largest element is there, and
that element is the window's value; so the comparison gives the same for both. The backward formula reads of its second
operand the shape and the strides alone. What is gained: `%r`, the largest tensor here, isn't needed any more.

Side conditions. Nothing else reads `%b`; the sizes are known where the operand is exchanged.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.values import Recorded
from intarsia_recorder import graph_module

__all__ = ["pass_back_through_pools"]

aten = torch.ops.aten

_POOL_OF: dict[Any, Any] = {
    aten.max_pool2d_with_indices_backward.default: aten.max_pool2d_with_indices.default,
    aten.max_pool3d_with_indices_backward.default: aten.max_pool3d_with_indices.default,
}


def pass_back_through_pools(joint: Recorded) -> Recorded:
    """Return the joint graph with its gradients of maxima in the form above; the given one where there are none."""
    graph = joint.graph_module.graph
    if not any(node.target in _POOL_OF for node in graph.nodes):
        return joint
    inside = {masked: passed for masked in graph.nodes if (passed := _passed_back(masked)) is not None}
    new = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node in inside:
            copies[node] = _masked_first(new, node, inside[node], copies)
        elif node.target in _POOL_OF and node not in inside.values():
            copies[node] = _passing_back(new, node, copies, copies[node.args[0]])
        elif node not in inside.values():
            copies[node] = new.node_copy(node, copies.__getitem__)
    return dataclasses.replace(joint, graph_module=graph_module(joint.graph_module, new))


def _passed_back(masked: fx.Node) -> fx.Node | None:
    """Return the backward formula whose result a selection masks by what was pooled; None for any other node."""
    if masked.target is not aten.where.self:
        return None
    condition, zero, passed = masked.args
    if not (_is_zero(zero) and isinstance(condition, fx.Node) and isinstance(passed, fx.Node)):
        return None
    if passed.target not in _POOL_OF or condition.target is not aten.le.Scalar or len(passed.users) > 1:
        return None
    return passed if _maxima(passed) is not None and condition.args[0] is passed.args[1] else None


def _maxima(passed: fx.Node) -> fx.Node | None:
    """Return the windows' largest elements, of which a backward formula passes gradients to the places."""
    pooled, places = passed.args[1], passed.args[-1]
    if not isinstance(places, fx.Node) or places.target is not operator.getitem or places.args[1] != 1:
        return None
    (pool, _) = places.args
    if not isinstance(pool, fx.Node) or pool.target is not _POOL_OF[passed.target] or pool.args[0] is not pooled:
        return None
    return next((user for user in pool.users if user.target is operator.getitem and user.args[1] == 0), None)


def _is_zero(node: object) -> bool:
    return (
        isinstance(node, fx.Node)
        and node.target in (aten.scalar_tensor.default, aten.full.default)
        and meta.value(node).dim() == 0
        and bool(node.args[-1] == 0)
    )


def _masked_first(graph: fx.Graph, masked: fx.Node, passed: fx.Node, copies: dict[fx.Node, fx.Node]) -> fx.Node:
    """Add a backward formula of a gradient that is masked by the windows' largest elements."""
    condition, zero, _ = masked.args
    largest = _maxima(passed)
    assert isinstance(condition, fx.Node) and isinstance(zero, fx.Node) and largest is not None
    gradient = passed.args[0]
    assert isinstance(gradient, fx.Node)
    mask = _call(graph, condition, condition.target, (copies[largest], condition.args[1]))
    selected = _call(graph, masked, masked.target, (mask, copies[zero], copies[gradient]))
    return _passing_back(graph, passed, copies, selected)


def _passing_back(graph: fx.Graph, passed: fx.Node, copies: dict[fx.Node, fx.Node], gradient: fx.Node) -> fx.Node:
    """Add a backward formula over another gradient, without the values of what was pooled."""
    _, pooled, *how = fx.node.map_arg(passed.args, copies.__getitem__)
    return _call(graph, passed, passed.target, (gradient, _shape_of(graph, passed) or pooled, *how))


def _shape_of(graph: fx.Graph, passed: fx.Node) -> fx.Node | None:
    """Add a tensor of the shape and strides of what was pooled; None where a size isn't known, or memory has gaps."""
    assert isinstance(passed.args[1], fx.Node)
    value = meta.value(passed.args[1])
    order = sorted(range(value.dim()), key=lambda d: (-value.stride(d), d)) if _is_known(value) else []
    sizes = [value.shape[d] for d in order]
    if not order or [value.stride(d) for d in order] != [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]:
        return None
    how = {"dtype": value.dtype, "layout": value.layout, "device": value.device}
    filled = _call(graph, passed, aten.full.default, (sizes, 0), how)
    dims = [order.index(d) for d in range(value.dim())]
    return filled if dims == sorted(dims) else _call(graph, passed, aten.permute.default, (filled, dims))


def _is_known(value: Any) -> bool:
    return all(isinstance(n, int) for n in (*value.shape, *value.stride())) and value.numel() > 0


def _call(graph: fx.Graph, like: fx.Node, target: Any, args: tuple[Any, ...], kwargs: Any = None) -> fx.Node:
    """Add a call with the origins of `like`, and the value that it gives."""
    node = graph.call_function(target, args, kwargs or {})
    node.meta = dict(like.meta)
    with meta.value(like).fake_mode, torch.no_grad():
        meta.set_value(node, target(*fx.node.map_arg(args, meta.value), **(kwargs or {})))
    return node
