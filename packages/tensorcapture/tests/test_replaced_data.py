"""`x.data = y`: one graph where autograd has no part in it, and eager's tensors, memory and flags afterwards."""

from __future__ import annotations

import re

import pytest
import torch
from tensor_executor import Executor


def of_another(x, y):
    view = x[0]
    x.data = y
    x.add_(1)
    view.add_(5)
    return x, view


def read_before_and_after(x, y):
    before = x.sum().item()
    x.data = y * 2
    return before, x.sum().item(), x.tolist()


def several_times(x, y):
    x.mul_(3)
    x.data = torch.cat([y, x])
    x.data = x.data[1:].double()
    x.tag = "t"
    return x + 1, x.shape, x.dtype == torch.float64, x.tag == "t"


def exchanged(x, y):
    x.data, y.data = y.data, x.data
    return x - y


def transposed(x, y):
    x.data = torch.stack([x, y]).t()
    return x.stride(), x.is_contiguous(), x.contiguous()


def of_the_same(x, y):
    x.data += 1
    x.data = x.data
    return x, x.data


def of_a_result(x, y):
    a = x * 2
    b = a
    a.data = y
    b.add_(1)
    return a is b, a


PROGRAMS = [of_another, read_before_and_after, several_times, exchanged, transposed, of_the_same, of_a_result]


def outcome(call, *args):
    """Return the result, the arguments afterwards, and what of them shares memory."""
    result = call(*args)
    return result, args, [a.untyped_storage().data_ptr() == args[0].untyped_storage().data_ptr() for a in args]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_one_graph(f):
    executor = Executor()
    x, y = torch.arange(3.0), torch.arange(3.0) * 10
    actual, expected = outcome(lambda *a: executor.call(f, *a), x.clone(), y.clone()), outcome(f, x.clone(), y.clone())
    torch.testing.assert_close(actual, expected)
    assert [found.breaks for found in executor.captures] == [()]


def scaled(w, x):
    w.data = w.data * 0.5
    with torch.no_grad():
        inside = w * 2
    return inside, w.requires_grad, w.is_leaf, x + 1


def used_before(w, x):
    y = (x * w).sum()
    w.data = w.data * 0.5
    return y


def used_after(w, x):
    w.data = w.data * 0.5 + x
    return (x * w).sum()


def of_another_type(w, x):
    with torch.no_grad():
        w.data = x.double()
        return w * 2


@pytest.mark.parametrize(("f", "whole"), [(scaled, True), (used_before, False), (used_after, False)])
def test_parameters_keep_their_gradients(f, whole):
    found = []
    executor = Executor()
    for call in (lambda *a: executor.call(f, *a), f):
        w, x = torch.nn.Parameter(torch.ones(3)), torch.arange(3.0)
        result = call(w, x)
        if isinstance(result, torch.Tensor):
            result.backward()
        found.append((result, w.detach(), w.grad))
    torch.testing.assert_close(*found)
    assert (executor.captures[0].breaks == ()) is whole


@pytest.mark.parametrize("value", [3, torch.ones(3).to_sparse()])
def test_what_eager_refuses_is_refused_as_there(value):
    def f(x):
        x.data = value
        return x

    with pytest.raises((TypeError, RuntimeError)) as ours:
        Executor().call(f, torch.ones(3))
    with pytest.raises(type(ours.value), match=re.escape(str(ours.value))):
        f(torch.ones(3))


def test_a_parameter_of_another_type():
    outcomes = []
    for call in (Executor().call, lambda f, *a: f(*a)):
        w = torch.nn.Parameter(torch.ones(3))
        outcomes.append((call(of_another_type, w, torch.arange(3.0)), w.detach()))
    torch.testing.assert_close(*outcomes)
