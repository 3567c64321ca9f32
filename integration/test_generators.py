"""Generators of the caller's own: another one is no other version, and where a graph raises their state is put back."""

from __future__ import annotations

import pytest
import torch

import intarsia

RAISE = {"on_error": "raise"}


@pytest.fixture(autouse=True)
def _fresh():
    intarsia.reset()
    yield
    intarsia.reset()


def noisy(x, g):
    return x + torch.randn(x.shape, generator=g), torch.rand(2, generator=g)


def test_another_generator_is_no_other_version():
    compiled, x = intarsia.compile(noisy, fullgraph=True, backend="kernels", options=RAISE), torch.ones(2, 3)
    for seed in range(3):
        g = [torch.Generator().manual_seed(seed) for _ in range(2)]
        torch.testing.assert_close(compiled(x, g[0]), noisy(x, g[1]))
        assert torch.equal(g[0].get_state(), g[1].get_state())
    assert intarsia.stats().frames_compiled == 1


def test_torchs_own_is_told_apart():
    compiled, x, found = intarsia.compile(noisy, backend="kernels"), torch.ones(2, 3), []
    compiled(x, torch.Generator().manual_seed(1))
    for call in (compiled, noisy):
        torch.manual_seed(4)
        found.append((call(x, torch.default_generator), torch.rand(2)))
    torch.testing.assert_close(*found)


def indexed(x, g):
    noise = torch.rand(4, generator=g)
    torch.manual_seed(3)
    return noise[x.long()] + torch.rand(2)


def test_where_the_graph_raises_the_states_are_put_back():
    states = []
    for call in (intarsia.compile(indexed, fullgraph=True, backend="kernels", options=RAISE), indexed):
        torch.manual_seed(1)
        g = torch.Generator().manual_seed(5)
        call(torch.tensor([0.0, 1.0]), g)
        with pytest.raises(IndexError):
            call(torch.tensor([0.0, 9.0]), g)
        states.append((g.get_state(), torch.get_rng_state()))
    torch.testing.assert_close(*states)
