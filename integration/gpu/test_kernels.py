"""Users' Triton kernels in compiled programs on a GPU: tuned, in training, and under CUDA graphs."""

import pytest
import torch
import triton
import triton.language as tl

import intarsia
from integration.extend import kernels
from integration.extend.test_kernels import gradient, inputs

RAISE = {"on_error": "raise"}


@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 256}, num_warps=8)],
    key=["n"],
    reset_to_zero=["out_ptr"],
)
@triton.jit
def total_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), axis=0))


def total(x):
    out = torch.zeros(1, device=x.device)
    total_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


def cuda(sizes):
    return [x.cuda() for x in inputs(sizes)]


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("name", kernels.PROGRAMS)
def test_a_launch_is_one_node(name, mode):
    function, sizes, n_launches, *computed = kernels.PROGRAMS[name]
    want_inputs = cuda(sizes)
    want = (*computed, function)[0](*want_inputs)
    fast = intarsia.compile(function, fullgraph=True, mode=mode, options=RAISE)
    for _ in range(4):
        got_inputs = cuda(sizes)
        torch.testing.assert_close((fast(*got_inputs), got_inputs), (want, want_inputs))
    stats = intarsia.stats()
    assert (stats.frames_compiled, stats.graphs, stats.frames_eager, stats.fallbacks) == (1, 1, 0, 0)
    assert stats.extern_calls >= n_launches


@pytest.mark.parametrize("dynamic", [False, True])
def test_each_configuration_of_a_tuner_has_its_grid(dynamic):
    fast = intarsia.compile(lambda x: total(x * 2) + 1, fullgraph=True, dynamic=dynamic, options=RAISE)
    for n in (1000, 3000, 257):
        (x,) = cuda([(n,)])
        torch.testing.assert_close(fast(x), (x * 2).sum().view(1) + 1)
    assert intarsia.stats().fallbacks == 0 and (not dynamic or intarsia.stats().graphs == 1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_in_training(dynamic):
    def loss(x):
        return (kernels.Scale.apply(x * 2, 3.0) + 1).square().sum()

    (x,) = cuda([(50,)])
    fast = intarsia.compile(loss, fullgraph=True, dynamic=dynamic, options=RAISE)
    for _ in range(3):
        torch.testing.assert_close(gradient(fast, x), gradient(loss, x))
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


@torch.no_grad()
def test_an_operator_of_kernels():
    f = lambda x: kernels.doubled(x + 1) * 3
    (x,) = cuda([(50,)])
    torch.testing.assert_close(intarsia.compile(f, fullgraph=True, options=RAISE)(x), f(x))
    assert (intarsia.stats().graphs, intarsia.stats().extern_calls) == (1, 1)
