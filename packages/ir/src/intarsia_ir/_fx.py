"""The untyped edges of torch.fx, in one place: copying graphs and wrapping them.

Passes work on a private copy of a `Graph` and wrap it once, on return: building a `GraphModule` costs several times
what building the graph does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.fx as fx
from torch.fx._lazy_graph_module import _LazyGraphModule

__all__ = ["attribute", "copy_graph", "node_arguments", "output_of", "placeholders", "results", "wrap"]


def copy_graph(graph: fx.Graph) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
    """Return a private copy of `graph`, and the copy of each node. Names, metadata and types are kept."""
    new = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        copy = new.node_copy(node, lambda n: copies[n])
        copy.meta = dict(node.meta)
        copies[node] = copy
    return new, copies


def wrap(root: torch.nn.Module | Mapping[str, Any], graph: fx.Graph) -> fx.GraphModule:
    """Return a `GraphModule` of `graph` with the attributes that its get_attr nodes name, taken from `root`.

    Its Python code is generated when it is first called or printed: that takes longer than most passes, and most graphs
    only travel from one pass to the next.
    """
    holder: Any = root if isinstance(root, torch.nn.Module) else dict(root)
    return _LazyGraphModule(holder, graph)


def placeholders(graph: fx.Graph) -> tuple[fx.Node, ...]:
    """Return the inputs of `graph`, in order."""
    return tuple(graph.find_nodes(op="placeholder"))


def output_of(graph: fx.Graph) -> fx.Node:
    """Return the output node of `graph`.

    Raises:
        StopIteration: The graph has none.
    """
    node: fx.Node = next(iter(graph.find_nodes(op="output")))
    return node


def results(graph: fx.Graph) -> tuple[Any, ...]:
    """Return the flat results of `graph`: nodes and constants."""
    value = output_of(graph).args[0]
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def node_arguments(node: fx.Node) -> Iterator[Any]:
    """Yield every leaf of the arguments of `node`, in order: nodes and constants."""
    stack: list[Any] = [*reversed(list(node.kwargs.values())), *reversed(node.args)]
    while stack:
        value = stack.pop()
        if isinstance(value, (tuple, list)):
            stack += reversed(value)
        elif isinstance(value, dict):
            stack += reversed(list(value.values()))
        elif isinstance(value, slice):
            stack += (value.step, value.stop, value.start)
        else:
            yield value


def attribute(root: Any, path: str) -> Any:
    """Return the attribute at a dotted `path` below `root`, as get_attr nodes name it.

    Raises:
        AttributeError: A part of the path doesn't exist.
    """
    for name in path.split("."):
        root = getattr(root, name)
    return root
