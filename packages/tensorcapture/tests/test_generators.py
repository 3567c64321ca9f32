"""Random generators of the program's own, and seeds: drawn before the graph, in order; what can't be breaks by name."""

from __future__ import annotations

import pytest
import torch
from tensor_executor import Executor
from torch import nn


def factories(x, g):
    return x + torch.randn(2, 3, generator=g), torch.randint(9, (2,), generator=g), torch.rand(x.shape, generator=g)


def other_types(x, g):
    return torch.rand(3, generator=g, dtype=torch.float64) + x, torch.normal(1.0, 2.0, (3,), generator=g)


def fills(x, g):
    w = torch.empty(3, 4)
    nn.init.normal_(w, std=0.1, generator=g)
    x.uniform_(-1, 1, generator=g)
    return x @ w


def returned(x, g):
    return torch.randperm(x.shape[1], generator=g), g.device, isinstance(g, torch.Generator), g


def seeded(x, g):
    g.manual_seed(x.shape[0])
    return torch.rand(3, generator=g) * x, torch.rand(2, generator=g.manual_seed(5))


def made(x, g):
    own = torch.Generator("cpu")
    own.manual_seed(7)
    return x * torch.rand(3, generator=own), own is g


def seed_of_torch(x, g):
    torch.manual_seed(x.shape[0])
    return torch.rand(3), nn.functional.dropout(x)


WHOLE = [factories, other_types, fills, returned, seeded, made, seed_of_torch]


def outcome(call, n):
    """Return what calls give, and where the generators are afterwards."""
    torch.manual_seed(1)
    g = torch.Generator().manual_seed(3)
    results = [call(torch.ones(2, 3), g) for _ in range(n)]
    return [[v for v in row if v is not g] for row in results], g.get_state(), torch.get_rng_state()


@pytest.mark.parametrize("f", WHOLE, ids=lambda f: f.__name__)
def test_one_graph(f):
    executor = Executor(force=True)
    found, expected = outcome(lambda *args: executor.call(f, *args), 2), outcome(f, 2)
    for one, other in zip(found[0], expected[0]):
        assert [type(v) for v in one] == [type(v) for v in other]
        for a, b in zip(one, other):
            torch.testing.assert_close(a, b) if isinstance(a, torch.Tensor) else None
            assert isinstance(a, torch.Tensor) or a == b
    assert torch.equal(found[1], expected[1]) and torch.equal(found[2], expected[2])
    assert {capture.breaks for capture in executor.captures} == {()}


def of_data(x, g):
    return torch.multinomial(x, 1, generator=g)


def of_torchs_own(x, g):
    return x + torch.rand(3, generator=torch.default_generator)


def seed_late(x, g):
    y = nn.functional.dropout(x)
    torch.manual_seed(2)
    return y, torch.rand(2)


def of_a_sum(x, g):
    return torch.normal(x.sum().item(), 1.0, (3,), generator=g)


def into_a_part(x, g):
    x.t().normal_(generator=g)
    return x * 2


@pytest.mark.parametrize(
    ("f", "reason"),
    [
        (of_data, "multinomial draws from a generator"),
        (of_torchs_own, "torch itself draws from"),
        (seed_late, "after random numbers were drawn"),
        (of_a_sum, "isn't known before the graph runs"),
        (into_a_part, "isn't contiguous"),
    ],
)
def test_what_cannot_be_drawn_ahead_breaks(f, reason):
    executor = Executor()
    found, expected = outcome(lambda *args: [executor.call(f, *args)], 2), outcome(lambda *args: [f(*args)], 2)
    torch.testing.assert_close(found, expected)
    assert reason in executor.captures[0].breaks[0].reason
