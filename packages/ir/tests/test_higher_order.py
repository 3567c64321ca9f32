"""Calls with subgraphs: each row of the table is checked, run, printed and read back in both dialects."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.fx as fx

from intarsia_ir import aten as aten_dialect
from intarsia_ir import torch as torch_dialect
from intarsia_ir.dialects import dialect_of
from intarsia_ir.errors import InvalidArgumentError, VerifyError
from intarsia_ir.higher_order import HIGHER_ORDER, HigherOrderOp, with_makers, without_values

COND = """// dialect: aten 2
graph(%p: b8[], %q: b8[], %x: f32[3]) {
  # a.py:5 in f
  %0: (f32[3],) = cond[
    graph(%q: b8[], %x: f32[3]) {
      # a.py:3 in f
      %0: (f32[3],) = cond[
        graph(%x: f32[3]) {
          # a.py:1 in f
          %0: f32[3] = aten.sin.default(%x)  #1
          return (%0,)
        }
        graph(%x: f32[3]) {
          # a.py:2 in f
          %0: f32[3] = aten.cos.default(%x)  #2
          return (%0,)
        }
      ](%q, %x)  #3
      # a.py:3 in f
      %1: f32[3] = operator.getitem(%0, 0)  #3
      %2: f32[3] = aten.mul.Tensor(%1, 2)  #3
      return (%2,)
    }
    graph(%q: b8[], %x: f32[3]) {
      # a.py:4 in f
      %0: f32[3] = aten.neg.default(%x)  #4
      return (%0,)
    }
  ](%p, %q, %x)  #5
  # a.py:5 in f
  %1: f32[3] = operator.getitem(%0, 0)  #5
  return (%1,)
}
origins
  1 a.py
    f: 1, 2, 3, 4, 5
"""
WHILE = """// dialect: aten 2
graph(%i: i64[], %x: f32[3], %w: f32[3]) {
  # a.py:3 in f
  %0: (i64[], f32[3]) = while_loop[
    graph(%i: i64[], %x: f32[3], %w: f32[3]) {
      # a.py:1 in f
      %0: b8[] = aten.lt.Scalar(%i, 3)  #1
      return (%0,)
    }
    graph(%i: i64[], %x: f32[3], %w: f32[3]) {
      # a.py:2 in f
      %0: i64[] = aten.add.Tensor(%i, 1)  #2
      %1: f32[3] = aten.mul.Tensor(%x, %w)  #2
      return (%0, %1)
    }
    carried=2
  ](%i, %x, %w)  #3
  # a.py:3 in f
  %1: f32[3] = operator.getitem(%0, 1)  #3
  return (%1,)
}
origins
  1 a.py
    f: 1, 2, 3
"""
UNWIND = """// dialect: aten 2
graph(
    %i: i64[],
    %x: f32[3],
    %p: f32[3],
    %q: f32[3],
    %w: f32[3],
) {
  # a.py:4 in f
  %0: (f32[3], f32[3]) = unwind[
    graph(
        %i: i64[],
        %x: f32[3],
        %p: f32[3],
        %q: f32[3],
        %w: f32[3],
    ) {
      # a.py:1 in f
      %0: b8[] = aten.lt.Scalar(%i, 3)  #1
      return (%0,)
    }
    graph(
        %i: i64[],
        %x: f32[3],
        %p: f32[3],
        %q: f32[3],
        %w: f32[3],
    ) {
      # a.py:2 in f
      %0: i64[] = aten.add.Tensor(%i, 1)  #2
      %1: f32[3] = aten.mul.Tensor(%x, %w)  #2
      return (%0, %1)
    }
    graph(
        %i: i64[],
        %x: f32[3],
        %p: f32[3],
        %q: f32[3],
        %w: f32[3],
    ) {
      # a.py:3 in f
      %0: f32[3] = aten.mul.Tensor(%p, %w)  #3
      %1: f32[3] = aten.mul.Tensor(%p, %x)  #3
      %2: f32[3] = aten.add.Tensor(%q, %1)  #3
      return (%0, %2)
    }
    carried=2
    back=2
  ](%i, %x, %p, %q, %w)  #4
  # a.py:4 in f
  %1: f32[3] = operator.getitem(%0, 0)  #4
  %2: f32[3] = operator.getitem(%0, 1)  #4
  %3: f32[3] = aten.add.Tensor(%1, %2)  #4
  return (%3,)
}
origins
  1 a.py
    f: 1, 2, 3, 4
"""
SCAN = """// dialect: aten 2
graph(%c: f32[3], %x: f32[4, 3], %w: f32[3]) {
  # a.py:3 in f
  %0: (f32[3], f32[4]) = scan[
    graph(%c: f32[3], %x: f32[3], %w: f32[3]) {
      # a.py:1 in f
      %0: f32[3] = aten.mul.Tensor(%c, %w)  #1
      %1: f32[3] = aten.add.Tensor(%0, %x)  #1
      # a.py:2 in f
      %2: f32[] = aten.sum.default(%1)  #2
      return (%1, %2)
    }
    carried=1
    scanned=1
  ](%c, %x, %w)  #3
  # a.py:3 in f
  %1: f32[4] = operator.getitem(%0, 1)  #3
  return (%1,)
}
origins
  1 a.py
    f: 1, 2, 3
"""
X = torch.tensor([0.5, -1.0, 2.0])
YES, NO = torch.tensor(True), torch.tensor(False)

ROWS = torch.arange(12.0).view(4, 3)


def scanned(carried: torch.Tensor) -> torch.Tensor:
    sums = []
    for row in ROWS:
        carried = carried * (X + 1) + row
        sums.append(carried.sum())
    return torch.stack(sums)


CASES: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "cond": (COND, (YES, NO, X), 2 * X.cos()),
    "while_loop": (WHILE, (torch.tensor(0), X, X + 1), X * (X + 1) ** 3),
    # d/dx x * w**3 and d/dw x * w**3, for w = x + 1
    "unwind": (
        UNWIND,
        (torch.tensor(0), X, torch.ones(3), torch.zeros(3), X + 1),
        (X + 1) ** 3 + 3 * X * (X + 1) ** 2,
    ),
    "scan": (SCAN, (X, ROWS, X + 1), scanned(X)),
}


def test_every_row_has_a_case() -> None:
    assert CASES.keys() == HIGHER_ORDER.keys()


@pytest.mark.parametrize("name", CASES)
def test_is_checked_run_printed_and_read_back(name: str) -> None:
    text, inputs, expected = CASES[name]
    gm = aten_dialect.parse_ir(text)
    aten_dialect.verify(gm, functional=True)
    assert aten_dialect.print_ir(gm) == text
    torch.testing.assert_close(aten_dialect.interpret(gm, *inputs), (expected,))


@pytest.mark.parametrize("name", CASES)
def test_is_the_same_in_the_torch_dialect(name: str) -> None:
    text, inputs, expected = CASES[name]
    text = (
        text.replace("dialect: aten", "dialect: torch")
        .replace("aten.cos.default", "torch.cos")
        .replace("aten.lt.Scalar", "torch.lt")
        .replace("aten.sum.default", "torch.sum")
    )
    gm = torch_dialect.parse_ir(text)
    torch_dialect.verify(gm)
    assert re.sub(r" ![a-z]+(\(self\))?", "", torch_dialect.print_ir(gm)) == text
    torch.testing.assert_close(torch_dialect.interpret(gm, *inputs), (expected,))
    assert dialect_of(gm) == "torch"


@pytest.mark.parametrize("p", [True, False])
@pytest.mark.parametrize("q", [True, False])
def test_nested_conds_take_the_branches_that_python_takes(p: bool, q: bool) -> None:
    (found,) = aten_dialect.interpret(aten_dialect.parse_ir(COND), torch.tensor(p), torch.tensor(q), X)
    assert torch.equal(found, (X.sin() if q else X.cos()) * 2 if p else -X)


def op_of(gm: fx.GraphModule) -> fx.Node:
    return next(node for node in gm.graph.nodes if isinstance(node.target, HigherOrderOp))


def test_equal_graphs_make_equal_ops_with_one_name_in_any_process() -> None:
    first, second = op_of(aten_dialect.parse_ir(COND)), op_of(aten_dialect.parse_ir(COND))
    other = op_of(aten_dialect.parse_ir(COND.replace("aten.neg", "aten.abs")))
    assert first.target == second.target and hash(first.target) == hash(second.target)
    assert first.target != other.target and str(first.target) != str(other.target)
    assert str(first.target) == "higher_order.cond.d6bcc5229aa2"


def test_a_constant_of_a_graph_is_given_beside_the_text() -> None:
    text = COND.replace("aten.neg.default(%x)", "get_attr('held')")
    gm = aten_dialect.parse_ir(text, constants={"0.1.held": X})
    assert aten_dialect.print_ir(gm) == text
    assert aten_dialect.constants_of(gm) == {"0.1.held": X}
    assert aten_dialect.interpret(gm, NO, NO, X)[0] is X


@pytest.mark.parametrize(
    ("op", "random", "removable"),
    [
        ("aten.bernoulli", True, False),
        ("aten.sin", False, True),
        ("aten.inverse", False, False),
    ],
)
def test_draws_and_raises_as_its_graphs_do(op: str, random: bool, removable: bool) -> None:
    node = op_of(aten_dialect.parse_ir(COND.replace("aten.neg", op)))
    effects = aten_dialect.node_effects(node)
    assert (effects.random, effects.removable) == (random, removable)
    assert aten_dialect.effects(node.target) == effects


def test_a_loop_of_no_iterations_gives_memory_of_its_own() -> None:
    (found,) = aten_dialect.interpret(aten_dialect.parse_ir(WHILE), torch.tensor(5), X, X)
    assert found.equal(X) and found is not X


# ---- what is refused


def test_a13_a_body_that_gives_less_than_is_carried() -> None:
    found = rules(WHILE.replace("return (%0, %1)", "return (%0,)"))
    assert found[0][0] == "A13" and found[0][2].startswith("its graphs give [1, 1] results")


def rules(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(VerifyError) as caught:
        aten_dialect.verify(aten_dialect.parse_ir(text), functional=True)
    return caught.value.findings


def test_a13_operands_that_the_graphs_do_not_take() -> None:
    ((rule, _, message), *_) = rules(COND.replace("](%p, %q, %x)", "](%p, %q, %x, %x)"))
    assert rule == "A13" and message == "its graph true has 2 inputs, not 3"


def test_a13_graphs_with_different_numbers_of_results() -> None:
    found = rules(COND.replace("%0: f32[3] = aten.neg.default(%x)  #4\n      return (%0,)", "return (%x, %x)"))
    assert found[0][0] == "A13" and found[0][2].startswith("its graphs give [1, 2] results, and its value is")


def test_a13_a_graph_that_breaks_a_rule() -> None:
    found = rules(COND.replace("aten.neg.default(%x)", "aten.neg_.default(%x)"))
    assert [(rule, message) for rule, _, message in found] == [
        ("A13", "in its graph false, A11 at neg__default: writes self")
    ]


def test_a12_a_graph_that_gives_another_shape() -> None:
    text = COND.replace("%0: f32[3] = aten.neg.default(%x)", "%0: f32[] = aten.sum.default(%x)")
    with pytest.raises(VerifyError) as caught:
        aten_dialect.verify(aten_dialect.parse_ir(text), values=True)
    ((rule, _, message),) = caught.value.findings
    assert rule == "A12" and message.startswith("its graph false gives shape")


def test_t12_a_graph_that_breaks_a_rule() -> None:
    text = COND.replace("dialect: aten", "dialect: torch").replace("aten.neg.default(%x)  #4", "torch.neg(%x)")
    with pytest.raises(VerifyError) as caught:
        torch_dialect.verify(torch_dialect.parse_ir(text))
    assert [rule for rule, _, _ in caught.value.findings] == ["T12"]
    assert "in its graph false, T9" in caught.value.findings[0][2]


def test_an_op_of_other_graphs_or_options_is_refused() -> None:
    gm = aten_dialect.parse_ir(COND)
    for name, programs, options in [("cond", [gm], {}), ("cond", [gm, gm], {"carried": 1}), ("switch", [gm], {})]:
        with pytest.raises(InvalidArgumentError, match=r"is no higher-order op.*\n.*cond takes the graphs"):
            HigherOrderOp(name, programs, options)


def test_makers_are_asked_for_what_a_compiled_program_calls():
    sine, cosine = fx.symbolic_trace(lambda x: (x.sin(),)), fx.symbolic_trace(lambda x: (x.cos(),))
    op = HigherOrderOp("cond", (sine, cosine))
    x = torch.tensor(0.5)
    graph = fx.Graph()
    graph.output(graph.call_function(op, (graph.placeholder("p"), graph.placeholder("x"))))
    asked = []

    def maker_of(program):
        return None if program is cosine else lambda: asked.append(program) or (lambda value: (value + 7,))

    gm = fx.GraphModule({}, graph)
    made = next(n.target for n in with_makers(gm, maker_of).graph.nodes if n.op == "call_function")
    assert made == op and not asked, "asked before anything is linked"
    assert made(torch.tensor(True), x) == (x.sin(),), "interpreters have the graphs"
    for same in (made, without_values(made)):
        launch = same.launcher()
        assert launch(torch.tensor(True), x) == (x + 7,) and launch(torch.tensor(False), x) == (x.cos(),)
    assert asked == [sine, sine]
    assert op.launcher()(torch.tensor(True), x) == (x.sin(),)
    assert next(n.target for n in gm.graph.nodes if n.op == "call_function").makers == (None, None), "gm is as it was"
    plain = fx.symbolic_trace(lambda x: x.sin())
    assert with_makers(plain, maker_of) is plain
