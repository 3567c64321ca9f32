"""Parameters and buffers made in the captured code: part of the graph, and leaves where they get out."""

from __future__ import annotations

import pytest
import torch
from tensor_executor import Executor
from torch import nn


def layer_norm(x):
    return nn.LayerNorm(3)(x)


def drawn(x):
    return nn.Linear(3, 2)(x), nn.Embedding(4, 3)(torch.tensor([0, 3])), torch.rand(2)


def shares_memory(x):
    w = nn.Parameter(x, requires_grad=False)
    w.add_(1)
    return w.sum(), w.requires_grad, type(w) is nn.Parameter, isinstance(w, torch.Tensor)


def flags(x):
    w = nn.Parameter(x * 2)
    with torch.no_grad():
        w.add_(1)
    return w.requires_grad, w.is_leaf, w.grad_fn is None, (w.detach() * 2).sum()


def refused(x):
    try:
        nn.Parameter(torch.tensor([1, 2]))
    except RuntimeError as error:
        return str(error), x + 1


def buffer(x):
    b = nn.Buffer(x * 2, persistent=False)
    return b + 1, isinstance(b, nn.Buffer), b.persistent


def statistics(x):
    norm = nn.BatchNorm1d(3)
    norm(x)
    return norm.running_mean + 0, norm.num_batches_tracked + 0, len(list(norm.parameters()))


def outcome(call, *args):
    torch.manual_seed(0)
    return call(*args), args, torch.rand(())


PROGRAMS = [layer_norm, drawn, shares_memory, flags, buffer, statistics]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_one_graph(f):
    executor, x = Executor(), torch.arange(6.0).view(2, 3)
    with torch.no_grad():
        found, expected = outcome(lambda x: executor.call(f, x), x.clone()), outcome(f, x.clone())
    alike(found, expected)
    assert [capture.breaks for capture in executor.captures] == [()]


def alike(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            alike(one, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
        assert found.requires_grad is expected.requires_grad
    else:
        assert found == expected


def test_what_torch_refuses_is_refused_as_there():
    x = torch.ones(2)
    alike(Executor().call(refused, x), refused(x))


def test_gradients_reach_what_is_outside():
    grads = []
    for call in (Executor().call, lambda f, x: f(x)):
        x = torch.arange(6.0).view(2, 3).requires_grad_()
        call(layer_norm, x).square().sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


def given_away(x):
    w = nn.Parameter(x * 2)
    return w, x + 1


def kept(x, held):
    held.append(nn.Parameter(x * 2, requires_grad=False))
    return x + 1


def trained(x):
    return (x * nn.Parameter(torch.ones(3))).sum()


def test_one_that_gets_out_is_made_before_the_graph():
    x = torch.ones(2, 3)
    for f, args in ((given_away, ()), (kept, ([],)), (trained, ())):
        executor, theirs = Executor(), tuple(map(list, args))
        found, expected = executor.call(f, x, *args), f(x, *theirs)
        alike(found, expected)
        assert [type(v) for a in args for v in a] == [type(v) for a in theirs for v in a]
        assert [capture.breaks for capture in executor.captures] == [()]
