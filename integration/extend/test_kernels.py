"""Users' Triton kernels in compiled programs: one node a launch, never traced into; interpreted, as in eager."""

from __future__ import annotations

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import intarsia
from intarsia_recorder.launches import no_launches_of_fakes

pytest.importorskip("triton")
pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.skipif(sys.platform != "linux", reason="Triton's")]
RAISE = {"on_error": "raise"}
NAMES = [
    "grid of a function", "grid as a tuple", "in place", "in place, an input", "tuned", "heuristics", "constants",
    "atomic", "a view", "one after the other", "wrapped", "in an operator",
]  # fmt: skip


@pytest.fixture(scope="module")
def interpreted():
    """The environment of interpreted kernels, from their definition on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        yield


@pytest.fixture(scope="module")
def kernels(interpreted):
    sys.modules.pop("integration.extend.kernels", None)
    module = importlib.import_module("integration.extend.kernels")
    assert sorted(module.PROGRAMS) == sorted(NAMES)
    return module


def inputs(sizes):
    return [torch.linspace(-1, 2, torch.Size(size).numel()).view(size) for size in sizes]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_launch_is_one_node(kernels, name, dynamic):
    function, sizes, n_launches, *computed = kernels.PROGRAMS[name]
    want_inputs, got_inputs = inputs(sizes), inputs(sizes)
    want = (*computed, function)[0](*want_inputs)
    fast = intarsia.compile(function, fullgraph=True, dynamic=dynamic, options=RAISE)
    torch.testing.assert_close((fast(*got_inputs), got_inputs), (want, want_inputs))
    stats = intarsia.stats()
    assert (stats.frames_compiled, stats.graphs, stats.frames_eager, stats.fallbacks) == (1, 1, 0, 0)
    assert stats.extern_calls >= n_launches and stats.kernels_generated > 0


def test_sizes_stay_open(kernels):
    fast = intarsia.compile(lambda x, y: kernels.add(x * 2, y), fullgraph=True, dynamic=True, options=RAISE)
    for n in (50, 7, 64, 200, 333):
        x, y = inputs([(n,), (n,)])
        torch.testing.assert_close(fast(x, y), x * 2 + y)
    assert (intarsia.stats().graphs, intarsia.stats().recompiles) == (1, 0)


def test_powers_of_two_bound_open_sizes(kernels):
    """A block that follows the size is compiled for as long as the block stays the same."""
    fast = intarsia.compile(lambda x: kernels.rows(x * 2, "sum"), fullgraph=True, dynamic=True, options=RAISE)
    for n in (5, 6, 8, 7):
        (x,) = inputs([(3, n)])
        torch.testing.assert_close(fast(x), (x * 2).sum(1))
    assert intarsia.stats().graphs == 1
    (x,) = inputs([(3, 9)])
    torch.testing.assert_close(fast(x), (x * 2).sum(1))
    assert intarsia.stats().graphs == 2


def gradient(function, x):
    x = x.clone().requires_grad_()
    function(x).backward()
    return x.grad


@pytest.mark.parametrize("dynamic", [False, True])
def test_in_an_autograd_function(kernels, dynamic):
    def loss(x):
        return (kernels.Scale.apply(x * 2, 3.0) + 1).square().sum()

    (x,) = inputs([(50,)])
    fast = intarsia.compile(loss, fullgraph=True, dynamic=dynamic, options=RAISE)
    for _ in range(2):
        torch.testing.assert_close(gradient(fast, x), gradient(loss, x))
    stats = intarsia.stats()
    assert (stats.frames_compiled, stats.graphs, stats.frames_eager, stats.fallbacks) == (1, 1, 0, 0)
    assert stats.extern_calls == 2


def test_in_a_module_that_is_trained(kernels):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x):
            return kernels.Scale.apply(self.linear(x).relu(), 0.5).sum()

    layer, (x,) = Layer(), inputs([(4, 8)])
    layer(x).backward()
    want = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    intarsia.compile(layer, fullgraph=True, options=RAISE)(x).backward()
    torch.testing.assert_close([p.grad for p in layer.parameters()], want)
    assert intarsia.stats().graphs == 1


@pytest.mark.parametrize("name", ["doubled", "doubled_tuned", "increase"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_an_operator_of_interpreted_kernels_is_one_node(kernels, name, dynamic):
    """The fake implementation of a `triton_op` is its body, and the interpreter wants data."""
    operator = getattr(kernels, name)

    def f(x):
        y = x.sin()
        z = operator(y)
        return (y if z is None else z) + 1

    fast = intarsia.compile(f, fullgraph=True, dynamic=dynamic, options=RAISE)
    for n in (40, 70):
        (x,) = inputs([(n,)])
        want = x.sin() + 1.5 if name == "increase" else 2 * x.sin() + 1
        torch.testing.assert_close((fast(x), f(x)), (want, want))
    stats = intarsia.stats()
    assert (stats.frames_eager, stats.fallbacks, stats.graphs) == (0, 0, 1 if dynamic else 2)
    assert stats.extern_calls >= stats.graphs


def test_an_operator_of_an_interpreted_kernel_is_trained_by_its_formula(kernels):
    (x,) = inputs([(40,)])
    loss = lambda x: kernels.doubled(x.sin()).square().sum()
    want = gradient(lambda x: (2 * x.sin()).square().sum(), x)
    fast = intarsia.compile(loss, fullgraph=True, options=RAISE)
    for _ in range(2):
        torch.testing.assert_close((gradient(fast, x), gradient(loss, x)), (want, want))
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


def own_launchers():
    from triton.runtime import autotuner, interpreter

    return [vars(kind)["run"] for kind in (interpreter.InterpretedFunction, autotuner.Autotuner, autotuner.Heuristics)]


def test_launchers_are_tritons_own_but_while_a_fake_implementation_runs(kernels):
    own, seen = own_launchers(), []

    @torch.library.triton_op("extend_kernels::watched", mutates_args={})
    def watched(x: torch.Tensor) -> torch.Tensor:
        seen.append(own_launchers() != own)
        if x.shape[0] == 3:
            raise ValueError("no three")
        return kernels.doubled(x) if seen[-1] else x * 2

    fast = intarsia.compile(lambda x: watched(x.sin()) + 1, fullgraph=True, dynamic=False, options=RAISE)
    (x,) = inputs([(40,)])
    torch.testing.assert_close(fast(x), 2 * x.sin() + 1)
    assert True in seen and seen[-1] is False and own_launchers() == own
    with pytest.raises(Exception, match="no three"):
        fast(x[:3])
    assert own_launchers() == own


def test_launches_of_other_threads_are_tritons_own(kernels):
    """One thread is in the block and another launches: on data as always, and a fake tensor is passed on."""
    own, fake = own_launchers(), FakeTensorMode().from_tensor(torch.ones(40))
    with ThreadPoolExecutor(1) as other:

        def launch(x):
            kernels.scale_in_place(x, 2.0)
            return x

        with no_launches_of_fakes():
            with no_launches_of_fakes():
                launch(fake)
            launch(fake)
            assert own_launchers() != own
            assert other.submit(launch, torch.ones(40)).result().tolist() == [2.0] * 40
            with pytest.raises(Exception, match=r"FakeTensor|fake|data"):
                other.submit(launch, fake).result()
        with pytest.raises(Exception, match=r"FakeTensor|fake|data"):
            launch(fake)
    assert own_launchers() == own


def test_triton_itself_is_not_compiled(kernels):
    """A launch that no graph holds leaves the rest compiled, and no frame of Triton's or of the kernel is looked at."""

    def f(x):
        y = x * 2
        kernels.add_kernel[(1,)](y[:-1], y[1:], y[1:], y.numel() - 1, BLOCK=64)
        return y + 1

    (x,) = inputs([(20,)])
    torch.testing.assert_close(intarsia.compile(f, options=RAISE)(x), f(x))
    stats = intarsia.stats()
    assert stats.graphs == 2 and stats.frames_eager == 0 and stats.recompiles == 0
