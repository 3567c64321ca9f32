"""What golden files can't show: arguments, refusals, element types, and values at the edge."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx

from intarsia_ir.aten import interpret, parse_ir, print_ir
from intarsia_ir.dtypes import DTYPE_NAMES
from intarsia_ir.errors import InvalidArgumentError, VerifyError
from intarsia_rewrites import eliminate_common_subexpressions, eliminate_dead_code, fold_constants

PASSES = (eliminate_common_subexpressions, eliminate_dead_code, fold_constants)
Pass = Callable[..., fx.GraphModule]
EDGES = [0.0, -0.0, 1.0, -1.5, float("inf"), -float("inf"), float("nan"), 1e-45, 3e38]


def program(inputs: str, *calls: str, returns: str) -> fx.GraphModule:
    """Return a graph; `calls` are lines such as "f32[2] = aten.neg.default(%x)", numbered from 0."""
    lines = [f"  %{n}: {call}  # m.py:{n + 1} in f\n" for n, call in enumerate(calls)]
    return parse_ir(f"// dialect: aten 2\ngraph({inputs}) {{\n{''.join(lines)}  return ({returns},)\n}}\n")


def calls(gm: fx.GraphModule) -> list[str]:
    return [str(node.target) for node in gm.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("pass_", PASSES)
def test_writes_are_rejected(pass_: Pass) -> None:
    gm = program("%x: f32[2]", "f32[2] = aten.add_.Tensor(%x, 1)", returns="%0")
    with pytest.raises(VerifyError, match="A11"):
        pass_(gm)
    assert len(calls(pass_(gm, check=False))) == 1


@pytest.mark.parametrize("pass_", PASSES)
def test_fuel_is_checked(pass_: Pass) -> None:
    with pytest.raises(InvalidArgumentError, match="-1"):
        pass_(program("%x: f32[2]", returns="%x"), fuel=-1)


@pytest.mark.parametrize("pass_", PASSES)
def test_fuel_counts_edits(pass_: Pass) -> None:
    """Each of three equal, needless, dead triples is one edit a pass can make."""
    lines = [
        "f32[2] = aten.neg.default(%x)",
        *("f32[2] = aten.mul.Tensor(%0, 1)" for _ in range(3)),
        "f32[2] = aten.add.Tensor(%0, %0)",
    ]
    gm = program("%x: f32[2]", *lines, returns="%4")
    sizes = [len(calls(pass_(gm, fuel=fuel))) for fuel in range(5)]
    assert sizes[0] == 5
    assert all(0 <= a - b <= 1 for a, b in itertools.pairwise(sizes))
    assert sizes[-1] == len(calls(pass_(gm)))


@pytest.mark.parametrize("pass_", PASSES)
def test_without_an_edit_the_given_graph_comes_back(pass_: Pass) -> None:
    gm = program("%x: f32[2]", "f32[2] = aten.neg.default(%x)", returns="%0")
    assert pass_(gm) is gm


def test_the_result_runs_as_a_module() -> None:
    gm = program("%x: f32[2]", "f32[2] = aten.neg.default(%x)", "f32[2] = aten.mul.Tensor(%0, 1)", returns="%1")
    assert fold_constants(gm)(torch.ones(2))[0].tolist() == [-1, -1]


NEUTRAL = [
    "aten.add.Tensor(%x, -0.0)",
    "aten.sub.Tensor(%x, 0)",
    "aten.sub.Tensor(%x, 0.0)",
    "aten.mul.Tensor(%x, 1)",
    "aten.mul.Tensor(%x, 1.0)",
    "aten.div.Tensor(%x, 1)",
    "aten.pow.Tensor_Scalar(%x, 1)",
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("call", NEUTRAL)
def test_neutral_operands_are_exact(call: str, dtype: torch.dtype) -> None:
    """Bit for bit, also for -0.0, infinities, NaN and denormals: that's why x + 0.0 isn't in the list."""
    name = DTYPE_NAMES[dtype]
    gm = program(f"%x: {name}[9]", f"{name}[9] = {call}", f"{name}[9] = aten.neg.default(%0)", returns="%1")
    folded = fold_constants(gm)
    assert len(calls(folded)) == 1
    x = torch.tensor(EDGES).to(dtype)
    (expected,), (found,) = interpret(gm, x), interpret(folded, x)
    assert torch.equal(torch.signbit(expected), torch.signbit(found))
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("narrow", "wide", "folds"),
    [
        ("f16", "f32", True),
        ("bf16", "f32", True),
        ("f32", "f64", True),
        ("f16", "bf16", False),
        ("bf16", "f16", False),
        ("f64", "f32", False),
        ("i8", "i64", True),
        ("u8", "i8", False),
        ("u8", "i16", True),
        ("i32", "f32", False),
        ("i32", "f64", True),
        ("i64", "f64", False),
        ("b8", "u8", True),
    ],
)
def test_cast_round_trips(narrow: str, wide: str, folds: bool) -> None:
    gm = program(
        f"%x: {narrow}[2]",
        f"{wide}[2] = aten._to_copy.default(%x, dtype={wide})",
        f"{narrow}[2] = aten._to_copy.default(%0, dtype={narrow})",
        "b8[2] = aten.isnan.default(%1)",
        returns="%2",
    )
    assert (len(calls(fold_constants(gm))) == 1) is folds


@pytest.mark.parametrize("value", ["-0.0", "nan", "inf", "1e-45", "0.1"])
def test_uniform_values_are_exact(value: str) -> None:
    gm = program(
        "%x: f32[4]",
        f"f32[4] = aten.full.default([4], {value})",
        "f32[4] = aten.mul.Tensor(%0, 0.5)",
        "f32[4] = aten.copysign.Tensor(%x, %1)",
        returns="%1, %2",
    )
    folded = fold_constants(gm)
    assert calls(folded) == ["aten.full.default", "aten.copysign.Tensor"]
    for found, expected in zip(interpret(folded, torch.ones(4)), interpret(gm, torch.ones(4)), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(torch.signbit(found), torch.signbit(expected))


def test_constants_are_computed_once_and_kept_by_the_graph() -> None:
    gm = program(
        "%x: f32[5]",
        "f32[5] = aten.arange.default(5, dtype=f32)",
        "f32[5] = aten.cumsum.default(%0, 0)",
        "f32[5] = aten.add.Tensor(%x, %1)",
        returns="%2",
    )
    folded = fold_constants(gm)
    (constant,) = (n for n in folded.graph.nodes if n.op == "get_attr")
    assert getattr(folded, constant.target).tolist() == [0, 1, 3, 6, 10]
    assert interpret(folded, torch.zeros(5))[0].tolist() == [0, 1, 3, 6, 10]


def test_tensors_of_the_user_are_no_constants() -> None:
    """An attribute may be a tensor that somebody writes to later; only literals are known."""
    table = torch.arange(3.0)
    text = """// dialect: aten 2
graph(%x: f32[3]) {
  # m.py:1 in f
  %0: f32[3] = get_attr('table')  #1
  %1: f32[3] = aten.cumsum.default(%0, 0)  #1
  %2: f32[3] = aten.add.Tensor(%x, %1)  #1
  return (%2,)
}
origins
  1 m.py
    f: 1
"""
    gm = parse_ir(text, constants={"table": table})
    assert print_ir(fold_constants(gm)) == print_ir(gm)


def test_marked_regions_are_kept_apart() -> None:
    from intarsia_ir import meta

    lines = ["f32[2] = aten.sin.default(%x)"] * 2 + ["f32[2] = aten.mul.Tensor(%0, %1)"]
    gm = program("%x: f32[2]", *lines, returns="%2")
    meta.set_region([n for n in gm.graph.nodes if n.op == "call_function"][1], "checkpoint", 0)
    assert len(calls(eliminate_common_subexpressions(gm))) == 3


def test_nan_equals_nan_and_types_differ() -> None:
    def merged(a: Any, b: Any) -> bool:
        lines = [f"i64[2] = aten.mul.Tensor(%x, {v})" for v in (a, b)] + ["i64[2] = aten.add.Tensor(%0, %1)"]
        gm = program("%x: i64[2]", *lines, returns="%2")
        return len(calls(eliminate_common_subexpressions(gm))) == 2

    assert merged("nan", "nan")
    assert merged("1", "1")
    assert not merged("1", "1.0")
    assert not merged("1", "True")
    assert not merged("0.0", "-0.0")


@pytest.mark.parametrize(
    ("views", "strides"),
    [
        (["f32[2, 3]@(0, 1) = aten.expand.default(%1, [2, 3])"], (0, 1)),
        (["f32[3, 1] = aten.unsqueeze.default(%1, 1)", "f32[3, 2]@(1, 0) = aten.expand.default(%2, [3, 2])"], (1, 0)),
        (["f32[1]+2 = aten.slice.Tensor(%1, 0, 2, 3)", "f32[2]@(0)+2 = aten.expand.default(%2, [2])"], (0,)),
        (["f32[0]+3 = aten.slice.Tensor(%1, 0, 3, 3)", "f32[2, 0]@(0, 1)+3 = aten.expand.default(%2, [2, 0])"], (0, 1)),
        (["f32[2, 2]@(1, 1) = aten.as_strided.default(%1, [2, 2], [1, 1])"], (1, 1)),
    ],
)
def test_constants_that_repeat_elements_are_folded(views: list[str], strides: tuple[int, ...]) -> None:
    """One element is stored where the stride is 0: writing all of them is refused by ATen."""
    last, shape = 1 + len(views), views[-1].split("@")[0]
    lines = ["f32[3] = aten.arange.default(3, dtype=f32)", "f32[3] = aten.cumsum.default(%0, 0)", *views]
    gm = program(f"%x: {shape}", *lines, f"{shape} = aten.add.Tensor(%x, %{last})", returns=f"%{last + 1}")
    folded = fold_constants(gm)
    assert calls(folded) == ["aten.add.Tensor"]
    (stored,) = [getattr(folded, n.target) for n in folded.graph.nodes if n.op == "get_attr"]
    assert stored.stride() == strides
    x = torch.ones(stored.shape)
    torch.testing.assert_close(interpret(folded, x), interpret(gm, x))


@pytest.mark.parametrize("copy", ["clone.default(%x)", "mul.Tensor(%x, 1)", "_to_copy.default(%x, dtype=f32)"])
@pytest.mark.parametrize(
    "lines",
    [
        ["f32[2]@(2)+1 = aten.as_strided.default(%0, [2], [2], 1)"],
        ["f32[4] = aten.view.default(%0, [4])", "f32[2]@(2)+1 = aten.as_strided.default(%1, [2], [2], 1)"],
        ["f32[4] = aten.as_strided_scatter.default(%0, %y, [2], [2], 1)"],
        ["f64[2] = aten.view.dtype(%0, f64)"],
        ["f32[2, 2] = aten.view.default(%0, [2, 2])", "c64[2] = aten.view_as_complex.default(%1)"],
    ],
)
def test_what_is_addressed_in_its_storage_stays_there(copy: str, lines: list[str]) -> None:
    """An input may begin anywhere in its storage, a copy begins at the beginning of its own."""
    gm = program("%x: f32[4], %y: f32[2]", f"f32[4] = aten.{copy}", *lines, returns=f"%{len(lines)}")
    folded = fold_constants(gm)
    assert calls(folded)[0] == f"aten.{copy.partition('(')[0]}"
    x, y = torch.arange(9.0)[3:7], torch.zeros(2)
    assert x.storage_offset() == 3
    torch.testing.assert_close(interpret(folded, x, y), interpret(gm, x, y))
    plain = program("%x: f32[4], %y: f32[2]", f"f32[4] = aten.{copy}", "f32[4] = aten.neg.default(%0)", returns="%1")
    assert calls(fold_constants(plain)) == ["aten.neg.default"]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch is built without torch.distributed")
@pytest.mark.parametrize("pass_", PASSES)
def test_collectives_are_neither_merged_nor_dropped(pass_: Pass) -> None:
    """Other processes count them."""
    one = 'f32[2] = _c10d_functional.all_reduce.default(%x, "sum", "0")'
    waits = [f"f32[2] = _c10d_functional.wait_tensor.default(%{n})" for n in (0, 1)]
    gm = program("%x: f32[2]", one, one, *waits, returns="%2")
    assert calls(pass_(gm)) == calls(gm)


def test_a_view_with_a_computed_size_that_is_known_is_no_view() -> None:
    """As after an equation: the size is read where it was open, and has one value."""
    gm = program(
        "%x: f32[1, 4], %y: f32[4]",
        "=4 = aten.sym_size.int(%y, 0)",
        "f32[1, 4] = aten.expand.default(%x, [1, %0])",
        "f32[1, 4] = aten.view.default(%1, [1, %0])",
        "f32[1, 4] = aten.neg.default(%2)",
        "f32[4, 4] = aten.expand.default(%3, [4, %0])",
        "f32[4, 4] = aten.expand.default(%4, [%0, 4])",
        returns="%5",
    )
    assert calls(fold_constants(gm)) == ["aten.sym_size.int", "aten.neg.default", "aten.expand.default"]
