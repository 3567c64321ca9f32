"""`rng="philox"`: the C++ kernels draw what the loops interpreter draws; training uses one mask in both directions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import intarsia
import intarsia_cpp
import intarsia_functionalizer
import intarsia_fuser
import intarsia_loops
import intarsia_loops.loops
import intarsia_lowering
import intarsia_runtime
import intarsia_scheduler

OPTIONS = {"on_error": "raise", "rng": "philox"}


def drawing(x):
    return F.dropout(torch.relu(x), 0.3) + torch.rand_like(x), torch.bernoulli(x, 0.25), torch.randn_like(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cpp_draws_what_the_interpreter_draws(dtype, tmp_path):
    x = torch.randn(7, 1030, dtype=dtype)
    with torch.no_grad():
        pure = intarsia_functionalizer.functionalize(intarsia_functionalizer.to_aten(drawing, (x,)))
    loops = intarsia_lowering.lower(pure.graph_module, rng="philox")
    kernels = intarsia_fuser.apply(loops, intarsia_fuser.plan(loops))
    target = intarsia_runtime.detect_target()
    source = intarsia_cpp.emit_unit(intarsia_scheduler.scheduled(kernels, target).launches)
    library = intarsia_runtime.build(source, target, cache=intarsia_runtime.Cache(tmp_path))
    run = intarsia_runtime.link(kernels, source, library)
    torch.manual_seed(5)
    found = run(x)
    torch.manual_seed(5)
    expected = intarsia_loops.loops.interpret(loops, x)
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])
    torch.testing.assert_close(found[2], expected[2])  # by a logarithm and a cosine


def test_doubles_have_53_random_bits():
    compiled = intarsia.compile(lambda x: (torch.rand_like(x), torch.randn_like(x)), options=OPTIONS)
    uniform, normal = compiled(torch.empty(10_000, dtype=torch.float64))
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
    assert ((uniform * 2**53) == (uniform * 2**53).floor()).all()
    assert 0.4 < ((uniform * 2**53) % 2).mean() < 0.6  # the last bit
    assert abs(normal.std() - 1) < 0.05


def test_calls_differ_and_a_seed_repeats_them():
    compiled = intarsia.compile(lambda x: F.dropout(x, 0.5), options=OPTIONS)
    x = torch.ones(64, 64)
    torch.manual_seed(1)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(1)
    assert torch.equal(compiled(x), first) and not torch.equal(first, second)
    assert set(first.unique().tolist()) == {0.0, 2.0} and 0.4 < (first == 0).float().mean() < 0.6


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_the_mask_in_backward_is_the_mask_in_forward(p):
    compiled = intarsia.compile(lambda x: F.dropout(torch.sin(x), p, training=True), options=OPTIONS)
    x = torch.rand(32, 48, requires_grad=True)
    y = compiled(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    kept = (y != 0).float() / (1 - p)
    torch.testing.assert_close(grad, torch.cos(x) * kept)
    assert intarsia.stats().fallbacks == 0
