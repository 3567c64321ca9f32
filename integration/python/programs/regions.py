"""Grad mode, autocast, custom autograd functions."""

from __future__ import annotations

import torch
from torch import nn, randn

from integration.python.program import made, program


@program("grad mode", lambda: (randn(3),))
def no_grad_block(x):
    before = torch.is_grad_enabled()
    with torch.no_grad():
        y = x * 2
        inside = torch.is_grad_enabled()
    return y + 1, before, inside


@torch.no_grad()
def _frozen(x):
    return x.exp(), torch.is_grad_enabled()


@program("grad mode", lambda: (randn(3),))
def no_grad_decorator(x):
    with torch.enable_grad():
        y, inside = _frozen(x)
        outside = torch.is_grad_enabled()
    return y * 2, inside, outside


@program("grad mode", lambda: (randn(3),))
def set_grad_enabled_both_ways(x):
    states = []
    for mode in (True, False):
        with torch.set_grad_enabled(mode):
            states.append(torch.is_grad_enabled())
            x = x + 1
    return x.detach(), states, torch.is_grad_enabled()


@program("inference mode", lambda: (randn(3),))
def inference_mode_block(x):
    with torch.inference_mode():
        y = x * 2
        inside = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        seen = y.is_inference(), x.is_inference()
    return y, y[1:], x + 1, inside, seen, torch.is_inference_mode_enabled()


@made("inference mode", lambda: (randn(2, 3),))
def inference_mode_decorates_a_forward():
    class Scorer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 4)

        @torch.inference_mode()
        def forward(self, x):
            return self.layer(x).softmax(-1)

    torch.manual_seed(1)
    return Scorer().eval()


@torch.inference_mode
def _doubled(x):
    return x + x


@program("inference mode", lambda: (randn(3),))
def clone_of_an_inference_tensor(x):
    with torch.enable_grad():
        y = _doubled(x).clone()
        y.add_(1)
    with torch.inference_mode(False):
        z = x * 3
    return y, z


@program("inference mode", lambda: (randn(3),))
def an_inference_tensor_is_written_outside(x):
    with torch.inference_mode():
        y = x * 2
    try:
        y.add_(1)
    except RuntimeError as error:
        return y, str(error)


# what the mode was before it is left, only the entered object knows
@program("inference mode", lambda: (randn(3),), graphs=2, breaks=("tracer.output", "tracer.tensor_op"))
def print_in_inference_mode(x):
    with torch.inference_mode():
        y = x * 2
        print(y.is_inference(), torch.is_grad_enabled())
        z = y + 1
    return z, torch.is_inference_mode_enabled(), torch.is_grad_enabled()


@program("autocast", lambda: (randn(3, 4), randn(4, 5)))
def matmul_under_autocast(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        active = torch.is_autocast_enabled("cpu")
    return y, y.dtype, active, torch.is_autocast_enabled("cpu")


@program("autocast", lambda: (randn(3, 3),))
def autocast_turned_off_inside(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        with torch.autocast("cpu", enabled=False):
            z = y.float() @ x
    return y, z


@torch.autocast("cpu", dtype=torch.bfloat16)
def _low_precision(x):
    return torch.mm(x, x)


class Swish(torch.autograd.Function):
    """x * sigmoid(x), which keeps its input alone."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


class Rounded(torch.autograd.Function):
    """Straight-through rounding with a step that isn't a tensor."""

    @staticmethod
    def forward(ctx, x, step):
        ctx.step = step
        return torch.round(x / step) * step

    @staticmethod
    def backward(ctx, grad):
        return grad, None


@program("autograd.Function", lambda: (randn(3),))
def apply_swish(x):
    return Swish.apply(x) + 1


@program("autograd.Function", lambda: (randn(3), 0.5))
def straight_through(x, step):
    quantize = Rounded.apply
    return quantize(x * 2, step), Rounded.apply(x, 1.0)


@program("autocast", lambda: (randn(3, 3),))
def autocast_decorator(x):
    return _low_precision(x).float() + x @ x
