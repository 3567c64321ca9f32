"""Quantizers, as people write them without a library."""

from __future__ import annotations

import torch
from torch.nn import functional as F
from torch.nn.utils import parametrize

from integration.extend.programs.record import both, equal


class Int8(torch.nn.Module):
    """A linear layer with a weight of int8 and a scale a row: weight-only."""

    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", torch.round(linear.weight.detach() / scale).to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype) * self.scale, self.bias)


class Int4(torch.nn.Module):
    """Two numbers of four bits in a byte, a scale for each group of 8."""

    def __init__(self, linear):
        super().__init__()
        rows, columns = linear.weight.shape
        groups = linear.weight.detach().view(rows, columns // 8, 8)
        scale = groups.abs().amax(-1, keepdim=True) / 7
        whole = (torch.round(groups / scale) + 8).to(torch.uint8).view(rows, columns)
        self.register_buffer("packed", whole[:, ::2] | (whole[:, 1::2] << 4))
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x):
        whole = torch.stack([self.packed & 15, self.packed >> 4], -1).view(self.packed.shape[0], -1, 8)
        weight = ((whole.to(x.dtype) - 8) * self.scale).view(self.packed.shape[0], -1)
        return F.linear(x, weight, self.bias)


class Dynamic(Int8):
    """The activations are quantized too, by their range of now; the product is one of whole numbers."""

    def forward(self, x):
        scale = x.abs().amax(-1, keepdim=True) / 127
        whole = torch.round(x / scale).to(torch.int8)
        return torch._int_mm(whole, self.weight.t()).to(x.dtype) * scale * self.scale.t() + self.bias


def layer(kind):
    torch.manual_seed(1)
    return torch.nn.Sequential(kind(torch.nn.Linear(32, 24)), torch.nn.GELU(), kind(torch.nn.Linear(24, 16)))


def inference(kind):
    def run(compile_):
        model, x = layer(kind), torch.randn(24, 32)
        with torch.no_grad():
            equal(compile_(model), model, x)

    return run


class Rounded(torch.autograd.Function):
    """Rounding whose gradient is that of no rounding."""

    @staticmethod
    def forward(ctx, x, scale):
        return torch.round(x / scale).clamp(-127, 127) * scale

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Fake(torch.nn.Module):
    def forward(self, weight):
        return Rounded.apply(weight, weight.detach().abs().amax() / 127)


def trained(compile_, model, x):
    found = []
    for call in (compile_(model), model):
        model.zero_grad()
        call(x).square().sum().backward()
        found.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(*found)


@both("quantizer", "a parametrization that rounds, trained")
def parametrized(compile_):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    for linear in (model[0], model[2]):
        parametrize.register_parametrization(linear, "weight", Fake())
    trained(compile_, model, torch.randn(5, 8))


class Observed(torch.nn.Module):
    """Activations rounded by a range that is observed while it is trained."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)
        self.register_buffer("largest", torch.ones(()))

    def forward(self, x):
        y = self.linear(x)
        self.largest.mul_(0.9).add_(y.detach().abs().amax(), alpha=0.1)
        return torch.fake_quantize_per_tensor_affine(
            y, self.largest / 127, torch.zeros((), dtype=torch.int32), -127, 127
        )


@both("quantizer", "an observer in a buffer, trained")
def observed(compile_):
    made = []
    x = torch.randn(5, 8)
    for wrap in (compile_, lambda model: model):
        torch.manual_seed(1)
        model = Observed()
        call = wrap(model)
        for _ in range(3):
            call(x).square().sum().backward()
        made.append((model.largest, [p.grad for p in model.parameters()]))
    torch.testing.assert_close(*made)


EXTENSIONS = [
    both("quantizer", "weights of int8")(inference(Int8)),
    both("quantizer", "weights of int4, packed")(inference(Int4)),
    both("quantizer", "activations of int8 by their range of now")(inference(Dynamic)),
    parametrized,
    observed,
]
