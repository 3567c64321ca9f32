"""The few places where FX is used without types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from intarsia_ir.higher_order import HigherOrderOp

__all__ = ["attribute", "call_node", "graph_module"]


def graph_module(root: torch.nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """Return a GraphModule whose Python code is generated when it is first called.

    Generating code takes longer than recording the graph did, and most graphs only pass from one pass to the next.
    """
    return _LazyGraphModule(root, graph)


def attribute(root: torch.nn.Module, path: str) -> Any:
    """Return the attribute of `root` that a get_attr or call_module target names."""
    value: Any = root
    for name in path.split("."):
        value = getattr(value, name)
    return value


def call_node(graph: fx.Graph, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
    """Add a call whose arguments are nodes and plain values, without FX's search for symbolic numbers among them."""
    node = graph.create_node("call_function", target, name=_candidate(target))
    node.args = args
    if kwargs:
        node.kwargs = kwargs
    return node


def _candidate(target: Callable[..., Any]) -> str:
    """Return the name that FX would give a call of `target`, but for the number behind it."""
    if isinstance(target, HigherOrderOp):
        return target.name  # the table is for overloads, of which there are few
    entry = _CANDIDATES.get(id(target))
    if entry is None:
        entry = _CANDIDATES[id(target)] = fx.Graph()._target_to_str(target), target
    return entry[0]


_CANDIDATES: dict[int, tuple[str, Any]] = {}  # by address, because overloads hash in Python; it keeps them alive
