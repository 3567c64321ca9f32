"""`narrow_saved_values`: give values that a smaller type holds exactly a form in that type, to be saved instead.

Before                                         after
  %mask: f32[n] = aten.bernoulli.p(%x, 0.5)      %mask: f32[n] = aten.bernoulli.p(%x, 0.5)
  ... uses of %mask                              %small: bool[n] = aten._to_copy.default(%mask, dtype=bool)
                                                 %wide: f32[n] = aten._to_copy.default(%small, dtype=f32)
                                                 ... uses of %wide

Rules: what `bernoulli` draws is 0 or 1, so a bool holds it; a position that `max_pool2d_with_indices` gives is below
the number of elements of a plane, so the smallest integer type with room for that holds it.
Law: the cast and the cast back are the identity on these values. Both are one pass that fuses with its neighbours.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.values import Recorded
from intarsia_recorder import graph_module

__all__ = ["narrow_saved_values"]

aten = torch.ops.aten

_DRAWS = frozenset({aten.bernoulli.p, aten.bernoulli.default})
_POOLS = frozenset({aten.max_pool2d_with_indices.default})


def narrow_saved_values(joint: Recorded) -> Recorded:
    """Return the joint graph with a narrow form of each value that has one; all readers read it through that."""
    graph = joint.graph_module.graph
    if not any(_narrow_type(node) for node in graph.nodes):
        return joint
    new = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        copies[node] = new.node_copy(node, copies.__getitem__)
        small = _narrow_type(node)
        if small is not None:
            value = meta.value(node)
            narrow = _cast(new, copies[node], value, small)
            copies[node] = _cast(new, narrow, value, value.dtype)
    return dataclasses.replace(joint, graph_module=graph_module(joint.graph_module, new))


def _narrow_type(node: fx.Node) -> torch.dtype | None:
    """Return the type that holds every value which a node can have, if it's smaller than the node's own."""
    if node.target in _DRAWS:
        return torch.bool
    if node.target is not operator.getitem or node.args[1] != 1:
        return None
    source = node.args[0]
    if not isinstance(source, fx.Node) or source.target not in _POOLS:
        return None
    assert isinstance(source.args[0], fx.Node)
    height, width = meta.value(source.args[0]).shape[-2:]
    if not isinstance(height, int) or not isinstance(width, int):
        return None
    return next((t for t in (torch.uint8, torch.int16, torch.int32) if height * width - 1 <= torch.iinfo(t).max), None)


def _cast(graph: fx.Graph, node: fx.Node, value: Any, dtype: torch.dtype) -> fx.Node:
    """Add a cast of `node`, which has the shape and strides of `value`."""
    cast = graph.call_function(aten._to_copy.default, (node,), {"dtype": dtype})
    with value.fake_mode if hasattr(value, "fake_mode") else torch.no_grad():
        meta.set_value(cast, torch.empty_like(value, dtype=dtype))
    meta.copy_origins(node, cast)
    return cast
