"""Programs with tensors of wrapper subclasses: as people write them, and as torchao quantizes a model.

Each program is a function, or a module, and its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class Program:
    """A program of a user.

    Args:
        make: Makes what is compiled.
        inputs: Makes its arguments.
        peer: Whether torch.compile takes it whole.
    """

    make: Callable[[], Callable[..., Any]]
    inputs: Callable[[], Sequence[Any]]
    peer: bool = True


class Pair(torch.Tensor):
    """Two tensors of one shape; every operation is done with both."""

    @staticmethod
    def __new__(cls, first, second):
        shape = {"strides": first.stride(), "storage_offset": first.storage_offset()}
        kind = {"dtype": first.dtype, "device": first.device, "layout": first.layout}
        return torch.Tensor._make_wrapper_subclass(cls, first.shape, **shape, **kind, requires_grad=first.requires_grad)

    def __init__(self, first, second):
        self.first, self.second = first, second

    def __repr__(self):
        return f"Pair({self.first!r}, {self.second!r})"

    def __tensor_flatten__(self):
        return ["first", "second"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Pair(inner["first"], inner["second"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        of = lambda name: pytree.tree_map_only(cls, lambda x: getattr(x, name), (args, kwargs))
        (one, one_named), (two, two_named) = of("first"), of("second")
        first, second = func(*one, **one_named), func(*two, **two_named)
        return pytree.tree_map(lambda a, b: cls(a, b) if isinstance(a, torch.Tensor) else a, first, second)


def pair(*shape):
    generator = torch.Generator().manual_seed(len(shape))
    return Pair(torch.randn(shape, generator=generator), torch.randn(shape, generator=generator))


class Layer(torch.nn.Module):
    """A linear layer whose weight is a pair."""

    def __init__(self, frozen=True):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.linear.weight = torch.nn.Parameter(pair(3, 4), requires_grad=not frozen)
        self.linear.bias.requires_grad_(not frozen)

    def forward(self, x):
        return F.relu(self.linear(x)) * 2


def with_a_plain_one(x, y):
    z = (x @ y).sin()
    return z, z.first + 1, y * 2


def nested():
    return Pair(pair(2, 3), pair(2, 3))


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1) @ v


PROGRAMS = {
    "attention": Program(lambda: attention, lambda: [pair(2, 2, 8, 16) for _ in range(3)]),
    "argument and result": Program(lambda: lambda x: (x.sin() + 1).sum(-1), lambda: [pair(3, 4)]),
    "parameter": Program(Layer, lambda: [torch.linspace(-1, 1, 8).reshape(2, 4)]),
    "beside a plain one": Program(lambda: with_a_plain_one, lambda: [pair(3, 4), torch.linspace(-1, 1, 8).view(4, 2)]),
    "inner tensors": Program(lambda: lambda x: x.first.softmax(0) + x.second, lambda: [pair(3, 4)]),
    "a view": Program(lambda: lambda x: x.t()[1:] * 3, lambda: [pair(3, 4)]),
    "of a subclass itself": Program(lambda: lambda x: x.exp() - x, lambda: [nested()]),
    "several": Program(lambda: lambda x, y: (x + y, [x * y, x.relu()]), lambda: [pair(3, 4), pair(3, 4)]),
}


class Gated(torch.nn.Module):
    """The feed-forward part of a block."""

    def __init__(self, width=64):
        super().__init__()
        self.gate, self.up = (torch.nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


def flat(value):
    """Return a value with each tensor of a wrapper subclass as its class and the tensors inside."""

    def taken_apart(x):
        if not hasattr(type(x), "__tensor_flatten__"):
            return x
        return {type(x).__name__: [flat(getattr(x, name)) for name in x.__tensor_flatten__()[0]]}

    return pytree.tree_map_only(torch.Tensor, taken_apart, value)
