"""Writes at the places of masks are one graph without library calls, in training too."""

from __future__ import annotations

import pytest
import torch

import intarsia

RAISE = {"on_error": "raise"}


def write_rows(x, mask, row):
    y = x * 2
    y[mask] = row
    return y.sin()


def write_numbers(x, mask, row):
    y = x * row
    y[mask] = 0.5
    y[~mask] += 1
    return y


def write_input(x, mask, row):
    x[mask] = row
    return x + 1


@pytest.mark.parametrize("function", [write_rows, write_input])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("places", [0, 1, 7, 10])
def test_one_kernel_and_eager_s_gradients(function, dynamic, places):
    torch.manual_seed(0)
    intarsia.reset()
    call = intarsia.compile(function, dynamic=dynamic, fullgraph=True, options=RAISE)
    mask = (torch.randperm(10) < places).view(2, 5)
    outcomes = []
    for f in (function, call):
        leaf = torch.linspace(-1, 1, 40).view(2, 5, 4).requires_grad_()
        row = torch.arange(4.0).requires_grad_()
        x = leaf * 1
        result = f(x, mask, row)
        result.square().sum().backward()
        outcomes.append((result.detach(), x.detach(), leaf.grad, row.grad))
    torch.testing.assert_close(outcomes[1], outcomes[0])
    stats = intarsia.stats()
    assert (stats.graphs, stats.fallbacks) == (1, 0)
    assert stats.kernels_generated and not stats.extern_calls, stats


def test_numbers_and_what_depends_on_the_places():
    x, row = torch.linspace(-1, 1, 40).view(2, 5, 4), torch.arange(4.0)
    call = intarsia.compile(write_numbers, fullgraph=True, options=RAISE)
    for seed in range(4):
        mask = torch.rand(2, 5, generator=torch.Generator().manual_seed(seed)) < 0.3
        torch.testing.assert_close(call(x, mask, row), write_numbers(x, mask, row))


@pytest.mark.parametrize("value", [torch.ones(3), torch.ones(2, 4), torch.ones(4, dtype=torch.float64), 2**70])
def test_errors_are_eager_s(value):
    def write(x, mask):
        y = x * 1
        y[mask] = value
        return y

    x, mask = torch.zeros(5, 4), torch.arange(5) > 1
    outcomes = []
    for f in (write, intarsia.compile(write)):
        try:
            outcomes.append(f(x, mask))
        except Exception as error:
            outcomes.append((type(error), str(error)))
    assert type(outcomes[0]) is type(outcomes[1])
    if isinstance(outcomes[0], torch.Tensor):
        torch.testing.assert_close(*outcomes)
    else:
        assert outcomes[0] == outcomes[1]


def test_a_leaf_is_refused_as_in_eager():
    leaf = torch.zeros(5, 4, requires_grad=True)
    for f in (write_input, intarsia.compile(write_input)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            f(leaf, torch.arange(5) > 1, torch.ones(4))
