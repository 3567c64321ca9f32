"""Constants of graphs over the CPU and a GPU: what would be calls on the CPU at every run is stored instead."""

import pytest
import torch

from intarsia_ir.aten import parse_ir
from intarsia_rewrites import fold_constants

ANGLES = """// dialect: aten 2
graph(%x: f32[4] on 'cuda:0') {
  # model.py:1 in forward
  %0: i64[4] = aten.arange.default(4, device=device('cpu'), pin_memory=False)  #1
  %1: i64[4] = aten.mul.Tensor(%0, 2)  #1
  %2: f32[4] = aten._to_copy.default(%1, dtype=f32)  #1
  %3: f32[4] = aten.cos.default(%2)  #1
  %4: f32[4] on 'cuda:0' = aten._to_copy.default(%3, device=device('cuda:0'))  #1
  %5: f32[4] on 'cuda:0' = aten.mul.Tensor(%x, %4)  #1
  return (%5,)
}
origins
  1 model.py
    forward: 1
"""
LITERAL = """// dialect: aten 2
graph(%x: f32[4] on 'cuda:0') {
  # model.py:1 in forward
  %0: f32[4] = get_attr('literal')  #1
  %1: f32[4] = aten.lift_fresh_copy.default(%0)  #1
  %2: f32[4] on 'cuda:0' = aten._to_copy.default(%1, device=device('cuda:0'))  #1
  %3: f32[4] on 'cuda:0' = aten.mul.Tensor(%x, %2)  #1
  return (%3,)
}
origins
  1 model.py
    forward: 1
"""


def folded(text, **constants):
    gm = fold_constants(parse_ir(text, constants=constants))
    stored = {str(n.target): getattr(gm, str(n.target)) for n in gm.graph.find_nodes(op="get_attr")}
    return [str(n.target) for n in gm.graph.nodes if n.op == "call_function"], stored


def test_floats_of_the_cpu_are_stored():
    calls, stored = folded(ANGLES)
    assert calls == ["aten._to_copy.default", "aten.mul.Tensor"]
    assert torch.equal(stored["_folded0"], torch.cos(torch.arange(4) * 2.0))


def test_on_one_device_kernels_compute_them():
    calls, stored = folded(ANGLES.replace("cuda:0", "cpu"))
    assert "aten.cos.default" in calls and not stored


def test_integers_stay_for_kernels_to_compute():
    text = ANGLES.replace("aten.cos.default", "aten.floor.default").replace("f32[4] = aten", "i64[4] = aten")
    calls, stored = folded(text.replace("dtype=f32", "dtype=i64"))
    assert calls[:2] == ["aten.arange.default", "aten.mul.Tensor"] and not stored


@pytest.mark.parametrize("device", ["cuda:0", "cpu"])
def test_literals_are_told_from_what_the_user_may_change(device):
    literal = torch.tensor([1.0, 2.0, 3.0, 4.0])
    _, stored = folded(LITERAL.replace("cuda:0", device), literal=literal)
    assert [name.startswith("_folded") for name in stored] == [device == "cuda:0"]
    _, stored = folded(LITERAL.replace("lift_fresh_copy", "clone").replace("cuda:0", device), literal=literal)
    assert [*stored] == ["literal"]
