"""Fewer operations that still go wrong: parts of a graph whose inputs are the values that they had in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from intarsia_command.bisecting.cases import Case, fresh
from intarsia_ir import meta

__all__ = ["operations", "shrink"]

Fails = Callable[[Case], bool]


def operations(gm: fx.GraphModule) -> int:
    """Return how many operations a graph has."""
    return sum(node.op in ("call_function", "call_method", "call_module") for node in gm.graph.nodes)


def shrink(case: Case, fails: Fails) -> Case:
    """Return a part of a case that still fails, with as few operations as this finds.

    First ever shorter runs of neighbouring operations, then single operations of the run, each replaced by an input.

    Args:
        case: A case that fails.
        fails: Whether a case does; what it is given runs in eager.
    """
    values = _values_of(case)
    nodes = [n for n in case.graph_module.graph.nodes if n.op in ("call_function", "call_method", "call_module")]

    def attempt(kept: Sequence[fx.Node]) -> Case | None:
        made = _part(case, kept, values)
        return made if made is not None and fails(made) else None

    best, kept = case, nodes
    width = len(nodes) // 2
    while width:
        for start in range(0, len(kept) - width + 1, max(1, width // 2)):
            found = attempt(kept[start : start + width])
            if found is not None:
                best, kept = found, kept[start : start + width]
                break
        else:
            width = min(width, len(kept)) * 3 // 4
            continue
        width = len(kept) // 2
    for node in list(kept):
        found = attempt([n for n in kept if n is not node]) if len(kept) > 1 else None
        if found is not None:
            best, kept = found, [n for n in kept if n is not node]
    return best


def _values_of(case: Case) -> dict[fx.Node, Any]:
    """Return the value of each node in eager, as it was when it was made."""
    values = dict[fx.Node, Any]()

    class Noting(fx.Interpreter):
        def run_node(self, node: fx.Node) -> Any:
            made = super().run_node(node)
            if node.op != "output":
                values[node] = fresh((made,))[0]
            return made

    torch.manual_seed(1)
    with torch.set_grad_enabled(case.train):
        Noting(case.graph_module).run(*fresh(case.inputs))
    return values


def _part(case: Case, kept: Sequence[fx.Node], values: dict[fx.Node, Any]) -> Case | None:
    """Return some operations as a graph of their own; None where what they read or give can't cross its border."""
    inside = set(kept)
    graph, copies, inputs = fx.Graph(), dict[fx.Node, fx.Node](), list[Any]()
    order = [n for n in case.graph_module.graph.nodes if n in inside or any(u in inside for u in n.users)]
    for node in order:
        if node in inside or node.op != "get_attr":
            continue
        copies[node] = graph.node_copy(node)
    for node in order:
        if node in inside or node.op == "get_attr":
            continue
        value = values.get(node)
        if not isinstance(value, torch.Tensor | int | float) or isinstance(value, bool):
            return None
        copies[node] = graph.placeholder(node.name)
        meta.set_value(copies[node], value)
        meta.set_origins(copies[node], meta.origins(node))
        inputs.append(value)
    for node in order:
        if node in inside:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs = [n for n in order if n in inside and any(u not in inside for u in n.users)]
    outputs = [n for n in outputs if isinstance(values[n], torch.Tensor)]
    if not outputs or not inputs:
        return None
    graph.output(tuple(copies[n] for n in outputs))
    made = fx.GraphModule(case.graph_module, graph)
    meta.set_origins(graph.output_node(), meta.origins(outputs[0]))
    return replace(case, graph_module=made, examples=fresh(inputs), inputs=fresh(inputs))
