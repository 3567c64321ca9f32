"""What one process sends to another is an operator that exchanges data, writes nothing and gives memory of its own."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_ir.aten import effects, parse_ir, print_ir, row, verify

TEXT = """// dialect: aten 2
graph(%x: f32[2, 3]) {
  # model.py:1 in forward
  %0: f32[2, 3] = intarsia_p2p.send.default(%x, 1, 0, "0")  #1
  %1: f32[2, 3] = _c10d_functional.wait_tensor.default(%0)  #1
  # model.py:2 in forward
  %2: f32[2, 3] = intarsia_p2p.receive.default(%x, 1, 7, "0")  #2
  %3: f32[2, 3] = _c10d_functional.wait_tensor.default(%2)  #2
  return (%3,)
}
origins
  1 model.py
    forward: 1, 2
"""


def test_each_call_is_an_exchange_without_writes_or_views() -> None:
    for op in (torch.ops.intarsia_p2p.send.default, torch.ops.intarsia_p2p.receive.default):
        found = effects(op)
        assert found.communicates and not found.removable and not found.repeatable
        assert not found.writes and not found.views and not row(op).operands[0].written


def test_the_text_reads_back_and_verifies() -> None:
    gm = parse_ir(TEXT)
    verify(gm, functional=True)
    assert print_ir(parse_ir(print_ir(gm))) == print_ir(gm)


def test_fake_tensors_reach_no_process_and_results_are_laid_out_row_by_row() -> None:
    with FakeTensorMode():
        x = torch.empty(4, 5, dtype=torch.bfloat16).t()
        for found in (torch.ops.intarsia_p2p.send(x, 1, 0, "none"), torch.ops.intarsia_p2p.receive(x, 1, 0, "none")):
            assert found.shape == (5, 4) and found.is_contiguous() and found.dtype is torch.bfloat16
