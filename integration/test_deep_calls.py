"""Modules and functions that nest as deeply as eager can run them, and deeper."""

import sys
import warnings

import pytest
import torch

import intarsia

RAISE = {"on_error": "raise"}


class Nested(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + 1


def nested(depth):
    module = torch.nn.Identity()
    for _ in range(depth):
        module = Nested(module)
    return module


def test_nested_modules_are_one_graph():
    module, x = nested(200), torch.ones(2)
    before = intarsia.stats()
    fast = intarsia.compile(module, backend="eager", options=RAISE)
    for _ in range(3):
        assert torch.equal(fast(x), module(x))
    now = intarsia.stats()
    assert now.frames_compiled - before.frames_compiled == now.graphs - before.graphs == 1


@pytest.mark.parametrize("policy", ["raise", "eager"])
def test_what_eager_cannot_run_raises_as_in_eager(policy):
    def endless(x):
        return endless(x + 1)

    limit = sys.getrecursionlimit()
    fast = intarsia.compile(endless, backend="eager", options={"on_error": policy})
    for _ in range(3):
        with pytest.raises(RecursionError):
            fast(torch.ones(2))
    assert sys.getrecursionlimit() == limit


def test_a_call_too_deep_to_be_traced_falls_back_once():
    def down(x, n):
        return x if n == 0 else down(x + 1, n - 1)

    limit, before = sys.getrecursionlimit(), intarsia.stats()
    sys.setrecursionlimit(4000)  # more than the compiler has C stack for, while the frame hook is set
    try:
        fast = intarsia.compile(down, backend="eager")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(3):
                assert torch.equal(fast(torch.ones(2), 2500), torch.full((2,), 2501.0))
    finally:
        sys.setrecursionlimit(limit)
    assert len(told) == intarsia.stats().fallbacks - before.fallbacks <= 1
    assert all("tracer.depth" in str(warning.message) for warning in told)
