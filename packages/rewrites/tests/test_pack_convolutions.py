"""Convolutions over packed weights: values within the rounding of another order, strides of old, NaN kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.fx as fx
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir import aten
from intarsia_ir.aten import parse_ir
from intarsia_rewrites import pack_convolutions

OPS: Any = torch.ops.aten
PACKED = "mkldnn._convolution_pointwise.default"
pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is built without the library")


def targets(gm: fx.GraphModule) -> list[str]:
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


def program(
    x: torch.Tensor, w: torch.Tensor, rest: Any, reader: str, bias: str = "None"
) -> tuple[fx.GraphModule, tuple[int, ...]]:
    """Return FX(aten) of a convolution and what reads it, and the sizes of its result."""
    sizes = tuple(OPS.convolution.default(x, w, None, *rest).shape)
    shape = f"f32[{', '.join(map(str, sizes))}]"
    lines = {
        "result": ["return (%0,)"],
        "relu": [f"%1: {shape} = aten.relu.default(%0)", "return (%1,)"],
        "both": [f"%1: {shape} = aten.relu.default(%0)", "return (%1, %0)"],
        "flat": [
            f"%1: f32[{torch.Size(sizes).numel()}] = aten.view.default(%0, [-1])",
            f"%2: f32[{torch.Size(sizes).numel()}] = aten.neg.default(%1)",
            "return (%2,)",
        ],
        "added": [f"%1: {shape} = aten.add.Tensor(%0, %0)", "return (%1,)"],
    }[reader]
    body = "\n  ".join(lines)
    inputs = f"%x: f32{list(x.shape)}, %w: f32{list(w.shape)}, %b: f32[{sizes[1]}]"
    call = f"aten.convolution.default(%x, %w, {bias}, {', '.join(map(str, rest))})  # model.py:1 in forward"
    return parse_ir(f"// dialect: aten 2\ngraph({inputs}) {{\n  %0: {shape} = {call}\n  {body}\n}}\n"), sizes


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    st.sampled_from(["result", "relu", "both", "flat", "added"]),
    st.tuples(st.integers(1, 2), st.integers(1, 5), st.integers(1, 20), st.sampled_from([1, 3])),
    st.tuples(st.integers(1, 2), st.integers(0, 1), st.integers(1, 2)),
    st.booleans(),
)
def test_values_and_strides_stay(reader: str, sizes: Any, window: Any, has_bias: bool) -> None:
    torch.manual_seed(0)
    (n, c, o, k), (stride, padding, dilation) = sizes, window
    x, w, b = torch.randn(n, c, 8, 7), torch.randn(o, c, k, k), torch.randn(o)
    rest = ([stride] * 2, [padding] * 2, [dilation] * 2, False, [0, 0], 1)
    gm, _ = program(x, w, rest, reader, "%b" if has_bias else "None")
    before = aten.print_ir(gm)
    done = pack_convolutions(gm, values={"w": w}, least_flops=0)
    made = done.graph_module
    assert aten.print_ir(gm) == before and done.read == ("w",)
    assert targets(made)[0] == PACKED and "aten.convolution.default" not in targets(made)
    assert ("aten.relu.default" in targets(made)) is (reader in ("relu", "both"))
    aten.verify(made, functional=True, origins=False)
    magnitude = OPS.convolution.default(x.abs().double(), w.abs().double(), b.abs().double(), *rest)
    bound = 8 * torch.finfo(torch.float32).eps * float(magnitude.max())
    for a, e in zip(aten.interpret(made, x, w, b), aten.interpret(gm, x, w, b), strict=True):
        assert a.stride() == e.stride() and float((a - e).abs().max()) <= bound
    again = pack_convolutions(made, values={"w": w}, least_flops=0)
    assert again.graph_module is made and again.read == ()
    assert pack_convolutions(gm, values={"w": w}, least_flops=0, fuel=0).graph_module is gm


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_a_relu_behind_it_keeps_what_is_no_number(number: float) -> None:
    x, w = torch.ones(1, 2, 6, 6), torch.ones(4, 2, 3, 3)
    w[:, 1] = -1
    x[0, :, 1, 2] = number
    gm, _ = program(x, w, PLAIN, "relu")
    made = pack_convolutions(gm, values={"w": w}, least_flops=0).graph_module
    (expected,) = aten.interpret(gm, x, w, torch.zeros(4))
    assert PACKED in targets(made) and bool(expected.isnan().any())
    torch.testing.assert_close(aten.interpret(made, x, w, torch.zeros(4))[0], expected, equal_nan=True)


PLAIN = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)


@pytest.mark.parametrize(
    ("x", "w", "rest"),
    [
        ((1, 4, 6, 6), (4, 2, 3, 3), (*PLAIN[:5], 2)),
        ((1, 4, 6, 6), (4, 4, 3, 3), (*PLAIN[:3], True, [0, 0], 1)),
        ((1, 4, 6), (4, 4, 3), ([1], [0], [1], False, [0], 1)),
        ((1, 4, 3, 3, 3), (4, 4, 3, 3, 3), ([1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1)),
        ((0, 4, 6, 6), (4, 4, 3, 3), PLAIN),
    ],
    ids=["groups", "transposed", "1d", "3d", "empty"],
)
def test_others_are_left(x: tuple[int, ...], w: tuple[int, ...], rest: Any) -> None:
    weight = torch.randn(w)
    gm, _ = program(torch.randn(x), weight, rest, "relu")
    assert pack_convolutions(gm, values={"w": weight}, least_flops=0).graph_module is gm


def test_what_is_small_unknown_or_of_another_type_is_left() -> None:
    x, w = torch.randn(1, 4, 6, 6), torch.randn(4, 4, 3, 3)
    gm, _ = program(x, w, PLAIN, "relu")
    for how in ({"values": {}}, {"values": {"w": w}, "dtypes": (torch.bfloat16,)}, {"values": {"w": w}}):
        done = pack_convolutions(gm, **{"least_flops": 0 if how != {"values": {"w": w}} else 10**6, **how})
        assert done.graph_module is gm and done.read == ()
