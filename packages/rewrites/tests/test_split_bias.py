"""Biases of convolutions are added by ops of their own; values and strides stay."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir import aten, meta
from intarsia_ir.aten import parse_ir
from intarsia_ir.records import Target
from intarsia_rewrites import split_convolution_bias
from intarsia_testkit.fired import Tally

OPS: Any = torch.ops.aten
# tensors on the CPU, beside units that this machine doesn't have
UNITS = Target("cpu", measured=Target("cuda", "sm_90").machine)
fired = Tally(
    "split_convolution_bias: convolutions",
    ["biased", "bare", "transposed", "grouped", "channels last", "1d", "2d", "3d"],
)


LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def convolution(dims: int, bias: bool, transposed: bool, groups: int, last: bool = False) -> torch.fx.GraphModule:
    """Return FX(aten) of one convolution of four channels to four, and a ReLU."""
    a, b, at = "2, 4" + ", 5" * dims, "4, " + str(4 // groups) + ", 3" * dims, f"[{', '.join('1' * dims)}]"
    none = f"[{', '.join('0' * dims)}]"
    side = 7 if transposed else 3
    result = f"f32[2, 4{f', {side}' * dims}]"
    rest = f"{at}, {none}, {at}, {transposed}, {none}, {groups}"
    text = f"""// dialect: aten 2
graph(%x: f32[{a}], %w: f32[{b}], %b: f32[4]) {{
  %c: f32[{a}] = aten.clone.default(%x, memory_format={LAST[dims] if last else torch.contiguous_format})
  %0: {result} = aten.convolution.default(%c, %w, {"%b" if bias else None}, {rest})  # model.py:1 in forward
  %1: {result} = aten.relu.default(%0)  # model.py:2 in forward
  return (%1, %0)
}}
"""
    gm = parse_ir(text)
    (image,) = gm.graph.find_nodes(op="call_function", target=OPS.clone.default)
    if last:  # a type in a text says nothing of strides
        meta.set_value(image, meta.value(image).contiguous(memory_format=LAST[dims]))
    return gm


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.sampled_from([1, 2, 3]), st.booleans(), st.booleans(), st.sampled_from([1, 2, 4]), st.booleans())
def test_values_stay(dims: int, bias: bool, transposed: bool, groups: int, last: bool) -> None:
    last = last and dims in LAST
    gm = convolution(dims, bias, transposed, groups, last)
    before = aten.print_ir(gm)
    made = split_convolution_bias(gm, target=UNITS)
    assert aten.print_ir(gm) == before
    by_torch_itself = groups == 4 and not transposed and not last
    assert (made is not gm) is (bias and not by_torch_itself)
    kinds = {"biased": bias, "bare": not bias, "transposed": transposed, "grouped": groups > 1, "channels last": last}
    for name in (name for name, is_so in kinds.items() if is_so):
        fired.count(name)
    fired.count(f"{dims}d")
    torch.manual_seed(0)
    inputs = [torch.randn(meta.value(n).shape) for n in gm.graph.find_nodes(op="placeholder")]
    for a, e in zip(aten.interpret(made, *inputs), aten.interpret(gm, *inputs), strict=True):
        torch.testing.assert_close(a, e)
        assert a.stride() == e.stride()
    for node in made.graph.find_nodes(op="call_function", target=OPS.convolution.default):
        assert made is gm or node.args[2] is None
    assert split_convolution_bias(made, target=UNITS) is made


def test_every_kind_was_drawn() -> None:
    assert not fired.missing()


def test_layout_and_origins_stay() -> None:
    gm = convolution(2, True, False, 1)
    made = split_convolution_bias(gm, target=UNITS)
    assert [aten.print_ir(made).count(f"  #{line}\n") for line in (1, 2)] == [3, 1]


@pytest.mark.parametrize("target", [Target("cuda", "sm_90"), Target("cpu", "avx512")])
def test_other_devices_and_machines_are_left_alone(target: Target) -> None:
    gm = convolution(2, True, False, 1)
    assert split_convolution_bias(gm, target=target) is gm
    assert split_convolution_bias(gm, target=UNITS, fuel=0) is gm


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.sampled_from([1, 2, 3]), st.tuples(*[st.booleans()] * 3), st.sampled_from([1, 4]))
def test_gradients_are_sums(dims: int, mask: tuple[bool, bool, bool], groups: int) -> None:
    gm = backward(dims, mask, groups)
    before = aten.print_ir(gm)
    made = split_convolution_bias(gm, target=UNITS)
    assert aten.print_ir(gm) == before
    assert (made is not gm) is mask[2]
    calls = made.graph.find_nodes(op="call_function", target=OPS.convolution_backward.default)
    assert [c.args[-1] for c in calls] == ([] if mask == (False, False, True) else [[*mask[:2], False]])
    torch.manual_seed(0)
    inputs = [torch.randn(meta.value(n).shape) for n in gm.graph.find_nodes(op="placeholder")]
    for a, e in zip(aten.interpret(made, *inputs), aten.interpret(gm, *inputs), strict=True):
        torch.testing.assert_close(a, e)
        assert a.stride() == e.stride()
    assert split_convolution_bias(made, target=UNITS) is made
    assert split_convolution_bias(gm, target=UNITS, fuel=0) is gm


def backward(dims: int, mask: tuple[bool, bool, bool], groups: int) -> torch.fx.GraphModule:
    """Return FX(aten) of the gradients of one convolution with a bias that the mask asks for."""
    image = "2, 4" + ", 5" * dims
    weight, at, none = f"4, {4 // groups}" + ", 3" * dims, f"[{', '.join('1' * dims)}]", f"[{', '.join('0' * dims)}]"
    back = image.replace("5", "3")
    kinds = [
        f"f32[{shape}]" if is_asked else "=None" for shape, is_asked in zip((image, weight, "4"), mask, strict=True)
    ]
    results = [k for k in range(3) if mask[k]]
    parts = "\n".join(f"  %r{k}: {kinds[k]} = operator.getitem(%g, {k})  # model.py:1 in forward" for k in results)
    call = f"%dy, %x, %w, [4], {at}, {none}, {at}, False, {none}, {groups}, {list(mask)}"
    return parse_ir(f"""// dialect: aten 2
graph(%dy: f32[{back}], %x: f32[{image}], %w: f32[{weight}]) {{
  %g: ({", ".join(kinds)}) = aten.convolution_backward.default({call})  # model.py:1 in forward
{parts}
  return ({", ".join(f"%r{k}" for k in results)}{"," if len(results) == 1 else ""})
}}
""")
