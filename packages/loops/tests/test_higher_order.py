"""Extern calls of higher-order ops: lowered, run, checked, printed with their graphs and read back."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from intarsia_ir import aten
from intarsia_ir.errors import VerifyError
from intarsia_loops import from_fx, to_fx
from intarsia_loops._text import program_text
from intarsia_loops.loops import parse_ir, print_ir
from intarsia_loops.loops.verify import verify
from intarsia_loops.program import Extern
from intarsia_lowering import lower

ATEN = """// dialect: aten 2
graph(%p: b8[], %x: f32[2, 3]) {
  %0: (f32[2, 3], f32[3]) = cond[
    graph(%x: f32[2, 3]) {
      # a.py:1 in f
      %0: f32[2, 3] = aten.sin.default(%x)  #1
      # a.py:2 in f
      %1: f32[3] = aten.sum.dim_IntList(%0, [0])  #2
      return (%0, %1)
    }
    graph(%x: f32[2, 3]) {
      # a.py:3 in f
      %0: f32[2, 3] = aten.cos.default(%x)  #3
      %1: f32[3] = get_attr('held')
      # a.py:4 in f
      %2: f32[3] = aten.neg.default(%1)  #4
      return (%0, %2)
    }
  # a.py:5 in f
  ](%p, %x)  #5
  %1: f32[3] = operator.getitem(%0, 1)  #5
  # a.py:6 in f
  %2: f32[3] = aten.mul.Tensor(%1, 2)  #6
  return (%2,)
}
origins
  1 a.py
    f: 1, 2, 3, 4, 5, 6
"""
HELD, X = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])


def lowered(held: torch.Tensor = HELD) -> torch.fx.GraphModule:
    return lower(aten.parse_ir(ATEN, constants={"0.1.held": held}))


@pytest.mark.parametrize("p", [True, False])
def test_means_what_its_graphs_do(p: bool) -> None:
    (found,) = lowered()(torch.tensor(p), X)
    torch.testing.assert_close(found, 2 * (X.sin().sum(0) if p else -HELD))


def test_prints_its_graphs_and_reads_back() -> None:
    text = print_ir(lowered())
    assert "extern cond[" in text and "aten.cos.default(%x)" in text
    back = parse_ir(text, constants={"cond_0.1.held": HELD})
    assert print_ir(back) == text
    assert from_fx(back).items == from_fx(lowered()).items
    torch.testing.assert_close(back(torch.tensor(False), X), (-2 * HELD,))


def test_calls_that_hold_other_tensors_are_others() -> None:
    assert from_fx(lowered()).items != from_fx(lowered(HELD + 1)).items


def broken(**changes: object) -> list[str]:
    program = from_fx(lowered())
    call, *rest = program.items
    assert isinstance(call, Extern)
    with pytest.raises(VerifyError) as caught:
        verify(dataclasses.replace(program, items=(dataclasses.replace(call, **changes), *rest)))
    assert {rule for rule, _, _ in caught.value.findings} == {"L9"}
    return [message for _, _, message in caught.value.findings]


def test_l9_operands_that_the_graphs_do_not_take() -> None:
    (call, *_) = from_fx(lowered()).items
    assert isinstance(call, Extern)
    assert broken(args=(*call.args, *call.args[1:])) == [
        "the graph true has 1 inputs, not 2",
        "the graph false has 1 inputs, not 2",
    ]


def test_l9_a_graph_that_writes() -> None:
    text = ATEN.replace("aten.cos.default", "aten.cos_.default")
    gm = aten.parse_ir(text, constants={"0.1.held": HELD})
    target = next(n.target for n in gm.graph.nodes if n.op == "call_function")
    assert broken(target=target) == ["in the graph false, A11 at cos__default: writes self"]


def test_a_graph_of_another_number_of_results_is_refused() -> None:
    program = from_fx(lowered())
    assert program_text(program, "loops") == print_ir(to_fx(program))
    assert broken(outs=("cond_1",)) == ["its graphs don't give 1 results"]
