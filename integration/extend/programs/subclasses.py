"""Subclasses of tensors."""

from __future__ import annotations

import torch

from integration.extend.programs.record import both
from integration.extend.subclasses import Layer, flat, pair


def same(fast, function, *inputs):
    torch.testing.assert_close(flat(fast(*inputs)), flat(function(*inputs)))


@both("subclass", "arguments and results")
def passed(compile_):
    function = lambda x, y: (x + y.relu(), x.sin().sum(-1))
    same(compile_(function), function, pair(3, 4), pair(3, 4))


@both("subclass", "a parameter")
def parameter(compile_):
    model = Layer()
    same(compile_(model), model, torch.randn(2, 4))


@both("subclass", "a parameter that is trained")
def trained(compile_):
    found = []
    x = torch.randn(2, 4)
    for wrap in (compile_, lambda model: model):
        torch.manual_seed(1)
        model = Layer(frozen=False)
        wrap(model)(x).square().sum().backward()
        found.append([flat(p.grad) for p in model.parameters()])
    torch.testing.assert_close(*found)


@both("subclass", "sizes that change")
def sizes(compile_):
    function = lambda x: torch.softmax(x * 2, -1)
    fast = compile_(function, dynamic=True)
    for n in (3, 5, 8):
        same(fast, function, pair(n, 4))


class Meters(torch.Tensor):
    """A tensor that remembers in `__torch_function__` what it is."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


@both("subclass", "only __torch_function__")
def function_only(compile_):
    function = lambda x: (x * 2).sin() + 1
    x = torch.randn(3, 4).as_subclass(Meters)
    got, want = compile_(function)(x), function(x)
    assert type(got) is type(want) is Meters
    torch.testing.assert_close(got.as_subclass(torch.Tensor), want.as_subclass(torch.Tensor))


EXTENSIONS = [passed, parameter, trained, sizes, function_only]
