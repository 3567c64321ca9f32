"""One broken program per rule of the torch dialect, made from a good one; the test carries the rule's number."""

from collections.abc import Callable

import pytest
import torch
import torch.fx as fx
import torch.utils._pytree as pytree

from intarsia_ir import VerifyError, meta
from intarsia_ir.torch import Transform, parse_ir, verify

GOOD = """// dialect: torch 2
graph(%x: f32[2, 3], %y: f32[2, 3]) {
  # m.py:1 in f
  %0 = torch._C._set_grad_enabled(False)  #1
  # m.py:2 in f
  %1: f32[2, 3] = torch.add(%x, %y)  #2
  # m.py:3 in f
  %2 = torch.amp.autocast_mode._enter_autocast('cpu', bf16, True, None)  #3
  # m.py:4 in f
  %3: f32[2] = .sum(%1, 1)  #4
  # m.py:3 in f
  %4 = torch.amp.autocast_mode._exit_autocast(%2)  #3
  # m.py:1 in f
  %5 = torch._C._set_grad_enabled(True)  #1
  %6 = region 'body' graph(%a: f32[2]) {
    # m.py:9 in g
    %0: f32[2] = .neg(%a)  #9
    return (%0,)
  }
  return (%3, %1, None)
}
origins
  1 m.py
    f: 1, 2, 3, 4
    g: 9
"""


def good() -> fx.GraphModule:
    return parse_ir(GOOD)


def nodes(gm: fx.GraphModule) -> dict[str, fx.Node]:
    names = ["x", "y", "off", "add", "enter", "sum", "exit", "on", "body", "output"]
    return dict(zip(names, gm.graph.nodes))


def rules(gm: fx.GraphModule) -> set[str]:
    with pytest.raises(VerifyError) as info:
        verify(gm)
    return {rule for rule, _, _ in info.value.findings}


def test_good_program_verifies() -> None:
    verify(good())


def test_t1_use_before_definition() -> None:
    gm = good()
    nodes(gm)["add"].args = (nodes(gm)["x"], nodes(gm)["sum"])
    assert rules(gm) == {"T1"}


def test_t2_default() -> None:
    gm = good()
    nodes(gm)["x"].args = (3,)
    assert rules(gm) == {"T2"}


@pytest.mark.parametrize("value", [lambda n: n["sum"], lambda n: ([n["sum"]],)])
def test_t3_output_not_flat(value: Callable[[dict[str, fx.Node]], object]) -> None:
    gm = good()
    nodes(gm)["output"].args = (value(nodes(gm)),)  # type: ignore[assignment]
    assert rules(gm) == {"T3"}


def test_t4_call_module() -> None:
    gm = good()
    gm.add_module("relu", torch.nn.ReLU())
    nodes(gm)["add"].op = "call_module"
    nodes(gm)["add"].target = "relu"
    assert rules(gm) == {"T4"}


def test_t4_not_callable() -> None:
    gm = good()
    nodes(gm)["add"].target = 3  # type: ignore[assignment]
    assert rules(gm) == {"T4"}


def test_t5_no_self() -> None:
    gm = good()
    nodes(gm)["sum"].args = (3, 1)
    assert rules(gm) == {"T5"}


def test_t5_no_such_method() -> None:
    gm = good()
    nodes(gm)["sum"].target = "summ"
    assert rules(gm) == {"T5"}


def test_t6_still_open() -> None:
    gm = good()
    gm.graph.erase_node(nodes(gm)["exit"])
    assert rules(gm) == {"T6"}


def test_t6_never_opened() -> None:
    gm = good()
    n = nodes(gm)
    n["exit"].args = (n["add"],)
    gm.graph.erase_node(n["enter"])
    assert rules(gm) == {"T6"}


def test_t6_crossed() -> None:
    gm = good()
    n = nodes(gm)
    with gm.graph.inserting_before(n["exit"]):
        inner = gm.graph.call_function(n["enter"].target, n["enter"].args)  # type: ignore[arg-type]
    meta.copy_origins(n["enter"], inner)
    assert rules(gm) == {"T6"}


def test_t6_closed_by_another_kind() -> None:
    gm = good()
    nodes(gm)["exit"].target = torch.autograd.grad_mode._exit_inference_mode
    assert rules(gm) == {"T6"}


def test_t7_grad_mode_by_a_value() -> None:
    gm = good()
    nodes(gm)["off"].args = (nodes(gm)["x"],)
    assert rules(gm) == {"T7"}


def test_t8_missing_attribute() -> None:
    gm = good()
    nodes(gm)["body"].target = "nobody"
    assert rules(gm) == {"T8"}


def test_t9_no_origins() -> None:
    gm = good()
    meta.set_origins(nodes(gm)["sum"], ())
    assert rules(gm) == {"T9"}
    verify(gm, origins=False)


def test_t10_nested_graph() -> None:
    gm = good()
    next(iter(gm.body.graph.find_nodes(op="call_method", target="neg"))).target = "negg"  # type: ignore[union-attr]
    assert rules(gm) == {"T10"}


SCALED = """// dialect: torch 2
graph(%x: f32[3], %scale: f32[3]) {
  # m.py:1 in f
  %0 = torch.mul(%x, %scale)  #1
  return (%0,)
}
origins
  1 m.py
    f: 1
"""


def transformed(body: fx.GraphModule) -> fx.GraphModule:
    """Return `vmap` of a graph of an argument and a tensor from outside."""
    one = pytree.tree_structure(((0,), {}))
    graph = fx.Graph()
    operands = [graph.placeholder(name) for name in ("x", "scale")]
    node = graph.call_function(Transform("vmap", body, {}, (0,), one, (0,), pytree.tree_structure(0)), tuple(operands))
    meta.set_origins(node, meta.origins(next(n for n in body.graph.nodes if n.op == "call_function")))
    graph.output((node,))
    return fx.GraphModule(torch.nn.Module(), graph)


def test_t10_graph_of_a_transform() -> None:
    verify(transformed(parse_ir(SCALED)))
    body = parse_ir(SCALED)
    gm = transformed(body)
    meta.set_origins(next(node for node in body.graph.nodes if node.op == "call_function"), ())
    assert rules(gm) == {"T10"}


def test_t11_operands_of_a_transform() -> None:
    gm = transformed(parse_ir(SCALED))
    node = next(node for node in gm.graph.nodes if node.op == "call_function")
    node.args = node.args[:1]
    assert rules(gm) == {"T11"}
