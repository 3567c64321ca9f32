"""Tensors past 2^31 bytes and elements on a CPU: numbers of points and of elements, and positions that are found.

Memory that nobody touches isn't there: an array of zeros from the system takes pages only where it is read or written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import intarsia

RAISE = {"on_error": "raise"}
LONG = (1 << 31) + 100
APART = (1 << 30) + 8  # elements between two rows: the third is past 2^31


def zeros(n: int) -> Tensor:
    return torch.from_numpy(np.zeros(n, dtype=np.uint8))


def compiled(f: Callable[..., Any], *args: Tensor) -> Any:
    """What `f` gives, from one compiled graph."""
    run = intarsia.compile(f, fullgraph=True, options=RAISE)
    before = intarsia.stats()
    found, after = run(*args), intarsia.stats()
    counted = (after.frames_compiled - before.frames_compiled, after.fallbacks, after.frames_eager)
    assert counted == (1, before.fallbacks, before.frames_eager)
    return found


def test_a_row_of_more_than_two_to_the_31_points(fresh: None) -> None:
    """The last of them is summed, compared, and found at its place."""
    x = zeros(LONG)
    x[3], x[-1] = 4, 5
    total, place = compiled(lambda x: (x.sum(), x.argmax()), x)
    assert (int(total), int(place)) == (9, LONG - 1)


@pytest.mark.parametrize("columns", [5, 67])
def test_elements_past_two_gigabytes(columns: int, fresh: None) -> None:
    """Rows that lie far apart are read, reduced, and written where they are."""
    x, y = (zeros(3 * APART + columns).as_strided((4, columns), (APART, 1)) for _ in range(2))
    x.copy_(torch.randint(0, 9, (4, columns)))

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        y.copy_(x * 2 + 1)
        return x.float().softmax(1), x.sum(0)

    weights, sums = compiled(f, x, y)
    assert torch.equal(y, x * 2 + 1)
    torch.testing.assert_close(weights, x.float().softmax(1))
    assert torch.equal(sums, x.sum(0))


def test_a_lookup_past_two_gigabytes(fresh: None) -> None:
    """Rows of a table are read at places that depend on data, and added to."""
    table = zeros(3 * APART + 8).as_strided((4, 8), (APART, 1))
    table.copy_(torch.arange(32).view(4, 8))
    k = torch.tensor([3, 0, 2, 3])
    assert torch.equal(compiled(lambda t, k: t[k] + 1, table, k), table[k] + 1)
    want = table.contiguous().index_add(0, k, torch.ones(4, 8, dtype=torch.uint8))
    compiled(lambda t, k: t.index_add_(0, k, torch.ones(4, 8, dtype=torch.uint8)), table, k)
    assert torch.equal(table.contiguous(), want)
