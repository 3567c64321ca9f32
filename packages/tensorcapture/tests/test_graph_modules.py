"""Graph modules of `torch.fx` inside another module: called as other modules are."""

from __future__ import annotations

import pytest
import torch
from tensor_executor import Executor
from torch import fx, nn


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 2


def traced():
    return fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))


def hooked():
    inner = traced()
    inner.register_forward_hook(lambda module, args, result: result + 1)
    return inner


@pytest.mark.parametrize("make", [traced, hooked], ids=lambda f: f.__name__)
def test_it_is_part_of_the_graph(make):
    outer, x = Outer(make()), torch.randn(2, 3)
    executor = Executor()
    torch.testing.assert_close(executor.call(outer.forward, x), outer(x))
    assert [found.breaks for found in executor.captures] == [()]


class Called(fx.GraphModule):
    def __call__(self, x):
        return super().__call__(x) + 1


def test_a_call_of_its_own_is_the_one_that_is_made():
    inner = traced()
    outer, x = Outer(Called(inner, inner.graph)), torch.randn(2, 3)
    torch.testing.assert_close(Executor().call(outer.forward, x), outer(x))


def test_a_class_that_gets_another_call():
    inner, x, executor = traced(), torch.randn(2, 3), Executor()
    outer = Outer(inner)
    torch.testing.assert_close(executor.call(outer.forward, x), outer(x))
    type(inner).__call__ = lambda self, x: x * 0
    torch.testing.assert_close(executor.call(outer.forward, x), torch.zeros(2, 3))
