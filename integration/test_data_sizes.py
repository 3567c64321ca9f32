"""Sizes and values that depend on data, end to end: one graph, one version for all data, eager's results and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves, tree_map_only

import intarsia

RAISE = {"on_error": "raise"}


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    intarsia.reset()
    yield
    intarsia.reset()


@dataclass(frozen=True)
class Case:
    """A program, data that it takes one after the other, data that eager refuses, and whether it has gradients."""

    function: Callable[..., Any]
    data: Callable[[], Sequence[tuple[Any, ...]]]
    wrong: Callable[[], Sequence[tuple[Any, ...]]]
    trains: bool


CASES: dict[str, Case] = {}
n_of = torch.tensor
rows = torch.randn


def case(data: Any, wrong: Any = lambda: (), trains: bool = False) -> Any:
    def add(function: Any) -> Any:
        CASES[function.__name__] = Case(function, data, wrong, trains)
        return function

    return add


def counted(*counts: int, n: int = 8, columns: int = 4) -> Any:
    """Data for a program of a tensor and a number."""
    return lambda: [(rows(n, columns), n_of(k)) for k in counts]


def masked(n: int = 6, columns: int = 3, nothing: bool = True) -> Any:
    """Data for a program that picks positive numbers; the last has none."""
    last = [(-torch.ones(n, columns),)] if nothing else []
    return lambda: [(rows(n, columns),), (rows(n, columns),), *last]


def none_positive() -> Any:
    return [(-torch.ones(6, 3),)]


def clone(value: Any, grad: bool = False) -> Any:
    def one(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        return x.requires_grad_() if grad and x.is_floating_point() else x

    return tree_map_only(torch.Tensor, one, value)


def agree(got: Any, want: Any) -> None:
    got, want = tree_leaves(got), tree_leaves(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        if isinstance(w, torch.Tensor):
            torch.testing.assert_close(g, w, equal_nan=True)
            assert g.stride() == w.stride() or not w.numel()
        else:
            assert type(g) is type(w) and g == w


def outcome(function: Callable[..., Any], args: Any) -> str:
    try:
        function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def whole() -> None:
    stats = intarsia.stats()
    assert (stats.frames_compiled, stats.graphs, stats.recompiles, stats.fallbacks) == (1, 1, 0, 0), stats
    assert stats.frames_eager == 0


# ---- programs


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 8, 1, 0)], trains=True)
def slice_item(x, n):
    return x[: n.item()] * 2 + 1


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 8, 1, 0)], trains=True)
def slice_item_from(x, n):
    return (x[n.item() :] * 2).sum(0)


@case(
    lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 7, 2)],
    wrong=lambda: [(rows(8, 4), n_of(9)), (rows(8, 4), n_of(-1))],
    trains=True,
)
def slice_checked(x, n):
    k = n.item()
    torch._check(k >= 0)
    torch._check(k <= x.shape[0])
    return torch.relu(x[:k]) + 1


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 7, 2)])
def check_is_size(x, n):
    k = n.item()
    torch._check_is_size(k)
    return torch.zeros(k, 4) + x[0]


@case(
    lambda: [(rows(8, 4), n_of(k)) for k in (3, 0, 7, -1, -8)],
    wrong=lambda: [(rows(8, 4), n_of(8)), (rows(8, 4), n_of(-9))],
    trains=True,
)
def index_by_tensor(x, n):
    return x[n] * x[n, None, 1:].sum() + x[..., 0][n]


@case(lambda: [(rows(6, 3),) for _ in range(4)] + [(-torch.ones(6, 3),)])
def nonzero(x):
    return torch.nonzero(x > 0) * 2 + 1


@case(lambda: [(rows(6, 3),) for _ in range(4)] + [(-torch.ones(6, 3),)], trains=True)
def mask(x):
    return x[x > 0] * 2 + 1


@case(lambda: [(rows(6, 3),) for _ in range(4)], trains=True)
def mask_sum(x):
    return (x[x > 0].exp() + 1).sum()


@case(lambda: [(rows(6, 3), rows(6) > 0) for _ in range(4)], trains=True)
def mask_rows(x, m):
    return torch.softmax(x[m], -1) * 3


@case(lambda: [(rows(6, 3), rows(6, 3) > 0) for _ in range(4)], trains=True)
def masked_select(x, m):
    return torch.masked_select(x, m).tanh() * 2


@case(lambda: [(rows(6, 3),) for _ in range(4)])
def nonzero_tuple(x):
    i, j = torch.nonzero(x > 0, as_tuple=True)
    return x[i, j] + i * 2 + j


@case(lambda: [(rows(6, 3),) for _ in range(4)])
def where1(x):
    (i,) = torch.where(x[:, 0] > 0)
    return x[i] * 2


@case(lambda: [(rows(6, 3),) for _ in range(4)])
def argwhere(x):
    return torch.argwhere(x > 0).float() + 0.5


@case(lambda: [(torch.randint(0, k, (9,)),) for k in (3, 5, 9)])
def unique(x):
    return torch.unique(x) * 2


@case(lambda: [(torch.randint(0, k, (9,)),) for k in (3, 5, 9)])
def unique_counts(x):
    u, inv, c = torch.unique(x, return_inverse=True, return_counts=True)
    return u * c + 1, inv * 2


@case(lambda: [(torch.randint(0, k, (9,)),) for k in (3, 5, 9)])
def unique_consecutive(x):
    return torch.unique_consecutive(x) + 1


@case(lambda: [(rows(3, 4), n_of(c)) for c in ([1, 2, 3], [0, 4, 1], [2, 2, 2])], trains=True)
def repeat_interleave(x, n):
    return torch.repeat_interleave(x, n, dim=0) * 2 + 1


@case(lambda: [(rows(3, 4), n_of(c)) for c in ([1, 2, 3], [0, 4, 1], [2, 2, 2])], trains=True)
def repeat_interleave_method(x, n):
    return (x.repeat_interleave(n, 0).relu() + 1).sum(0)


@case(lambda: [(n_of(c),) for c in ([1, 2, 3], [0, 4, 1])])
def repeat_interleave_index(n):
    return torch.repeat_interleave(n) * 2


@case(
    lambda: [(rows(6, 4), n_of(c)) for c in ([1, 2, 3], [2, 2, 2], [0, 5, 1])],
    wrong=lambda: [(rows(6, 4), n_of([1, 2, 4]))],
    trains=True,
)
def split_tolist(x, s):
    return [a.sum(0) * 2 for a in torch.split(x, s.tolist())]


@case(lambda: [(rows(6, 4), n_of(c)) for c in ([1, 2, 3], [2, 2, 2], [3, 2, 1])], trains=True)
def split_method(x, s):
    a, b, c = x.split(s.tolist(), dim=0)
    return torch.cat([c * 2, a + 1, b])


@case(lambda: [(rows(6, 4), n_of(c)) for c in ([1, 2, 3], [2, 2, 2], [0, 5, 1])])
def split_checked(x, s):
    sizes = s.tolist()
    for k in sizes:
        torch._check(k >= 0)
    torch._check(sum(sizes) == x.shape[0])
    return [a.exp() for a in x.split(sizes)]


@case(lambda: [(n_of(k),) for k in (3, 5, 1, 0)])
def arange_item(n):
    return torch.arange(n.item()) * 2 + 1


@case(lambda: [(rows(4), n_of(k)) for k in (3, 5, 1, 0)])
def zeros_item(x, n):
    return torch.zeros(n.item(), 4) + x


@case(lambda: [(rows(4), n_of(float(k))) for k in (3, 5, 1, 0)])
def int_item(x, t):
    return torch.ones(int(t.item()), 4) * x


@case(lambda: [(rows(4), n_of(k)) for k in (3, 5, 2)])
def int_of(x, t):
    return torch.ones(int(t), 4) * x


@case(lambda: [(rows(4), n_of(k)) for k in (3, 5, 2)])
def full_item(x, n):
    return torch.full((n.item() + 1, 4), 2.0) * x


@case(lambda: [(torch.randint(0, k, (9,)),) for k in (3, 5, 9)])
def bincount(x):
    return torch.bincount(x) * 2 + 1


@case(lambda: [(torch.randint(0, k, (9,)),) for k in (3, 5, 9)])
def one_hot(x):
    return F.one_hot(x).float() * 2


@case(lambda: [(rows(4), n_of(k)) for k in (3, 5, 2)])
def expand_item(x, n):
    return x.expand(n.item(), 4) + 1


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 2)])
def select_item(x, n):
    return x[n.item()] * 2


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 2)])
def narrow_item(x, n):
    return x.narrow(0, n.item(), 2) * 2


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 2)])
def max_len(x, lengths):
    m = lengths.max().item()
    return x[:m] * (torch.arange(m)[:, None] < lengths).float()


@case(lambda: [(rows(3, 8), n_of(c)) for c in ([3, 2, 4], [1, 8, 3])])
def length_mask(x, lengths):
    m = int(lengths.max())
    mask = torch.arange(m)[None, :] < lengths[:, None]
    return x[:, :m] * mask


@case(lambda: [(rows(6, 3),) for _ in range(3)])
def size_of_mask(x):
    y = x[x > 0]
    return y.sum() / y.shape[0], y.numel()


@case(lambda: [(rows(6, 3),) for _ in range(3)])
def size_returned(x):
    y = torch.nonzero(x)
    return y.shape[0], y.shape


@case(lambda: [(rows(6, 3),) for _ in range(3)])
def branch_size(x):
    y = x[x > 0]
    if y.shape[0] == 0:
        return x.sum()
    return y.mean() * 2


@case(lambda: [(rows(6, 3),) for _ in range(3)])
def branch_item(x):
    if x.sum().item() > 0:
        return x * 2
    return x - 1


@case(lambda: [(rows(6, 3),) for _ in range(3)])
def set_mask(x):
    y = x.clone()
    y[y > 0] = 0.0
    return y * 2


@case(lambda: [(rows(6, 3), rows(18)) for _ in range(3)], trains=True)
def set_mask_values(x, v):
    y = x.clone()
    m = y > 0
    y[m] = y[m] * 2
    return y + 1


@case(lambda: [(rows(8, 4), rows(4, 5), n_of(k)) for k in (3, 5, 2)], trains=True)
def matmul_rows(x, w, n):
    return (x[: n.item()] @ w).relu() + 1


@case(lambda: [(rows(8, 4), rows(4, 5)) for _ in range(3)], trains=True)
def mask_linear(x, w):
    m = x[:, 0] > 0
    return F.layer_norm(x[m] @ w, (5,)).sum(0)


@case(lambda: [(rows(8, 4),) for _ in range(3)], trains=True)
def scatter_back(x):
    i = (x[:, 0] > 0).nonzero().squeeze(1)
    y = x[i] * 2
    return torch.zeros_like(x).index_add(0, i, y) + 1


@case(lambda: [(rows(8, 4), torch.randint(0, 3, (8,))) for _ in range(3)], trains=True)
def moe(x, e):
    out = torch.zeros_like(x)
    for k in range(3):
        (i,) = torch.where(e == k)
        out = out.index_add(0, i, (x[i] * (k + 1)).tanh())
    return out


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 2)])
def view_item(x, n):
    k = n.item()
    return torch.arange(k * 4).view(k, 4) * 2


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 2)])
def range_item(x, n):
    k = n.item()
    y = x[:k]
    return y.reshape(-1) * 2 + torch.ones(k * 4)


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 2)])
def cat_items(x, n):
    k = n.item()
    return torch.cat([x[:k], torch.zeros(8 - k, 4)]) + 1


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 2)])
def pad_item(x, n):
    return F.pad(x, (0, 0, 0, n.item())) * 2


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 2)])
def assign_slice(x, n):
    y = x.clone()
    y[: n.item()] = 0
    return y + 1


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 2)])
def inplace_slice(x, n):
    x[: n.item()].add_(1)
    return x * 2


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 2)])
def sizes_mixed(x, n):
    k = n.item()
    return x[:k] * k, k + 1, float(k)


@case(lambda: [(rows(8, 4), n_of(k)) for k in (3, 5, 8, 1)], trains=True)
def last_rows(x, n):
    return x[-n.item() :] * 2


@case(lambda: [(rows(8, 4), n_of(k)) for k in (1, 2, 3)], trains=True)
def cols(x, n):
    return x[:, : n.item()] * 2


@case(lambda: [(rows(8, 4), n_of(k)) for k in (1, 2, 3)], trains=True)
def without_last(x, n):
    return x[:, : -n.item()].exp()


@case(lambda: [(rows(6, 3),), (rows(6, 3),), (-torch.ones(6, 3),)], trains=True)
def cat_masked(x):
    return torch.cat([x[x > 0], x[x <= 0] * 2]) + 1


@case(lambda: [(rows(6, 3),), (rows(6, 3),), (-torch.ones(6, 3),)])
def pad_masked(x):
    return F.pad(x[x > 0], (1, 2)) * 2


@case(lambda: [(rows(6, 3),), (rows(6, 3),)], wrong=lambda: none_positive())
def max_masked(x):
    return x[x > 0].max() * 2


@case(lambda: [(rows(6, 3),), (rows(6, 3),)], wrong=lambda: none_positive())
def argmax_masked(x):
    return x[x > 0].argmax() + 1


@case(lambda: [(rows(6, 3),), (rows(6, 3),)], wrong=lambda: none_positive())
def amax_masked(x):
    return x[x[:, 0] > 0].amax(0) + 1


@case(lambda: [(rows(6, 3),), (rows(6, 3),)], wrong=lambda: none_positive())
def max_dim_masked(x):
    return x[x[:, 0] > 0].max(0).values + 1


@case(lambda: [(rows(6, 3),), (rows(6, 3),)], wrong=lambda: none_positive())
def first_masked(x):
    return x[x > 0][0] * 2


@case(lambda: [(rows(6, 3),), (rows(6, 3),), (-torch.ones(6, 3),)])
def stats_masked(x):
    y = x[x > 0]
    return y.sum(), y.prod(), y.mean(), (y > 0).all(), (y > 5).any(), y.numel()


@case(lambda: [(rows(6, 3),), (rows(6, 3),), (-torch.ones(6, 3),)], trains=True)
def std_masked(x):
    y = x[x > 0]
    return y.var(unbiased=False) + y.norm()


@case(lambda: [(rows(6, 3), n_of([0, 1])), (rows(6, 3), n_of([0]))], wrong=lambda: [(-torch.ones(6, 3), n_of([0]))])
def gather_masked(x, i):
    return x[x > 0][i] * 2


@case(lambda: [(rows(6, 3),), (rows(6, 3),), (-torch.ones(6, 3),)], trains=True)
def softmax_masked(x):
    return torch.softmax(x[x > 0], 0) * 2


@case(lambda: [(rows(6, 3),), (rows(6, 3),), (-torch.ones(6, 3),)])
def cumsum_masked(x):
    return x[x > 0].cumsum(0) + 1


@case(lambda: [(rows(6, 3),), (rows(6, 3),), (-torch.ones(6, 3),)])
def sort_masked(x):
    return x[x > 0].sort().values * 2


@case(lambda: [(rows(6, 3),), (rows(6, 3),), (-torch.ones(6, 3),)])
def alias_out(x):
    y = x[x[:, 0] > 0] * 2
    return y, y[:, 0], y.t(), y.view(-1)


@case(lambda: [(rows(6, 3), n_of(k)) for k in (2, 4, 6, 0)])
def alias_in(x, n):
    return x[: n.item()], x[n.item() :]


@case(lambda: [(rows(6, 3), n_of(k)) for k in (2, 4, 6, 0)])
def new_zeros(x, n):
    return (
        x.new_zeros(n.item(), 3),
        torch.empty(n.item(), 2).fill_(1.0),
        torch.full((n.item(),), 3),
        torch.eye(n.item()) * 2,
    )


@case(lambda: [(rows(6, 3), n_of(k)) for k in (2, 4, 3)])
def arithmetic(x, n):
    k = n.item()
    return torch.zeros(k * 2 + 1, k - 1) + 1, torch.arange(k, k + 4), torch.arange(0, 2 * k, 2)


@case(lambda: [(rows(6, 3), n_of(k)) for k in (2, 4, 3)])
def item_both(x, n):
    k = n.item()
    return x[:k] * k + k, k


@case(lambda: [(rows(6, 3), n_of(k), n_of(j)) for k, j in ((2, 4), (1, 3), (0, 6))])
def slice_two(x, n, m):
    return x[n.item() : m.item()] * 2


@case(lambda: [(rows(6, 3), n_of(k)) for k in (2, 4, 3)])
def loop_sizes(x, n):
    k = n.item()
    for i in range(3):
        x = x + i
    return x[:k].sum(0)


@case(lambda: [(rows(3, 6, 2), n_of([a, b, c])) for a, b, c in ((2, 3, 6), (1, 4, 2))])
def per_row(x, lengths):
    out = []
    for i in range(3):
        out.append(x[i, : lengths[i].item()].sum(0))
    return torch.stack(out)


@case(lambda: [(rows(3, 6, 2), n_of([a, b, c])) for a, b, c in ((2, 3, 6), (1, 4, 2))])
def per_row_list(x, lengths):
    return [x[i, :n] * 2 for i, n in enumerate(lengths.tolist())]


@case(lambda: [(rows(8, 4), torch.randint(0, 3, (8,))) for _ in range(3)], trains=True)
def assign_rows(x, e):
    out = torch.zeros_like(x)
    for k in range(3):
        m = e == k
        out[m] = x[m] * (k + 1)
    return out


@case(lambda: [(rows(8, 4), torch.randint(0, 3, (8,))) for _ in range(3)], trains=True)
def index_put_rows(x, e):
    i = torch.where(e == 1)[0]
    return torch.zeros_like(x).index_put((i,), x[i].tanh(), accumulate=True)


@case(lambda: [(rows(2, 5, 4), torch.rand(2, 5) > 0.5) for _ in range(3)], trains=True)
def packed(x, m):
    y = F.gelu(x[m] @ torch.ones(4, 4))
    out = torch.zeros_like(x)
    out[m] = y
    return out


@case(lambda: [(rows(5, 4), torch.rand(5) > 0.5, torch.randint(0, 4, (5,))) for _ in range(3)], trains=True)
def masked_loss(x, m, t):
    return F.cross_entropy(torch.cat([x[m], x[:1]]), torch.cat([t[m], t[:1]]))


@case(lambda: [(rows(6, 3),) for _ in range(3)])
def assert_size(x):
    y = x[x > -100]
    assert y.shape[0] > 0, "empty"
    return y * 2


@case(
    lambda: [(rows(6, 3), n_of(2)), (rows(6, 3), n_of(4))],
    wrong=lambda: [(rows(6, 3), n_of(0)), (rows(6, 3), n_of(-3))],
)
def assert_item(x, n):
    k = n.item()
    if k <= 0:
        raise ValueError(f"bad {k}")
    return x[:k] * 2


@case(lambda: [(rows(6, 3),) for _ in range(3)])
def mask_and_rows(x):
    m = x > 0
    return (x[m] * 2).sum() + (x[~m] - 1).sum()


@case(lambda: [(rows(6, 3), rows(6, 3)) for _ in range(3)])
def same_mask(x, y):
    m = x > 0
    return x[m] * y[m] + 1


@case(lambda: [(rows(6, 3),) for _ in range(3)])
def count(x):
    n = (x > 0).sum().item()
    return torch.ones(n) * 2, x / n


@case(lambda: [(rows(6, 3),) for _ in range(3)])
def topk_item(x):
    k = int((x > 0).sum())
    return x.flatten()[:k].sort().values


@case(lambda: [(torch.randint(0, 9, (12,)),) for _ in range(3)])
def flat_bincount(x):
    u, c = x.unique(return_counts=True)
    return u[c > 1] * 2


@case(lambda: [(rows(4, 3), n_of(c)) for c in ([1, 2, 3, 0], [0, 4, 1, 1], [2, 2, 2, 2])])
def ragged(x, n):
    i = torch.repeat_interleave(torch.arange(4), n)
    return x[i] * 2, i.shape[0]


@case(lambda: [(rows(4, 3), n_of(c)) for c in ([1, 2, 3, 0], [0, 4, 1, 1])])
def offsets(x, n):
    o = torch.cumsum(n, 0)
    total = o[-1].item()
    return torch.zeros(total, 3) + x.sum(0)


@case(lambda: [(rows(6, 3),) for _ in range(3)])
def rows_len(x):
    y = x[x[:, 0] > 0]
    return len(y), y.size(0) * 2, y.shape[0] + 1


@case(lambda: [(rows(6, 3),) for _ in range(3)])
def then_break(x):
    y = x[x > 0] * 2
    print("", end="")
    return y + 1


@case(lambda: [(rows(6, 3), n_of(k)) for k in (2, 4, 3)])
def view_as(x, n):
    k = n.item()
    a = x.reshape(-1)[: k * 3].view(k, 3)
    return a @ torch.ones(3, 2)


@case(lambda: [(rows(6, 3), n_of(k)) for k in (2, 4, 3)])
def expand_rows(x, n):
    return x[:1].expand(n.item(), -1) * 2


@case(lambda: [(rows(6, 3), n_of(k)) for k in (2, 4, 3)])
def repeat_rows(x, n):
    return x.repeat(n.item(), 1) + 1


@case(lambda: [(rows(6, 3), n_of(k)) for k in (2, 4, 3)])
def outer(x, n):
    a = torch.arange(n.item())
    return (a[:, None] <= a[None, :]).float() * 2


@case(lambda: [(rows(6, 3), n_of(k)) for k in (2, 4, 3)])
def tril(x, n):
    return torch.tril(torch.ones(n.item(), n.item())) * 2


@case(lambda: [(rows(6, 3), n_of(k)) for k in (2, 4, 3)])
def setitem_item(x, n):
    y = x.clone()
    y[n.item()] = 1.0
    y[n.item(), 0] = 5
    return y * 2


@case(lambda: [(rows(6, 3),) for _ in range(3)])
def nonzero_loop(x):
    i = torch.nonzero(x[:, 0] > 0).flatten()
    return x.index_select(0, i) + 1, torch.zeros(6).scatter_(0, i, 1.0)


@case(lambda: [(rows(1, 1, 6, 6), n_of(k)) for k in (2, 4, 3)])
def crop_conv(x, n):
    k = n.item()
    return F.avg_pool2d(x[..., : k + 2, : k + 2], 2) * 2


@case(lambda: [(rows(2, 4, 8), n_of(k)) for k in (2, 4, 3)], trains=True)
def attention_len(x, n):
    y = x[:, : n.item()]
    return F.scaled_dot_product_attention(y, y, y) * 2


@case(lambda: [(rows(6, 3),), (rows(6, 3),), (-torch.ones(6, 3),)], trains=True)
def first_few(x):
    return x[x > 0][:4] * 2


@case(lambda: [(rows(6, 3),), (rows(6, 3),), (-torch.ones(6, 3),)])
def all_but_first(x):
    return x[x > 0][1:] * 2


# ---- checks

BREAKS = {
    "all_but_first",
    "first_few",
    "alias_in",
    "branch_size",
    "branch_item",
    "then_break",
    "one_hot",
    "gather_masked",
}
WHOLE = sorted(CASES.keys() - BREAKS)


@pytest.mark.parametrize("name", WHOLE)
def test_one_graph_for_all_data(name: str) -> None:
    of = CASES[name]
    fast = intarsia.compile(of.function, fullgraph=True, options=RAISE)
    with torch.no_grad():
        for args in of.data():
            ours, theirs = clone(args), clone(args)
            agree(fast(*ours), of.function(*theirs))
            agree(ours, theirs)
    whole()
    assert intarsia.stats().kernels_generated or name == "size_returned"
    for args in of.wrong():
        want = outcome(of.function, clone(args))
        assert want and outcome(fast, clone(args)) == want


@pytest.mark.parametrize("name", [name for name in WHOLE if CASES[name].trains and name != "std_masked"])
def test_gradients(name: str) -> None:
    of = CASES[name]
    fast = intarsia.compile(of.function, fullgraph=True, options=RAISE)
    for args in of.data():
        ours, theirs = clone(args, True), clone(args, True)
        got, want = fast(*ours), of.function(*theirs)
        agree(got, want)
        for results in (got, want):
            sum(x.square().sum() for x in tree_leaves(results)).backward()
        agree([x.grad for x in ours if x.requires_grad], [x.grad for x in theirs if x.requires_grad])
    whole()


@pytest.mark.parametrize("name", sorted(BREAKS))
def test_what_must_be_known_breaks(name: str) -> None:
    of = CASES[name]
    fast = intarsia.compile(of.function, options=RAISE)
    with torch.no_grad():
        for args in of.data():
            agree(fast(*clone(args)), of.function(*clone(args)))


def test_a_branch_on_a_size_is_named() -> None:
    fast = intarsia.compile(CASES["branch_size"].function, fullgraph=True, options=RAISE)
    with torch.no_grad(), pytest.raises(intarsia.UnsupportedError, match="depends on data") as caught:
        fast(rows(6, 3))
    assert caught.value.code == "tracer.data_dependent"


def test_nothing_is_written_where_a_check_fails() -> None:
    """A slice beyond its tensor is what eager makes of it, and the write to x happens once."""

    def f(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x[: n.item()] * 2

    fast = intarsia.compile(f, options=RAISE)
    with torch.no_grad():
        for n in (3, 2, 99, -1, 4):
            x, y = torch.zeros(5), torch.zeros(5)
            agree(fast(x, n_of(n)), f(y, n_of(n)))
            agree(x, y)


def test_what_cannot_be_compiled_is_captured_up_to_there() -> None:
    """The gradient of a norm asks whether a size is 0: with gradients the mask is a break."""
    f = CASES["std_masked"].function
    fast = intarsia.compile(f, options=RAISE)
    for _ in range(2):
        x = rows(6, 3)
        ours, theirs = clone(x, True), clone(x, True)
        f(theirs).backward()
        fast(ours).backward()
        agree(ours.grad, theirs.grad)
    assert intarsia.stats().fallbacks == 0


def test_a_tensor_of_another_size_is_no_stale_result() -> None:
    fast = intarsia.compile(lambda x, n: x[: n.item()] + 1, options=RAISE)
    with torch.no_grad():
        for size in (5, 9, 3, 7):
            x = rows(size, 2)
            agree(fast(x, n_of(size - 2)), x[: size - 2] + 1)
    assert intarsia.stats().recompiles <= 1


def test_parts_of_a_computed_tensor_by_sizes_from_data():
    def f(x, weights, sizes):
        order = x.sum(1).argsort()
        parts = x[order].split(sizes.tolist())  # a view of what a kernel made, at places that data decides
        return torch.cat([part @ weight for part, weight in zip(parts, weights, strict=True)]).sin()

    compiled = intarsia.compile(f, options=RAISE)
    x, weights = torch.randn(12, 8), torch.randn(4, 8, 8)
    for sizes in ([3, 4, 0, 5], [12, 0, 0, 0], [1, 2, 4, 5]):
        torch.testing.assert_close(compiled(x, weights, torch.tensor(sizes)), f(x, weights, torch.tensor(sizes)))
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_eager, stats.fallbacks) == (1, 0, 0)


def test_a_product_of_sizes_that_data_decides_later():
    def f(x, total, shape):
        flat = torch.zeros(total.item()) + x.sum()
        rows, columns = shape.tolist()
        return flat.view(rows, columns) * 2

    compiled = intarsia.compile(f, options=RAISE)
    x = torch.randn(3)
    for rows, columns in ((2, 3), (4, 1), (0, 5)):
        shape, total = torch.tensor([rows, columns]), torch.tensor(rows * columns)
        torch.testing.assert_close(compiled(x, total, shape), f(x, total, shape))
    stats = intarsia.stats()
    assert (stats.graphs, stats.frames_eager, stats.fallbacks) == (1, 0, 0)


def test_a_mask_without_dimensions():
    def written(x, keep, value):
        y = x.clone()
        y[keep] = value
        y[keep, 0] = 5.0
        return y

    x, value = torch.randn(3, 2, requires_grad=True), torch.ones(2)
    for function, rest in ((lambda x, keep: x[keep] * 2 + x[keep, 0].sum(), ()), (written, (value,))):
        fast = intarsia.compile(function, options=RAISE)
        for keep in (torch.tensor(True), torch.tensor(False)):
            expected, found = function(x, keep, *rest), fast(x, keep, *rest)
            torch.testing.assert_close(found, expected)
            (wanted,), (got,) = (torch.autograd.grad(y.sum(), x) for y in (expected, found))
            torch.testing.assert_close(got, wanted)
        assert intarsia.stats().graphs == intarsia.stats().frames_compiled == 1
        intarsia.reset()


class Place:
    def __init__(self, i):
        self.i = i

    def __index__(self):
        return self.i


def test_an_index_that_says_which_integer_it_is():
    def f(x, i):
        y = x.clone()
        y[i, 0] = 3.0
        return x[i], x[i, i], x[i:], y

    fast, x = intarsia.compile(f, options=RAISE), torch.randn(3, 4)
    for i in (1, 2, -1):
        torch.testing.assert_close(fast(x, Place(i)), f(x, Place(i)))
    assert intarsia.stats().graphs == intarsia.stats().frames_compiled
    assert intarsia.stats().fallbacks == 0


@pytest.mark.parametrize("kind", [torch.nn.GRU, torch.nn.LSTM])
def test_packed_sequences_of_other_lengths(kind):
    net, rnn = kind(3, 4), torch.nn.utils.rnn

    def f(x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        return rnn.pad_packed_sequence(net(packed)[0])[0] + x.sum(-1, keepdim=True)

    fast = intarsia.compile(f, options=RAISE)
    for lengths in ([2, 3], [4, 1, 2], [2, 2]):
        x = torch.randn(max(lengths), len(lengths), 3, requires_grad=True)
        expected, found = f(x, torch.tensor(lengths)), fast(x, torch.tensor(lengths))
        torch.testing.assert_close(found, expected)
        (wanted,), (got,) = (torch.autograd.grad(y.square().sum(), x) for y in (expected, found))
        torch.testing.assert_close(got, wanted)
    assert intarsia.stats().fallbacks == 0
