"""Joint graphs over the CPU and a GPU: what is computed on the CPU, or copied, isn't done again for a few bytes."""

import torch

from intarsia_autodiff import Recompute, joint_graph, partition_problem
from intarsia_ir.aten import parse_ir
from intarsia_ir.records import Fresh, InputSpec, Joint, Signature, Tangent
from intarsia_ir.values import Recorded

TEXT = """// dialect: aten 2
graph(%x: f32[8] on 'cuda:0' grad, %t: f32[8]) {
  # model.py:1 in forward
  %0: f32[8] on 'cuda:0' = aten.sin.default(%x)  #1
  # model.py:2 in forward
  %1: f32[8] = aten._to_copy.default(%0, device=device('cpu'))  #2
  # model.py:3 in forward
  %2: f32[8] = aten.exp.default(%1)  #3
  # model.py:4 in forward
  %3: i64[8] = aten.arange.default(8, device=device('cpu'), pin_memory=False)  #4
  # model.py:5 in forward
  %4: f32[8] = aten.mul.Tensor(%2, %3)  #5
  %5: f32[8] = aten.mul.Tensor(%t, %4)  #5
  # model.py:2 in forward
  %6: f32[8] on 'cuda:0' = aten._to_copy.default(%5, device=device('cuda:0'))  #2
  return (%4, %6)
}
origins
  1 model.py
    forward: 1, 2, 3, 4, 5
"""


def recompute(text):
    signature = Signature(
        (InputSpec("x"), InputSpec("t")), (Fresh(0), Fresh(1)), joint=Joint((Tangent(0),), gradients=(0,), n_outputs=1)
    )
    problem = partition_problem(Recorded(parse_ir(text), signature))
    return {value.name: value.recompute for value in problem.values}


def test_copies_and_calls_on_the_cpu_are_costly():
    assert recompute(TEXT) == {
        "x": Recompute.NEVER,
        "sin_default": Recompute.CHEAP,
        "_to_copy_default": Recompute.COSTLY,
        "exp_default": Recompute.COSTLY,
        "arange_default": Recompute.CHEAP,  # the device may number its elements itself
        "mul_tensor": Recompute.COSTLY,
    }


def test_on_one_device_everything_fuses():
    assert set(recompute(TEXT.replace("cuda:0", "cpu")).values()) == {Recompute.NEVER, Recompute.CHEAP}


def test_the_backward_pass_is_recorded_on_one_thread():
    """Autograd has a thread for each device; two of them would write into one recording at once."""
    seen = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            seen.append(torch._C._is_multithreading_enabled())
            return gradient * 2

    joint_graph(Watched.apply, (torch.ones(3, requires_grad=True),))
    assert seen == [False] and torch._C._is_multithreading_enabled()
