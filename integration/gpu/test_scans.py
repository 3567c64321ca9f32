"""Scans and scatters of sizes that only a GPU is quick with: exact for integers, near float64 for floats."""

from __future__ import annotations

import pytest
import torch

import intarsia

RAISE = {"on_error": "raise"}
SHAPES = {
    "one long row": ((1 << 22,), 0),
    "a long row of an odd length": ((1_000_003,), 0),
    "few long rows": ((3, 300_001), 1),
    "many short rows": ((5000, 37), 1),
    "rows of one tile": ((300, 4096), 1),
    "rows of more": ((300, 4097), 1),
    "down a few columns": ((100_003, 5), 0),
    "down many columns": ((1000, 3000), 0),
    "in the middle": ((7, 513, 65), 1),
}


def numbers(shape, dtype):
    torch.manual_seed(0)
    if dtype.is_floating_point:
        return torch.randn(shape, device="cuda", dtype=dtype)
    return torch.randint(-100, 100, shape, device="cuda").to(dtype)


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8])
@pytest.mark.parametrize("name", SHAPES)
def test_running_sums(name, dtype, dynamic):
    shape, d = SHAPES[name]
    fast = intarsia.compile(lambda x: (x + 1).cumsum(d), dynamic=dynamic, options=RAISE)
    for n in (shape[d], shape[d] // 2 + 1) if dynamic else (shape[d],):
        x = numbers((*shape[:d], n, *shape[d + 1 :]), dtype)
        actual, eager = fast(x), (x + 1).cumsum(d)
        assert actual.dtype == eager.dtype and actual.stride() == eager.stride()
        if dtype.is_floating_point:
            exact = (x + 1).double().cumsum(d)
            far, allowed = (actual - exact).abs().max(), (eager - exact).abs().max()
            assert far <= 2 * allowed + 1e-5 * exact.abs().max()
        else:
            assert torch.equal(actual, eager)
    assert intarsia.stats().fallbacks == 0 and intarsia.stats().kernels_generated
    assert intarsia.stats().graphs == 1 and not intarsia.stats().extern_calls


@torch.no_grad()
@pytest.mark.parametrize("name", SHAPES)
def test_running_products_and_what_follows_them(name):
    shape, d = SHAPES[name]
    fast = intarsia.compile(lambda x: torch.where(x.cumprod(d) > 0, x, -x).sum(d), options=RAISE)
    x = torch.randint(0, 2, shape, device="cuda") * 2 - 1
    assert torch.equal(fast(x), torch.where(x.cumprod(d) > 0, x, -x).sum(d))
    assert not intarsia.stats().extern_calls


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int16, torch.uint8, torch.int8, torch.int32])
@pytest.mark.parametrize("reduce", ["amax", "amin", "sum"])
def test_scatters_of_many_points_to_few_places(reduce, dtype):
    fast = intarsia.compile(lambda x, i, v: x.scatter_reduce(0, i, v, reduce) + 0, options=RAISE)
    for special in (False, True):
        x, v = numbers((1000,), dtype), numbers((200_000,), dtype)
        i = torch.randint(0, 1000, (200_000,), device="cuda")
        if special and dtype.is_floating_point and reduce != "sum":
            v[::999], v[5::777], v[7::555] = float("nan"), float("inf"), float("-inf")
            x[::100], x[1::100] = -float("nan"), float("nan")
            v[i == 500] = -abs(v[i == 500])
        actual, eager = fast(x, i, v), x.scatter_reduce(0, i, v, reduce)
        close = {"rtol": 1e-4, "atol": 1e-2} if reduce == "sum" and dtype.is_floating_point else {"rtol": 0, "atol": 0}
        torch.testing.assert_close(actual, eager, equal_nan=True, **close)
    assert intarsia.stats().kernels_generated > 1 and intarsia.stats().extern_calls == 1  # the check of indices


@torch.no_grad()
def test_powers_of_integers():
    fast = intarsia.compile(lambda a, b: a**b, options=RAISE)
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        a, b = (numbers((10_000,), dtype) % 13 for _ in range(2))
        assert torch.equal(fast(a, b), a**b)
    assert not intarsia.stats().extern_calls
