"""Gradients that compiled code takes itself: forces, penalties, residuals of differential equations; and trained on."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn

import intarsia

OPTIONS = {"on_error": "raise"}


class ForceField(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, positions):
        with torch.enable_grad():
            positions = positions.detach().requires_grad_(True)
            between = positions[:, None] - positions[None]
            distances = (between.square().sum(-1) + torch.eye(4)).sqrt()
            energy = self.net(distances).sum() + (1 / distances).sum()
            (gradient,) = torch.autograd.grad(energy, positions, create_graph=self.training)
        return energy, -gradient


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(), nn.Linear(8, 1))

    def forward(self, real, fake, mix):
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        scores = self.net(between)
        (g,) = torch.autograd.grad(scores, between, torch.ones_like(scores), create_graph=True)
        penalty = ((g.norm(2, dim=1) - 1) ** 2).mean()
        return self.net(fake).mean() - self.net(real).mean() + 10 * penalty


class Burgers(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, t, x):
        t, x = t.clone().requires_grad_(), x.clone().requires_grad_()
        u = self.net(torch.stack([t, x], -1))
        ones = torch.ones_like(u)
        u_t, u_x = torch.autograd.grad(u, (t, x), ones, create_graph=True)
        (u_xx,) = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)
        return (u_t + u.squeeze(-1) * u_x - 0.01 * u_xx).square().mean()


torch.manual_seed(0)
MODELS = {
    "force field": (ForceField(), (torch.randn(4, 3),)),
    "gradient penalty": (Critic(), (torch.randn(6, 3), torch.randn(6, 3), torch.rand(6, 1))),
    "differential equation": (Burgers(), (torch.rand(8), torch.rand(8))),
}


def total(result):
    return result if isinstance(result, torch.Tensor) else sum(part.square().sum() for part in result)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_trained(name):
    model, args = MODELS[name]

    def step(fn):
        model.zero_grad()
        result = fn(*args)
        total(result).backward()
        gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        return [r.detach() for r in (result if isinstance(result, tuple) else (result,))], gradients

    intarsia.reset()
    fast = intarsia.compile(model, options=OPTIONS)
    for _ in range(2):
        close(step(fast), step(model))
    stats = intarsia.stats()
    assert (stats.graphs, stats.fallbacks) == (1, 0) and stats.kernels_generated > 0


@pytest.mark.parametrize("grad_mode", [True, False])
def test_forces_in_inference(grad_mode):
    model, args = MODELS["force field"]
    model.eval()
    try:
        intarsia.reset()
        fast = intarsia.compile(model, options=OPTIONS)
        with torch.set_grad_enabled(grad_mode):
            found, expected = fast(*args), model(*args)
        close(found, expected)
        assert [t.requires_grad for t in found] == [t.requires_grad for t in expected]
        for energy, _ in (found, expected):  # nothing was kept of the graph of the energy
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                energy.backward()
        assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)
    finally:
        model.train()


def test_a_hessian_row_by_row():
    def hessian(x):
        x = x.clone().requires_grad_()
        (g,) = torch.autograd.grad((x.sin() * x.prod()).sum(), x, create_graph=True)
        return torch.stack([torch.autograd.grad(g[i], x, retain_graph=True)[0] for i in range(3)])

    intarsia.reset()
    x = torch.tensor([0.5, -1.0, 2.0])
    close(intarsia.compile(hessian, options=OPTIONS)(x), hessian(x))
    assert intarsia.stats().graphs == 1


def test_an_argument_that_was_computed_from_another():
    """Eager goes back through what was done before the call as well."""

    def fn(h, w):
        return torch.autograd.grad((h * w).sum(), w, retain_graph=True)[0]

    intarsia.reset()
    fast = intarsia.compile(fn)
    a, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    close(fast(a, w), fn(a, w))
    h = w.exp()
    close(fast(h, w), fn(h, w))
    v = w * 2
    close(fast(v.exp(), v), fn(v.exp(), v))


def test_a_returned_leaf_takes_gradients():
    def fn(x):
        y = (x * 2).requires_grad_()
        return y, (y * y).sum()

    for run in (fn, intarsia.compile(fn)):
        y, total = run(torch.arange(3.0))
        total.backward()
        close(y.grad, torch.tensor([0.0, 4.0, 8.0]))


def test_attention_that_is_differentiated_twice():
    """Written-out attention is no library call here, whose gradient has no gradient."""
    model = nn.Linear(4, 12)

    def loss(x):
        x = x.detach().requires_grad_()
        q, k, v = model(x).chunk(3, -1)
        y = torch.softmax(q @ k.transpose(-2, -1) * 0.5, -1) @ v
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return g.square().sum()

    def step(fn):
        model.zero_grad()
        fn(x).backward()
        return [p.grad.clone() for p in model.parameters()]

    x = torch.randn(2, 3, 5, 4)
    intarsia.reset()
    close(step(intarsia.compile(loss, options=OPTIONS)), step(loss))
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)
