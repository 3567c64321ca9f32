"""`map` and `scan` of torch's higher-order operators: one graph, results and gradients; what they refuse breaks."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan

import intarsia
from intarsia_ir.errors import UnsupportedError

STRICT = {"fullgraph": True, "options": {"on_error": "raise"}}


@pytest.fixture(autouse=True)
def _fresh():
    intarsia.reset()
    yield
    intarsia.reset()


def rows(x, w):
    return map_rows(lambda row, scale, k: row.sin() * scale + k, x, w, 2)


def rows_in_a_dict(x, w):
    return map_rows(lambda r: {"a": r["k"] * w, "b": (r["k"].sum(),)}, {"k": x})


def sums(x, w):
    return scan(lambda carry, row: (carry * w + row, (carry * row).exp()), torch.zeros(3, dtype=x.dtype), x)


def backwards_along_columns(x, w):
    last, kept = scan(lambda c, r: ({"h": c["h"] + r}, c["h"].sum() * r), {"h": x[:, 0] * 1}, x, dim=1, reverse=True)
    return last["h"], kept * w


def nothing_kept(x, w):
    return scan(lambda carry, row: (carry + row * w, ()), torch.zeros(3, dtype=x.dtype), x)[0]


def numbers(result):
    if isinstance(result, dict):
        return [t for value in result.values() for t in numbers(value)]
    return [result] if isinstance(result, torch.Tensor) else [t for value in result for t in numbers(value)]


@pytest.mark.parametrize("f", [rows, rows_in_a_dict, sums, backwards_along_columns, nothing_kept])
def test_as_the_operator(f):
    seen = []
    for call in (intarsia.compile(f, **STRICT), f):
        torch.manual_seed(0)
        x, w = (torch.randn(n, dtype=torch.float64, requires_grad=True) for n in ((4, 3), (3,)))
        found = [(type(r), numbers(r)) for r in (call(x, w), call(x * 2, w))]
        sum(t.square().sum() for _, results in found for t in results).backward()
        seen.append(([kind for kind, _ in found], [r for _, r in found], x.grad, w.grad, torch.rand(2)))
    assert seen[0][0] == seen[1][0]
    torch.testing.assert_close(seen[0][1:], seen[1][1:])
    assert (intarsia.stats().graphs, intarsia.stats().fallbacks) == (1, 0)


def random_rows(x):
    return map_rows(lambda row: row * torch.rand(3), x)


def test_rows_draw_in_order():
    seen = []
    for call in (intarsia.compile(random_rows, backend="kernels", **STRICT), random_rows):
        torch.manual_seed(0)
        seen.append((call(torch.ones(4, 3)), torch.rand(2)))
    torch.testing.assert_close(*seen)


def the_row_itself(x):
    return map_rows(lambda row: row, x)


def what_was_closed_over(x):
    y = x[0] * 2
    return map_rows(lambda row: y, x)


def the_same_twice(x):
    return scan(lambda carry, row: ((carry + row),) * 2, torch.zeros(3, dtype=x.dtype), x)


def writes(x):
    return map_rows(lambda row: row.add_(1) * 2, x)


def counts(x):
    seen = []

    def f(row):
        seen.append(1)
        return row * 2

    return map_rows(f, x), len(seen)


@pytest.mark.parametrize("f", [the_row_itself, what_was_closed_over, the_same_twice, writes, counts])
def test_what_the_operators_refuse_breaks(f):
    with pytest.raises(UnsupportedError, match=r"the function of (map|scan)"):
        intarsia.compile(f, backend="kernels", **STRICT)(torch.ones(2, 3))


def test_many_rows_break_by_name():
    with pytest.raises(UnsupportedError, match="more than 64"):
        intarsia.compile(lambda x: map_rows(torch.sin, x), backend="kernels", **STRICT)(torch.ones(65, 2))
