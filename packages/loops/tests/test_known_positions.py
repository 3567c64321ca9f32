"""Indexing by positions that are known as index expressions becomes a load; other indexing stays a call."""

import pytest
import torch

import intarsia_loops
from intarsia_ir.aten import interpret, parse_ir
from intarsia_loops.program import Extern

X = torch.arange(20.0).reshape(4, 5)


def lowered(body: str, result: str) -> tuple[bool, bool]:
    """Whether the program has calls, and whether it gives what eager gives."""
    aten = parse_ir(f"// dialect: aten 1\ngraph(%x: f32[4, 5], %j: i64[3]) {{\n{body}\n  return (%{result},)\n}}\n")
    inputs = (X, torch.tensor([0, 2, 1]))
    loops = intarsia_loops.lower(aten)
    (made,), (expected,) = intarsia_loops.loops.interpret(loops, *inputs), interpret(aten, *inputs)
    items = intarsia_loops.from_fx(loops).items
    return any(isinstance(i, Extern) for i in items), torch.equal(made, expected)


ARANGE = "  %0: i64[3] = aten.arange.default(3)\n  %1: i64[3] = aten.add.Tensor(%0, {shift})\n"


@pytest.mark.parametrize(
    ("shift", "body"),
    [
        (1, "  %2: f32[3, 5] = aten.index.Tensor(%x, [%1])"),
        (-3, "  %2: f32[3, 5] = aten.index.Tensor(%x, [%1])"),  # counted from the back
        (1, "  %2: f32[4, 3] = aten.index.Tensor(%x, [None, %1])"),
        (0, "  %2: f32[3] = aten.index.Tensor(%x, [%0, %1])"),
        (2, "  %2: f32[4, 3] = aten.index_select.default(%x, 1, %1)"),
        (1, "  %2: f32[3, 5] = aten.embedding.default(%x, %1)"),
    ],
)
def test_known_positions_become_loads(shift: int, body: str) -> None:
    assert lowered(ARANGE.format(shift=shift) + body, "2") == (False, True)


def test_positions_apart_stand_in_front() -> None:
    body = """
  %0: i64[2] = aten.arange.default(2)
  %1: f32[2, 2, 5] = aten.view.default(%x, [2, 2, 5])
  %2: f32[2, 2] = aten.index.Tensor(%1, [%0, None, %0])
"""
    assert lowered(body, "2") == (False, True)


def test_gather_along_a_dimension() -> None:
    body = """
  %0: i64[4] = aten.arange.default(4)
  %1: i64[4, 1] = aten.unsqueeze.default(%0, 1)
  %2: f32[4, 1] = aten.gather.default(%x, 1, %1)
"""
    assert lowered(body, "2") == (False, True)


@pytest.mark.parametrize(
    ("shift", "body"),
    [
        (0, "  %2: f32[3, 5] = aten.index.Tensor(%x, [%j])"),  # data
        (0, "  %2: f32[3, 5] = aten.embedding.default(%x, %j)"),
    ],
)
def test_positions_in_data_are_refused(shift: int, body: str) -> None:
    assert lowered(ARANGE.format(shift=shift) + body, "2") == (True, True)


def test_positions_that_may_be_out_of_range_are_refused() -> None:
    """Eager raises for them, and so does the call that they stay."""
    aten = parse_ir(
        "// dialect: aten 1\ngraph(%x: f32[4, 5]) {\n"
        + ARANGE.format(shift=2)
        + "  %2: f32[3, 5] = aten.index.Tensor(%x, [%1])\n  return (%2,)\n}\n"
    )
    with pytest.raises(IndexError):
        intarsia_loops.loops.interpret(intarsia_loops.lower(aten), X)
