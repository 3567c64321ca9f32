"""Passes of users: the contract in three lines, what it finds in a pass that breaks it, and a pass in the pipeline."""

from __future__ import annotations

import pytest
import torch
import torch.fx as fx

from intarsia_ir.errors import InvalidArgumentError
from intarsia_testkit.contract import check_contract

pytestmark = pytest.mark.usefixtures("fresh")
EXAMPLES = 25


def without_double_negation(gm: fx.GraphModule) -> fx.GraphModule:
    """neg(neg(x)) -> x, on a copy."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    neg = torch.ops.aten.neg.default
    for node in gm.graph.nodes:
        inner = node.args[0] if node.target is neg else None
        if isinstance(inner, fx.Node) and inner.target is neg:
            copies[node] = copies[inner.args[0]]
        elif node.op == "output":
            graph.output(fx.node.map_arg(node.args[0], copies.__getitem__))
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return fx.GraphModule(gm, graph)


def in_place(gm: fx.GraphModule) -> fx.GraphModule:
    """Renames nodes of the graph that it was given."""
    for node in gm.graph.nodes:
        if node.op == "call_function":
            node.name = f"seen_{node.name}"
    return gm


def wrong(gm: fx.GraphModule) -> fx.GraphModule:
    """add -> sub, on a copy."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        if node.target is torch.ops.aten.add.Tensor:
            node.target = torch.ops.aten.sub.Tensor
    return fx.GraphModule(gm, graph)


def test_a_pass_keeps_the_contract():
    check_contract(without_double_negation, max_examples=EXAMPLES)


@pytest.mark.parametrize("pass_", [in_place, wrong])
def test_one_that_breaks_it_is_told(pass_):
    with pytest.raises((AssertionError, InvalidArgumentError)):
        check_contract(pass_, max_examples=200)
