"""The few places where FX is used without types."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx
from torch.fx._lazy_graph_module import _LazyGraphModule

__all__ = ["attribute", "graph_module"]


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
