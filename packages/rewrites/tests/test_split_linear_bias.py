"""Biases of products are added by ops of their own where a pointwise op reads the sum; values and strides stay."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir import aten, meta
from intarsia_ir.aten import parse_ir
from intarsia_ir.records import Target
from intarsia_rewrites import split_linear_bias
from intarsia_testkit.fired import Tally

OPS: Any = torch.ops.aten
# tensors on the CPU, beside units that this machine doesn't have
UNITS = Target("cpu", measured=Target("cuda", "sm_90").machine)
# what reads the sum -> whether its bias is split off
READERS = {
    "pointwise": ("%1: {t}[2, 3] = aten.relu.default(%0)\n  return (%1,)", True),
    "through a view": (
        "%1: {t}[1, 2, 3] = aten.view.default(%0, [1, 2, 3])\n"
        "  %2: {t}[1, 2, 3] = aten.gelu.default(%1)\n  return (%2,)",
        True,
    ),
    "turned": (
        "%1: {t}[3, 2] = aten.permute.default(%0, [1, 0])\n  %2: {t}[3, 2] = aten.mul.Tensor(%1, 2)\n  return (%2,)",
        True,
    ),
    "several": (
        "%1: {t}[2, 3] = aten.relu.default(%0)\n  %2: {t}[2, 3] = aten.mul.Tensor(%0, %1)\n  return (%2,)",
        True,
    ),
    "a result": ("return (%0,)", False),
    "a product": (
        "%1: {t}[3, 2] = aten.permute.default(%0, [1, 0])\n  %2: {t}[2, 2] = aten.mm.default(%0, %1)\n  return (%2,)",
        False,
    ),
    "a result too": ("%1: {t}[2, 3] = aten.relu.default(%0)\n  return (%1, %0)", False),
}
fired = Tally("split_linear_bias: readers of a sum", list(READERS))


def product(reader: str, dtype: str = "f32", bias: str = "[3]", scale: str = "") -> torch.fx.GraphModule:
    """Return FX(aten) of a product with a bias."""
    return parse_ir(f"""// dialect: aten 2
graph(%b: {dtype}{bias}, %x: {dtype}[2, 4], %w: {dtype}[4, 3]) {{
  %0: {dtype}[2, 3] = aten.addmm.default(%b, %x, %w{scale})  # model.py:1 in forward
  {READERS[reader][0].format(t=dtype)}
}}
""")


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(READERS)),
    st.sampled_from(["f32", "f64"]),
    st.sampled_from(["[3]", "[2, 3]"]),
    st.sampled_from(["", ", beta=0.5", ", alpha=2"]),
)
def test_values_stay(reader: str, dtype: str, bias: str, scale: str) -> None:
    gm = product(reader, dtype, bias, scale)
    before = aten.print_ir(gm)
    made = split_linear_bias(gm, target=UNITS)
    assert aten.print_ir(gm) == before
    assert (made is not gm) is (READERS[reader][1] and dtype == "f32" and bias == "[3]" and not scale)
    fired.count(reader)
    torch.manual_seed(0)
    inputs = [
        torch.randn(meta.value(n).shape, dtype=meta.value(n).dtype) for n in gm.graph.find_nodes(op="placeholder")
    ]
    for a, e in zip(aten.interpret(made, *inputs), aten.interpret(gm, *inputs), strict=True):
        torch.testing.assert_close(a, e)
        assert a.stride() == e.stride()
    assert split_linear_bias(made, target=UNITS) is made


def test_every_reader_was_drawn() -> None:
    assert not fired.missing()


def test_origins_and_fuel() -> None:
    gm = product("several")
    assert aten.print_ir(split_linear_bias(gm, target=UNITS)).count("  #1\n") == 2
    assert split_linear_bias(gm, target=UNITS, fuel=0) is gm


@pytest.mark.parametrize("target", [Target("cuda", "sm_90"), Target("cpu", "avx512")])
def test_other_devices_and_machines_are_left_alone(target: Target) -> None:
    gm = product("pointwise")
    assert split_linear_bias(gm, target=target) is gm
