"""Second and third derivatives through a compiled region: as eager's, or refused with a reason."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import intarsia
from intarsia_ir.errors import UnsupportedError

OPTIONS = {"on_error": "raise"}


def compiled(fn):
    intarsia.reset()
    return intarsia.compile(fn, options=OPTIONS)


def leaves(*shapes):
    torch.manual_seed(3)
    return [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def energy(x, w):
    return torch.tanh(x @ w).pow(3).sum(-1)


def penalty(fn, x, w):
    """Return a gradient penalty's gradients."""
    (force,) = torch.autograd.grad(fn(x, w).sum(), x, create_graph=True)
    return force, *torch.autograd.grad(force.pow(2).sum(), (x, w))


def hessian(fn, x, w):
    (first,) = torch.autograd.grad(fn(x, w).sum(), x, create_graph=True)
    rows = [torch.autograd.grad(first.flatten()[i], x, retain_graph=True)[0] for i in range(first.numel())]
    return torch.stack(rows)


def third(fn, x, w):
    (first,) = torch.autograd.grad(fn(x, w).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.pow(2).sum(), x, create_graph=True)
    return torch.autograd.grad(second.sum(), (x, w))


@pytest.mark.parametrize("use", [penalty, hessian, third])
def test_higher_derivatives_equal_eagers(use):
    x, w = leaves((4, 3), (3, 5))
    fast = compiled(energy)
    torch.testing.assert_close(use(fast, x, w), use(energy, x, w))
    assert intarsia.stats().graphs == 1 and intarsia.stats().fallbacks == 0


def test_first_derivatives_stay_compiled():
    x, w = leaves((4, 3), (3, 5))
    fast = compiled(energy)
    torch.testing.assert_close(
        torch.autograd.grad(fast(x, w).sum(), (x, w)), torch.autograd.grad(energy(x, w).sum(), (x, w))
    )
    assert intarsia.stats().kernels_generated > 0


def test_an_input_that_was_computed_from_another_counts_once():
    """w depends on x: the gradient of the call in x is not the whole one, which autograd adds up itself."""
    x, _ = leaves((3, 3), (3, 3))

    def run(fn):
        w = x.t() * 2
        (force,) = torch.autograd.grad(fn(x, w).sum(), x, create_graph=True)
        return torch.autograd.grad(force.pow(2).sum(), x)

    torch.testing.assert_close(run(compiled(energy)), run(energy))


def test_module_trained_on_its_forces():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Softplus(), torch.nn.Linear(16, 1)).double()
    (x,) = leaves((5, 3))

    def weights_gradients(fn):
        model.zero_grad()
        (force,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        (force - 1).square().mean().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    torch.testing.assert_close(weights_gradients(compiled(model)), weights_gradients(model))


def test_two_results_one_of_which_is_used():
    x, w = leaves((4, 3), (3, 5))

    def both(x, w):
        h = x @ w
        return h.sin().sum(), h.exp()

    def run(fn):
        value, _ = fn(x, w)
        (force,) = torch.autograd.grad(value, x, create_graph=True)
        return torch.autograd.grad(force.sum(), (x, w))

    torch.testing.assert_close(run(compiled(both)), run(both))


def test_under_autocast_the_run_is_cast_as_the_call_was():
    x, w = [t.float().detach().requires_grad_() for t in leaves((8, 4), (4, 4))]

    def run(fn):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = fn(x, w)
        (force,) = torch.autograd.grad(value.float().sum(), x, create_graph=True)
        return torch.autograd.grad(force.float().pow(2).sum(), (x, w))

    torch.testing.assert_close(run(compiled(energy)), run(energy), rtol=2e-2, atol=2e-2)


def test_random_numbers_are_refused():
    x, w = leaves((4, 3), (3, 5))
    fast = compiled(lambda x, w: F.dropout(x @ w, 0.5).pow(2).sum())
    with pytest.raises(UnsupportedError, match="draws random numbers") as caught:
        torch.autograd.grad(fast(x, w), x, create_graph=True)
    assert caught.value.code == "training.double_backward"


def test_an_input_written_since_is_refused():
    x, w = leaves((4,), (4,))
    fast = compiled(lambda x, w: (x * 2 + w).sum())
    value = fast(x, w)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(UnsupportedError, match="written to since"):
        torch.autograd.grad(value, x, create_graph=True)


def test_an_input_that_died_is_refused_and_nothing_was_kept_alive():
    (x,) = leaves((4,))
    fast = compiled(lambda x, w: (x.exp() + w).sum())
    value = fast(x, torch.randn(4, dtype=torch.float64))
    with pytest.raises(UnsupportedError, match="is gone"):
        torch.autograd.grad(value, x, create_graph=True)


def test_the_graph_that_runs_again_is_not_compiled_once_more():
    def penalty(x):
        (g,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
        g.pow(2).sum().backward()
        return g

    x = torch.arange(3.0, requires_grad=True)
    expected = penalty(x).detach()
    wanted, x.grad = x.grad, None
    fast, before = intarsia.compile(penalty, options=OPTIONS), intarsia.stats()
    for _ in range(3):
        x.grad = None
        torch.testing.assert_close(fast(x).detach(), expected)
        torch.testing.assert_close(x.grad, wanted)
    now = intarsia.stats()
    assert now.frames_seen - before.frames_seen == now.frames_compiled - before.frames_compiled <= 2
