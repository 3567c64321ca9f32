"""Indexing by positions that are known as index expressions becomes a load; other indexing stays a call."""

import pytest
import torch

import intarsia_loops
import intarsia_lowering
from intarsia_ir.aten import interpret, parse_ir
from intarsia_loops.program import Extern

X = torch.arange(20.0).reshape(4, 5)


def lowered(body: str, result: str) -> tuple[bool, bool]:
    """Whether the program has calls, and whether it gives what eager gives."""
    aten = parse_ir(f"// dialect: aten 2\ngraph(%x: f32[4, 5], %j: i64[3]) {{\n{body}\n  return (%{result},)\n}}\n")
    inputs = (X, torch.tensor([0, 2, 1]))
    loops = intarsia_lowering.lower(aten)
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
    """Eager raises for them, and so does the check in front of the gather that they become."""
    aten = parse_ir(
        "// dialect: aten 2\ngraph(%x: f32[4, 5]) {\n"
        + ARANGE.format(shift=2)
        + "  %2: f32[3, 5] = aten.index.Tensor(%x, [%1])\n  return (%2,)\n}\n"
    )
    with pytest.raises(RuntimeError, match="index out of range"):
        intarsia_loops.loops.interpret(intarsia_lowering.lower(aten), X)


@pytest.mark.parametrize(
    ("call", "index"),
    [
        ("aten.index.Tensor(%x, [%i])", torch.tensor([3, -4, 0])),
        ("aten.index.Tensor(%x, [None, %i])", torch.tensor([4, -5, 2])),
        ("aten.gather.default(%x, 0, %i)", torch.tensor([[3, 0, 1, 2, 2], [0, 0, 3, 1, 0], [1, 1, 1, 1, 1]])),
        ("aten.index_select.default(%x, 0, %i)", torch.tensor([3, 0, 3])),
    ],
)
def test_data_dependent_positions_are_checked_gathers(call: str, index: torch.Tensor) -> None:
    """A nest that gathers, and a check of the index tensor as the only extern call."""
    shape = ", ".join(map(str, index.shape))
    result = "f32[4, 3]" if "None" in call else "f32[3, 5]"
    text = f"graph(%x: f32[4, 5], %i: i64[{shape}]) {{\n  %0: {result} = {call}\n  return (%0,)\n}}\n"
    lowered = intarsia_lowering.lower(parse_ir("// dialect: aten 2\n" + text))
    items = intarsia_loops.from_fx(lowered).items
    assert [str(i.target) for i in items if isinstance(i, intarsia_loops.Extern)] == ["aten._assert_async.msg"]
    expected = {
        "aten.index.Tensor(%x, [%i])": lambda: X[index],
        "aten.index.Tensor(%x, [None, %i])": lambda: X[:, index],
        "aten.gather.default(%x, 0, %i)": lambda: X.gather(0, index),
        "aten.index_select.default(%x, 0, %i)": lambda: X.index_select(0, index),
    }[call]()
    assert torch.equal(intarsia_loops.loops.interpret(lowered, X, index)[0], expected)
    outside = torch.full_like(index, 7)
    with pytest.raises(RuntimeError, match="index out of range"):
        intarsia_loops.loops.interpret(lowered, X, outside)


@pytest.mark.parametrize(
    ("body", "calls"),
    [
        ("%2: f32[3, 5] = aten.mul.Tensor(%1, 2)", ["_assert_async"]),
        ("%2: f32[3, 1, 5] = aten.unsqueeze.default(%1, 1)", ["embedding"]),  # a copy of rows, nothing else
        ("%2: f32[3, 4] = aten.mm.default(%1, %w)", ["embedding", "mm"]),
    ],
)
def test_an_embedding_is_a_nest_where_nests_read_it(body: str, calls: list[str]) -> None:
    assert called("%1: f32[3, 5] = aten.embedding.default(%x, %j)", body) == calls


def test_an_embedding_of_computed_indices_is_a_call() -> None:
    """A kernel that looks rows up would compute them again for each."""
    lines = (
        "%0: i64[3] = aten.remainder.Scalar(%j, 2)",
        "%1: f32[3, 5] = aten.embedding.default(%x, %0)",
        "%2: f32[3, 5] = aten.mul.Tensor(%1, 2)",
    )
    assert called(*lines) == ["embedding"]


def called(*lines: str) -> list[str]:
    """The operators that are called, by name."""
    body = "\n".join(f"  {line}" for line in lines)
    aten = parse_ir(
        f"// dialect: aten 1\ngraph(%x: f32[4, 5], %j: i64[3], %w: f32[5, 4]) {{\n{body}\n  return (%2,)\n}}\n"
    )
    items = intarsia_loops.from_fx(intarsia_lowering.lower(aten)).items
    return [str(i.target).split(".")[1] for i in items if isinstance(i, Extern)]
