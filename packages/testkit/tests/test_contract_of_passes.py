"""`check_contract` accepts a good pass in three lines, and tells each way in which one breaks the contract."""

import itertools

import pytest
import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.errors import InvalidArgumentError, VerifyError
from intarsia_testkit.aten_programs import aten_programs
from intarsia_testkit.contract import check_contract

aten = torch.ops.aten
NEGATIVE = aten_programs(families=("pointwise",), dtypes=(torch.float32,), max_nodes=6)
counter = itertools.count()


def copied(gm):
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    old, new = (next(iter(g.find_nodes(op="output"))) for g in (gm.graph, graph))
    new.meta = dict(old.meta)
    return graph


def neg_as_product(gm, *, fuel=None):
    """A user's pass: -x as x * -1."""
    graph, left = copied(gm), fuel
    for node in graph.find_nodes(op="call_function", target=aten.neg.default):
        if left == 0:
            break
        left = None if left is None else left - 1
        node.target, node.args = aten.mul.Tensor, (*node.args, -1)
    return fx.GraphModule(gm, graph)


def test_a_good_pass_of_a_users():
    check_contract(neg_as_product)


def test_a_pass_over_torch_graphs():
    check_contract(lambda gm: fx.GraphModule(gm, copied(gm)), "torch", max_examples=10)


def in_place(gm):
    for node in gm.graph.find_nodes(op="call_function", target=aten.neg.default):
        node.target, node.args = aten.mul.Tensor, (*node.args, -1)
    return gm


def touches_values(gm):
    made = fx.GraphModule(gm, copied(gm))
    for node in gm.graph.nodes:
        if node.op == "call_function":
            meta.set_value(node, meta.value(node).clone() if isinstance(meta.value(node), torch.Tensor) else None)
    return made


def wrong_meaning(gm):
    graph = copied(gm)
    for node in graph.find_nodes(op="call_function", target=aten.neg.default):
        node.target = aten.abs.default
    return fx.GraphModule(gm, graph)


def loses_origins(gm):
    graph = copied(gm)
    for node in graph.nodes:
        meta.set_origins(node, ())
    return fx.GraphModule(gm, graph)


def other_each_time(gm):
    graph = copied(gm)
    for node in graph.find_nodes(op="call_function", target=aten.neg.default):
        node.target, node.args = (aten.mul.Tensor, (*node.args, -1)) if next(counter) % 2 else (node.target, node.args)
    return fx.GraphModule(gm, graph)


def ignores_fuel(gm, *, fuel=None):
    return neg_as_product(gm)


@pytest.mark.parametrize(
    ("pass_", "error", "said"),
    [
        (in_place, AssertionError, "changed its input"),
        (touches_values, InvalidArgumentError, "its value"),
        (wrong_meaning, AssertionError, "result 0"),
        (loses_origins, VerifyError, "origin"),
        (other_each_time, AssertionError, "a second run"),
        (ignores_fuel, AssertionError, "without fuel"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_each_breach_is_told(pass_, error, said):
    with pytest.raises(error, match=said):
        check_contract(pass_, programs=NEGATIVE)
