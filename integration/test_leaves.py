"""Leaves that captured code makes, and tensors that it asks to require grad: one graph, and autograd as in eager."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn

import intarsia


@pytest.fixture(autouse=True)
def _fresh():
    intarsia.reset()
    yield
    intarsia.reset()


def given(x, w):
    x.requires_grad_()
    return (x * w).sum(), x.is_leaf, x.requires_grad


def given_late(x, w):
    before = x * 3
    x.requires_grad_(True)
    return before, before + x * w, x.t() @ before


def given_and_returned(x, w):
    x.requires_grad = True
    return x, x[:1], (x * w).exp()


def taken_back(x, w):
    x.requires_grad_()
    y = x * w
    x.requires_grad_(False)
    return y, x * 2, x.requires_grad


def taken_back_and_given_again(x, w):
    w.requires_grad_(False)
    y = x * w
    w.requires_grad_(True)
    return y, x * w


def frozen(x, w):
    y = (x * w).sum()
    w.requires_grad_(False)
    return y, x * w


def asked_already(x, w):
    return x * w.requires_grad_()


def forces(x, w):
    positions = x.detach().requires_grad_()
    energy = ((positions * w) ** 3).sum()
    return energy, torch.autograd.grad(energy, positions, create_graph=True)[0]


def forces_of_the_given(x, w):
    x.requires_grad_()
    energy = ((x * w) ** 3).sum()
    return energy, torch.autograd.grad(energy, x, create_graph=True)[0]


def computed(x, w):
    y = x.exp()
    y.requires_grad_()
    return y, y * w, y[0] * 2


def computed_and_shared(x, w):
    y = (x * 2).requires_grad_()
    return y.detach().view(-1), y, (y * w).sum(), y.data


def computed_of_no_gradient(x, w):
    with torch.no_grad():
        y = (x * 2).requires_grad_()
    return y * 3, y


def parameter(x, w):
    scale = nn.Parameter(torch.full((3,), 2.0))
    return scale, x * scale * w


def frozen_parameter(x, w):
    scale = nn.Parameter(x * 2, requires_grad=False)
    return scale, x * scale * w


def parameter_on_memory(x, w):
    y = x + 1
    scale = nn.Parameter(y)
    return y, scale, scale * w


def parameter_used_alone(x, w):
    return x * nn.Parameter(torch.ones(3)) * 2


def written_parameter(x, w):
    scale = nn.Parameter(torch.empty(3))
    with torch.no_grad():
        scale.fill_(3).mul_(2)
    return scale, x * scale


def module(x, w):
    layer = nn.Linear(3, 2)
    return layer(x), list(layer.parameters())


def module_that_is_kept(x, w):
    layer = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.ReLU())
    return layer, layer(x), layer[0].weight


PROGRAMS = [
    given, given_late, given_and_returned, taken_back, taken_back_and_given_again, frozen, asked_already, forces,
    forces_of_the_given, computed, computed_and_shared, computed_of_no_gradient, parameter, frozen_parameter,
    parameter_on_memory, parameter_used_alone, written_parameter, module, module_that_is_kept,
]  # fmt: skip


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, nn.Module):
        return [*value.parameters(), *value.buffers()]
    return [t for item in value for t in tensors(item)] if isinstance(value, (list, tuple)) else []


def seen(f, rows):
    """Return what can be seen of a call and of going back through what it gave."""
    torch.manual_seed(0)
    x, w = torch.arange(rows * 3.0).view(rows, 3) / 7, torch.tensor([0.5, 1.5, -1.0], requires_grad=True)
    outputs = f(x, w)
    given = tensors([outputs, x, w])
    flags = [(type(t), t.requires_grad, t.is_leaf, t.shape, t.stride()) for t in given]
    shared = [[a.untyped_storage()._cdata == b.untyped_storage()._cdata for b in given] for a in given]
    same = [[a is b for b in given] for a in given]
    plain = [v for v in outputs if not isinstance(v, torch.Tensor)] if isinstance(outputs, tuple) else []
    kinds = [type(v) if tensors(v) else v for v in plain]
    graded = [t for t in given if t.requires_grad and not t.is_leaf]
    if graded:
        sum(t.square().sum() for t in graded).backward()
    values = [t.detach() for t in given]
    return values, [t.grad for t in given if t.is_leaf], (flags, shared, same, kinds), torch.rand(())


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_as_eager_in_one_graph(f, dynamic):
    backend = "kernels" if f in (module, module_that_is_kept) else "auto"
    compiled = intarsia.compile(f, fullgraph=True, dynamic=dynamic, backend=backend, options={"on_error": "raise"})
    for rows in (2, 4, 4):
        found, expected = seen(compiled, rows), seen(f, rows)
        torch.testing.assert_close(found[0], expected[0])
        torch.testing.assert_close(found[1], expected[1])
        assert found[2] == expected[2]
        torch.testing.assert_close(found[3], expected[3])
    stats = intarsia.stats()
    assert (stats.recompiles, stats.fallbacks) == (0 if dynamic else 1, 0)
    assert stats.graphs == stats.recompiles + 1


def view_before(x, w):
    rows = x[:1]
    x.requires_grad_()
    return rows * 2, x * w


def written_before(x, w):
    x.add_(1)
    x.requires_grad_()
    return x * w


def required_for_a_while(x, w):
    y = x * 2
    y.requires_grad_()
    z = y * w
    y.requires_grad_(False)
    return y, z


@pytest.mark.parametrize("f", [view_before, written_before, required_for_a_while])
def test_what_breaks_is_as_in_eager(f):
    compiled = intarsia.compile(f, backend="kernels", options={"on_error": "raise"})
    for rows in (2, 4):
        found, expected = seen(compiled, rows), seen(f, rows)
        torch.testing.assert_close(found[:2], expected[:2])
        assert found[2] == expected[2]


def checked(x, w):
    x.requires_grad_()
    y = x * w
    assert (y < 5).all(), "too large"
    return y


def indexed(x, w):
    x.requires_grad_()
    return x[w.detach().long()]


@pytest.mark.parametrize("f", [checked, indexed])
def test_where_the_program_raises_the_tensor_is_as_in_eager(f):
    states = []
    for call in (intarsia.compile(f, backend="kernels", options={"on_error": "raise"}), f):
        good = torch.ones(2, 3), torch.ones(3)
        call(*good)
        bad = torch.ones(2, 3), torch.full((3,), 7.0)
        with pytest.raises((AssertionError, IndexError)) as error:
            call(*bad)
        states.append((type(error.value), [x.requires_grad for x in (*good, *bad)]))
    assert states[0] == states[1]


def test_a_tensor_that_is_asked_is_not_kept_alive():
    compiled = intarsia.compile(given, backend="kernels", options={"on_error": "raise"})
    x = torch.ones(2, 3)
    there = weakref.ref(x)
    compiled(x, torch.ones(3))
    del x
    assert there() is None


def test_an_optimizer_trains_what_was_made():
    def made(x):
        layer = nn.Linear(3, 1)
        return layer, layer(x).square().mean()

    losses = []
    for call in (intarsia.compile(made, fullgraph=True, backend="kernels", options={"on_error": "raise"}), made):
        torch.manual_seed(3)
        layer, loss = call(torch.ones(4, 3))
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        loss.backward()
        optimizer.step()
        losses.append(layer(torch.ones(4, 3)).square().mean().detach())
    torch.testing.assert_close(*losses)
