"""Which nodes have known values: those that are computed from inputs whose values stay, and from nothing else."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from intarsia_ir import aten, meta
from intarsia_rewrites._rules import is_static

__all__ = ["STORED", "is_known", "known_nodes"]

STORED = "_folded"
"""How the names of attributes begin that hold constants which a rewrite has computed."""


def known_nodes(graph: fx.Graph, names: Collection[str]) -> set[fx.Node]:
    """Return the nodes whose values follow from those of the inputs called `names`, and from constants.

    Calls among them are repeatable, raise nothing, belong to torch, and give tensors of known size.
    """
    nodes: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            holds = node.name in names
        elif node.op == "get_attr":
            holds = str(node.target).startswith(STORED)
        else:
            holds = node.op == "call_function" and all(n in nodes for n in node.all_input_nodes) and _repeats(node)
        if holds:
            nodes.add(node)
    return nodes


def is_known(operand: Any, known: Collection[fx.Node]) -> bool:
    """Tell whether an optional operand is left out, or has a known value."""
    return operand is None or operand in known


def _repeats(node: fx.Node) -> bool:
    if isinstance(node.target, OpOverload):
        effects = aten.node_effects(node)
        if node.target.namespace != "aten" or not effects.repeatable or effects.checks or "empty" in str(node.target):
            return False
    elif not node.all_input_nodes:
        return False
    values = pytree.tree_leaves(meta.value(node)) if meta.has_value(node) else [None]
    return all(isinstance(v, torch.Tensor) and is_static(v) for v in values)
