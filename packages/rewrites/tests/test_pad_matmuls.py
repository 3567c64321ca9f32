"""Large products of awkward sizes are padded; values stay, and results keep their sizes and strides."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir import aten, meta
from intarsia_ir.records import Target
from intarsia_rewrites import pad_matmuls
from intarsia_testkit.fired import Tally

OPS: Any = torch.ops.aten
# tensors on the CPU, beside units that this machine doesn't have
UNITS = Target("cpu", measured=Target("cuda", "sm_90").machine)
fired = Tally("pad_matmuls: what is padded", ["m", "k", "n", "bias", "nothing"])


def program(a, b, bias=None):
    """Return the graph of a product of matrices like these, which may be transposed, and a sum after it."""
    a_text, b_text = (f"f32{list(x.t().shape if x.stride(1) != 1 else x.shape)}" for x in (a, b))
    inputs = f"%x: {a_text}, %y: {b_text}" + (f", %z: f32{list(bias.shape)}" if bias is not None else "")
    lines = ["// dialect: aten 2", f"graph({inputs}) {{"]
    names = []
    for name, x in (("x", a), ("y", b)):
        names.append(name if x.stride(1) == 1 else f"{name}t")
        if x.stride(1) != 1:
            kind = f"f32{list(x.shape)}@{x.stride()}"
            lines.append(f"  %{name}t: {kind} = aten.t.default(%{name})  # model.py:1 in forward")
    shape = [a.shape[0], b.shape[1]]
    call = f"aten.mm.default(%{names[0]}, %{names[1]})"
    if bias is not None:
        call = f"aten.addmm.default(%z, %{names[0]}, %{names[1]}, beta=2, alpha=0.5)"
    lines += [f"  %0: f32{shape} = {call}  # model.py:2 in forward", "  return (%0,)", "}", ""]
    return aten.parse_ir("\n".join(lines))


def padded(gm):
    """Pad whatever can be."""
    return pad_matmuls(gm, target=UNITS, dtypes=(torch.float32,), least_flops=0, intensity=(0, 0))


def targets(gm):
    return [str(n.target).removeprefix("aten.") for n in gm.graph.nodes if n.op == "call_function"]


matrices = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.booleans(), st.booleans())


@settings(derandomize=True, deadline=None, max_examples=80)
@given(matrices, st.sampled_from(["none", "row", "column", "whole", "one", "vector"]))
def test_values_sizes_and_strides_stay(sizes, kind):
    m, k, n, a_turned, b_turned = sizes
    a = torch.randn(k, m).t() if a_turned else torch.randn(m, k)
    b = torch.randn(n, k).t() if b_turned else torch.randn(k, n)
    shapes = {"none": None, "row": (1, n), "column": (m, 1), "whole": (m, n), "one": (1, 1), "vector": (n,)}
    bias = None if shapes[kind] is None else torch.randn(shapes[kind])
    gm = program(a, b, bias)
    before = aten.print_ir(gm)
    made = padded(gm)
    assert aten.print_ir(gm) == before
    inputs = [x.t() if x.stride(1) != 1 else x for x in (a, b)] + ([] if bias is None else [bias])
    (actual,), (expected,) = aten.interpret(made, *inputs), aten.interpret(gm, *inputs)
    torch.testing.assert_close(actual, expected)
    assert actual.stride() == expected.stride()
    (product,) = [x for x in made.graph.nodes if x.target in (OPS.mm.default, OPS.addmm.default)]
    one, other = (meta.value(x) for x in product.args[-2:])
    assert one.shape[1] % 4 == 0 and other.shape[1] % 4 == 0
    for name, grew in (("m", one.shape[0] > m), ("k", one.shape[1] > k), ("n", other.shape[1] > n)):
        if grew:
            fired.count(name)
    fired.count("bias" if bias is not None else "nothing")
    assert padded(made) is made


def large(m, k, n, dtype="f16"):
    return aten.parse_ir(f"""// dialect: aten 2
graph(%x: {dtype}[{m}, {k}], %w: {dtype}[{k}, {n}]) {{
  %0: {dtype}[{m}, {n}] = aten.mm.default(%x, %w)  # model.py:1 in forward
  return (%0,)
}}
""")


@pytest.mark.parametrize(
    ("sizes", "pays"),
    [
        ((2048, 768, 50257), True),
        ((2048, 768, 50264), False),  # fits
        ((4096, 768, 30522), True),  # even
        ((8192, 768, 1001), True),
        ((64, 768, 50257), False),  # a batch of few rows reads the weights once: nothing else costs time
        ((100, 101, 102), False),  # small
    ],
)
def test_products_are_padded_where_it_pays(sizes, pays):
    gm = large(*sizes)
    made = pad_matmuls(gm, target=UNITS)
    assert (made is not gm) == pays
    if pays:
        assert targets(made) == ["constant_pad_nd.default", "mm.default", "slice.Tensor", "clone.default"]


def test_other_types_and_devices_are_left_alone():
    gm = large(2048, 768, 50257)
    assert pad_matmuls(gm, target=Target("cuda", "sm_90")) is gm
    assert pad_matmuls(gm, target=Target("cpu", "avx512")) is gm  # no matrix units
    wide = large(2048, 768, 50257, "f32")
    assert pad_matmuls(wide, target=UNITS) is wide
    assert pad_matmuls(gm, target=UNITS, fuel=0) is gm


def test_machines_differ_in_what_pays():
    """Where memory is fast beside the matrix units, padding costs less, and products of fewer operations pay."""
    gm = large(8192, 94, 1001)
    slow, fast = (Target("cpu", measured=Target("cuda", isa).machine) for isa in ("sm_90", "sm_80"))
    assert pad_matmuls(gm, target=slow, least_flops=0) is gm
    assert pad_matmuls(gm, target=fast, least_flops=0) is not gm
