"""Users' Triton kernels, compiled by Triton: one node a launch, of any size, in training and in CUDA graphs."""

import pytest
import torch

import intarsia
from integration.extend import kernels

RAISE = {"on_error": "raise"}


def inputs(sizes):
    return [torch.linspace(-1, 2, torch.Size(size).numel(), device="cuda").view(size) for size in sizes]


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", kernels.PROGRAMS)
def test_a_launch_is_one_node(name, dynamic):
    function, sizes, n_launches, *_ = kernels.PROGRAMS[name]
    want_inputs, got_inputs = inputs(sizes), inputs(sizes)
    want = function(*want_inputs)
    fast = intarsia.compile(function, fullgraph=True, dynamic=dynamic, options=RAISE)
    torch.testing.assert_close((fast(*got_inputs), got_inputs), (want, want_inputs))
    stats = intarsia.stats()
    assert (stats.frames_compiled, stats.graphs, stats.frames_eager, stats.fallbacks) == (1, 1, 0, 0)
    assert stats.extern_calls >= n_launches and stats.kernels_generated > 0


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_in_training(mode):
    def loss(x):
        return (kernels.Scale.apply(x * 2, 3.0) + 1).square().sum()

    def gradient(function):
        (x,) = inputs([(50,)])
        function(x.requires_grad_()).backward()
        return x.grad.clone()

    fast = intarsia.compile(loss, mode=mode, fullgraph=True, options=RAISE)
    want = gradient(loss)
    for _ in range(4):
        torch.testing.assert_close(gradient(fast), want)
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


@torch.no_grad()
@pytest.mark.parametrize("name", ["grid of a function", "tuned", "one after the other", "in an operator"])
def test_a_replay_launches_them(name):
    function, sizes, *_ = kernels.PROGRAMS[name]
    fast = intarsia.compile(function, mode="reduce-overhead", fullgraph=True, options=RAISE)
    for number in range(4):
        given = [x + number for x in inputs(sizes)]
        torch.testing.assert_close(fast(*given), function(*[x.clone() for x in given]))
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


@pytest.mark.parametrize("name", ["doubled", "doubled_tuned", "increase"])
def test_an_operator_of_kernels(name):
    operator = getattr(kernels, name)

    def f(x):
        y = x.sin()
        z = operator(y)
        return (y if z is None else z) + 1

    fast = intarsia.compile(f, fullgraph=True, options=RAISE)
    for n in (40, 70):
        (x,) = inputs([(n,)])
        torch.testing.assert_close(fast(x), f(x))
    assert intarsia.stats().fallbacks == 0
