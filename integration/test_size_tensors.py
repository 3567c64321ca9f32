"""0-dim tensors given where an operation takes sizes: one graph, for each number that they hold."""

from __future__ import annotations

import pytest
import torch

import intarsia

RAISE = {"on_error": "raise"}
pytestmark = pytest.mark.usefixtures("fresh")


def view(x, n):
    return x.view(2, n, 4) * 2


def reshape(x, n):
    return x.reshape((n, 8)).sum(1) + n


def zeros(x, n):
    return torch.zeros(n, 3) + x.sum()


def full(x, n):
    return torch.full((n, 2), 1.5) + x.sum()


def expand(x, n):
    return x.expand(n, 2, 12) + 1


def repeat(x, n):
    return x.repeat(n, 1) + 1


def narrow(x, n):
    return x.narrow(1, 0, n) + 1


def cut(x, n):
    return x[:, :n] * 2


def new(x, n):
    return x.new_zeros((n, 3)) + torch.arange(n)[:, None]


@pytest.mark.parametrize("function", [view, reshape, zeros, full, expand, repeat, narrow, cut, new])
def test_numbers_in_tensors(function):
    compiled = intarsia.compile(function, options=RAISE)
    x = torch.randn(2, 12)
    sizes = (3,) if function in (view, reshape) else (3, 2, 4)
    for n in sizes:
        torch.testing.assert_close(compiled(x, torch.tensor(n)), function(x, torch.tensor(n)))
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_compiled, stats.frames_eager, stats.fallbacks) == (1, 1, 0, 0)
    assert stats.kernels_generated


def given_by_name(x, n):
    return torch.reshape(input=n, shape=(1,)) + torch.tile(input=n, dims=(2,)) + x.sum()


def written_by_name(x, n):
    torch.full((), 7, dtype=torch.int64, out=n)
    return x + n


@pytest.mark.parametrize("function", [given_by_name, written_by_name])
def test_tensors_given_by_name_stay_tensors(function):
    compiled = intarsia.compile(function, options=RAISE)
    x = torch.randn(2, 12)
    for n in (3, 5):
        mine, theirs = torch.tensor(n), torch.tensor(n)
        torch.testing.assert_close(compiled(x, mine), function(x, theirs))
        assert torch.equal(mine, theirs)
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_eager, stats.fallbacks) == (1, 0, 0)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_quotients_of_sizes(mode):
    def f(x):
        n = torch.div(x.size(1), 4, rounding_mode=mode)
        return x.view(x.size(0), n, 4)[:, : int(n) - 1] * 2 + n

    compiled = intarsia.compile(f, options=RAISE)
    for size in (12, 16, 20, 32):
        x = torch.randn(2, size)
        torch.testing.assert_close(compiled(x), f(x))
    stats = intarsia.stats()
    assert (stats.graphs, stats.recompiles, stats.frames_eager, stats.fallbacks) == (2, 1, 0, 0)


def test_a_written_quotient():
    def f(x):
        n = torch.div(x.size(1), 4, rounding_mode="floor")
        n += 1
        return x[:, :n] * 2

    compiled = intarsia.compile(f, options=RAISE, dynamic=True)
    for size in (12, 16):
        x = torch.randn(2, size)
        torch.testing.assert_close(compiled(x), f(x))
    assert intarsia.stats().fallbacks == 0


def test_a_number_that_does_not_fit():
    compiled = intarsia.compile(view, options=RAISE)
    x = torch.randn(2, 12)
    torch.testing.assert_close(compiled(x, torch.tensor(3)), view(x, torch.tensor(3)))
    with pytest.raises(RuntimeError, match="invalid for input"):
        compiled(x, torch.tensor(5))


def quotient_written_by_data(x):
    n = torch.div(x.size(1), 4, rounding_mode="floor")
    n.data.fill_(2)
    return x[:, :n] * 2


def quotient_with_other_data(x):
    n = torch.div(x.size(1), 4, rounding_mode="floor")
    n.data = torch.tensor(2)
    return x[:, :n] * 2


def number_written_by_data(x):
    n = x[0, 0].long()
    first = torch.zeros(n)
    n.data.fill_(3)
    return first, torch.zeros(n), n.item()


@pytest.mark.parametrize("f", [quotient_written_by_data, quotient_with_other_data, number_written_by_data])
def test_writes_that_torch_does_not_count(f):
    compiled = intarsia.compile(f, options=RAISE, dynamic=True)
    for size in (12, 16, 20):
        x = torch.full((2, size), 4.0)
        torch.testing.assert_close(compiled(x), f(x))
    assert intarsia.stats().fallbacks == 0
