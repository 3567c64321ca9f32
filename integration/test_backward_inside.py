"""`backward()` and optimizers inside of a compiled function: eager runs them, and calls what was compiled."""

import pytest
import torch
from torch import nn

import intarsia

RAISE = {"on_error": "raise"}

pytestmark = pytest.mark.usefixtures("fresh")


def weights():
    torch.manual_seed(0)
    return [torch.randn(8, 8, requires_grad=True) for _ in range(2)]


@pytest.mark.parametrize("backend", ["eager", "aten", "loops", "kernels", "auto"])
def test_backward_inside(backend):
    first, second = weights()

    def step(x):
        loss = (torch.relu(x @ first) @ second).sum()
        loss.backward()
        return loss

    x = torch.randn(4, 8)
    want = step(x)
    grads = [w.grad for w in (first, second)]
    first.grad = second.grad = None
    torch.testing.assert_close(intarsia.compile(step, backend=backend, options=RAISE)(x), want)
    torch.testing.assert_close([w.grad for w in (first, second)], grads)
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


def test_autograd_grad_inside():
    first, second = weights()

    def step(x):
        loss = (torch.relu(x @ first) @ second).sum()
        return torch.autograd.grad(loss, [first, second])

    x = torch.randn(4, 8)
    torch.testing.assert_close(intarsia.compile(step, options=RAISE)(x), step(x))
    assert intarsia.stats().fallbacks == 0


def train(steps, transform):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = transform(step)
    losses = [run(torch.randn(32, 8), torch.randint(0, 3, (32,))).detach() for _ in range(steps)]
    return torch.stack(losses), list(model.state_dict().values())


def test_a_whole_step():
    want = train(6, lambda step: step)
    got = train(6, lambda step: intarsia.compile(step, options=RAISE))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    stats = intarsia.stats()
    assert stats.fallbacks == 0 and stats.graphs >= 2 and stats.recompiles <= 2
    assert stats.kernels_generated > 0
