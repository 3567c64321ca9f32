"""One broken program per rule of the aten dialect, made from a good one; the test carries the rule's number."""

import operator
from collections.abc import Callable

import pytest
import torch
import torch.fx as fx

from intarsia_ir import VerifyError, meta
from intarsia_ir.aten import parse_ir, verify

GOOD = """// dialect: aten 2
graph(%x: f32[2, 3], %y: f32[2, 3]) {
  # m.py:1 in f
  %0: f32[2, 3] = aten.add.Tensor(%x, %y)  #1
  # m.py:2 in f
  %1: (f32[2], i64[2]) = aten.max.dim(%0, 1)  #2
  %2: f32[2] = operator.getitem(%1, 0)  #2
  %3: f32[2, 3] = get_attr('table')
  # m.py:3 in f
  %4: f32[2, 3] = aten.mul.Tensor(%0, %3)  #3
  return (%2, %4, None, 3)
}
origins
  1 m.py
    f: 1, 2, 3
"""


def good() -> fx.GraphModule:
    return parse_ir(GOOD, constants={"table": torch.ones(2, 3)})


def nodes(gm: fx.GraphModule) -> dict[str, fx.Node]:
    names = ["x", "y", "add", "max", "item", "table", "mul", "output"]
    return dict(zip(names, gm.graph.nodes))


def findings(gm: fx.GraphModule, **options: bool) -> list[tuple[str, str, str]]:
    with pytest.raises(VerifyError) as info:
        verify(gm, **options)
    return list(info.value.findings)


def rules(gm: fx.GraphModule, **options: bool) -> set[str]:
    return {rule for rule, _, _ in findings(gm, **options)}


def test_good_program_verifies() -> None:
    verify(good(), functional=True)
    verify(good(), functional=True, values=True)


def test_a1_use_before_definition() -> None:
    gm = good()
    n = nodes(gm)
    n["add"].args = (n["x"], n["mul"])
    assert rules(gm) == {"A1"}


def test_a1_node_of_another_graph() -> None:
    gm = good()
    nodes(gm)["add"].args = (nodes(gm)["x"], nodes(good())["y"])
    assert rules(gm) == {"A1"}


def test_a1_no_output() -> None:
    gm = good()
    gm.graph.erase_node(nodes(gm)["output"])
    assert rules(gm) == {"A1"}


def test_a2_placeholder_after_call() -> None:
    gm = good()
    with gm.graph.inserting_after(nodes(gm)["mul"]):
        late = gm.graph.placeholder("late")
    meta.set_value(late, meta.value(nodes(gm)["x"]))
    assert rules(gm) == {"A2"}


def test_a2_default() -> None:
    gm = good()
    nodes(gm)["y"].args = (None,)
    assert rules(gm) == {"A2"}


def test_a2_same_name() -> None:
    gm = good()
    nodes(gm)["y"].target = "x"
    assert rules(gm) == {"A2"}


@pytest.mark.parametrize("value", [lambda n: n["mul"], lambda n: ((n["mul"],),), lambda n: {"a": n["mul"]}])
def test_a3_output_not_flat(value: Callable[[dict[str, fx.Node]], object]) -> None:
    gm = good()
    nodes(gm)["output"].args = (value(nodes(gm)),)  # type: ignore[assignment]
    assert rules(gm) == {"A3"}


def test_a4_python_function() -> None:
    gm = good()
    nodes(gm)["add"].target = torch.add
    assert rules(gm) == {"A4"}


def test_a4_method() -> None:
    gm = good()
    nodes(gm)["add"].op = "call_method"
    nodes(gm)["add"].target = "add"
    assert rules(gm) == {"A4"}


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        (("x",), {}, "'other' is missing"),
        (("x", "y"), {"beta": 1}, "no parameter 'beta'"),
        (("x", "y"), {"self": "x"}, "given twice"),
        (("x", "y", 1), {}, "positional"),
        (("x", "text"), {}, "the schema says Tensor"),
        (("x", "y"), {"alpha": torch.float32}, "the schema says Scalar"),
        ((["x"], "y"), {}, "the schema says Tensor"),
    ],
)
def test_a5_arguments(args: tuple[object, ...], kwargs: dict[str, object], words: str) -> None:
    gm = good()
    n = nodes(gm)

    def node(value: object) -> object:
        return [n["x"]] if value == ["x"] else n.get(str(value), value)

    n["add"].args = tuple(map(node, args))  # type: ignore[assignment]
    n["add"].kwargs = {k: node(v) for k, v in kwargs.items()}  # type: ignore[assignment]
    found = findings(gm)
    assert {rule for rule, _, _ in found} == {"A5"}
    assert any(words in message for _, _, message in found)


def test_a6_no_value() -> None:
    gm = good()
    del nodes(gm)["mul"].meta["val"]
    assert rules(gm) == {"A6"}


@pytest.mark.parametrize("value", [3, (torch.ones(2),), torch.ones(2), (torch.ones(2), 3)])
def test_a6_value_of_another_kind(value: object) -> None:
    gm = good()
    n = nodes(gm)
    meta.set_value(n["max"], value)
    gm.graph.erase_node(n["item"]) if not n["output"].replace_input_with(n["item"], n["mul"]) else None
    assert rules(gm) == {"A6"}


@pytest.mark.parametrize("index", [2, -3, "0", None])
def test_a7_item_that_is_not_there(index: object) -> None:
    gm = good()
    n = nodes(gm)
    n["item"].args = (n["max"], index)  # type: ignore[assignment]
    assert rules(gm) == {"A7"}


def test_a7_item_of_one_result() -> None:
    gm = good()
    n = nodes(gm)
    n["item"].args = (n["add"], 0)
    assert rules(gm) == {"A7"}


def test_a7_value_of_another_item() -> None:
    gm = good()
    meta.set_value(nodes(gm)["item"], meta.value(nodes(gm)["max"])[1])
    assert rules(gm) == {"A7"}


def test_a8_scalar_function_of_a_tensor() -> None:
    gm = good()
    nodes(gm)["add"].target = operator.add
    assert rules(gm) == {"A8"}


def test_a9_missing_attribute() -> None:
    gm = good()
    nodes(gm)["table"].target = "chair"
    assert rules(gm) == {"A9"}


def test_a10_no_origins() -> None:
    gm = good()
    meta.set_origins(nodes(gm)["mul"], ())
    assert rules(gm) == {"A10"}
    verify(gm, origins=False)


def test_a11_write_in_functional_program() -> None:
    gm = good()
    nodes(gm)["add"].target = torch.ops.aten.add_.Tensor
    assert rules(gm, functional=True) == {"A11"}
    verify(gm)


def test_a11_hidden_write() -> None:
    text = """// dialect: aten 2
graph(%x: f32[2, 3], %m: f32[3], %v: f32[3]) {
  # a:1 in f
  %0: (f32[2, 3], f32[3], f32[3]) = aten.native_batch_norm.default(%x, None, None, %m, %v, TRAIN, 0.1, 1.0)  #1
  return ()
}
origins
  1 a
    f: 1
"""
    assert rules(parse_ir(text.replace("TRAIN", "True")), functional=True) == {"A11"}
    verify(parse_ir(text.replace("TRAIN", "False")), functional=True)


@pytest.mark.parametrize("what", ["f32[3, 2]", "f64[2, 3]", "f32[2, 3]@(1, 2)", "f32[2, 3] on 'cuda:0'"])
def test_a12_value_that_the_op_does_not_give(what: str) -> None:
    text = GOOD.replace("%4: f32[2, 3]", f"%4: {what}")
    gm = parse_ir(text, constants={"table": torch.ones(2, 3)})
    verify(gm)
    assert rules(gm, values=True) == {"A12"}


def test_all_findings_are_collected_with_an_excerpt() -> None:
    gm = good()
    n = nodes(gm)
    del n["mul"].meta["val"]
    meta.set_origins(n["max"], ())
    n["y"].args = (None,)
    with pytest.raises(VerifyError) as info:
        verify(gm)
    assert [rule for rule, _, _ in info.value.findings] == ["A2", "A10", "A6"]
    assert "> %y" in info.value.excerpt and len(info.value.excerpt.splitlines()) <= 10


def test_excerpt_is_at_most_ten_lines_around_the_finding() -> None:
    calls = ["%0: f32[2] = aten.neg.default(%x)  # m.py:0 in f"]
    calls += [f"%{i}: f32[2] = aten.neg.default(%{i - 1})  # m.py:{i} in f" for i in range(1, 40)]
    gm = parse_ir("\n".join(["// dialect: aten 2", "graph(%x: f32[2]) {", *calls, "return ()", "}"]))
    node = list(gm.graph.nodes)[25]
    meta.set_origins(node, ())
    with pytest.raises(VerifyError) as info:
        verify(gm)
    assert len(info.value.excerpt.splitlines()) == 10 and "> %24" in info.value.excerpt
