"""Grad mode, autocast, custom autograd functions."""

from __future__ import annotations

import torch
from torch import randn

from integration.python.program import program


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
