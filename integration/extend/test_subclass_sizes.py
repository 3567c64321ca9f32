"""Sizes of wrapper subclasses that differ from call to call: symbols, in the tensors inside as well."""

from __future__ import annotations

import pytest
import torch
from torch.utils import _pytree as pytree

import intarsia
from integration.extend.subclasses import Pair, flat

pytestmark = pytest.mark.usefixtures("fresh")
RAISE = {"on_error": "raise"}


class Packed(torch.Tensor):
    """Pairs of small numbers, each pair in a byte."""

    @staticmethod
    def __new__(cls, data, size):
        return torch.Tensor._make_wrapper_subclass(cls, size, dtype=torch.float32, device=data.device)

    def __init__(self, data, size):
        self.data_ = data

    def __tensor_flatten__(self):
        return ["data_"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Packed(inner["data_"], size)

    def unpacked(self):
        halves = torch.stack([self.data_ & 15, self.data_ >> 4], 1)
        return halves.flatten(0, 1).float()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = pytree.tree_map_only(Packed, Packed.unpacked, (args, kwargs or {}))
        return func(*args, **kwargs)


def packed(n):
    return Packed(torch.arange(n // 2 * 3, dtype=torch.uint8).reshape(n // 2, 3), (n, 3))


def pair(n, m=4):
    generator = torch.Generator().manual_seed(n)
    return Pair(torch.randn(n, m, generator=generator), torch.randn(n, m, generator=generator))


FUNCTIONS = {
    "pointwise": (lambda x: (x * 2).sin(), pair),
    "reduced": (lambda x: torch.softmax(x, 0).sum(1), pair),
    "its size": (lambda x: x * x.shape[0], pair),
    "packed": (lambda x: x + 1, packed),
    "packed, and its size": (lambda x: x.sum(0) / x.shape[0], packed),
    "product": (lambda x: x.t() @ x, pair),
}


@pytest.mark.parametrize("how", ["mark", "dynamic", "automatic"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_graph_takes_all(name, how):
    function, make = FUNCTIONS[name]
    fast = intarsia.compile(function, fullgraph=True, dynamic=True if how == "dynamic" else None, options=RAISE)
    for n in (4, 6, 10, 14):
        x = make(n)
        if how == "mark":
            intarsia.mark_dynamic(x, 0)
        torch.testing.assert_close(flat(fast(x)), flat(function(x)), rtol=1e-5, atol=1e-5)
    stats = intarsia.stats()
    assert (stats.graphs, stats.fallbacks) == (2 if how == "automatic" else 1, 0)
    assert stats.frames_eager == 0


def test_what_is_promised_and_not_kept_is_an_error():
    def function(x):
        return x * 2 if x.shape[0] == 4 else x * 3

    x = pair(4)
    intarsia.mark_dynamic(x, 0, min=2, max=8)
    with pytest.raises(intarsia.InvalidArgumentError, match="x"):
        intarsia.compile(function, fullgraph=True, options=RAISE)(x)


@pytest.mark.parametrize("dynamic", [None, True])
def test_gradients(dynamic):
    def function(x, y):
        return (x * y).sin() * x.shape[0]

    fast = intarsia.compile(function, fullgraph=True, dynamic=dynamic, options=RAISE)
    for n in (3, 5, 9, 12):
        found = []
        for run in (fast, function):
            x, y = pair(n).requires_grad_(), torch.ones(n, 4, requires_grad=True)
            run(x, y).sum().backward()
            found.append([flat(x.grad), flat(y.grad)])
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
    assert intarsia.stats().graphs == (1 if dynamic else 2)
    assert intarsia.stats().fallbacks == 0
