"""`associative_scan` in a compiled function is one graph; its items are those of a loop."""

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan

import intarsia
from intarsia import UnsupportedError

RAISE = {"on_error": "raise"}


@pytest.fixture(autouse=True)
def _fresh():
    intarsia.reset()
    yield
    intarsia.reset()


def recurrence(left, right):
    return left[0] * right[0], right[0] * left[1] + right[1]


def in_order(combine, xs, dim, reverse=False):
    """Combine one item after another."""
    items = list(zip(*(x.unbind(dim) for x in xs)))
    items = items[::-1] if reverse else items
    found = [items[0]]
    for item in items[1:]:
        found.append(combine(found[-1], item))
    found = found[::-1] if reverse else found
    return tuple(torch.stack(parts, dim) for parts in zip(*found))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_recurrence(n, reverse):
    xs = torch.rand(2, n, 3), torch.randn(2, n, 3)

    def f(a, b):
        return associative_scan(recurrence, (a, b), dim=1, reverse=reverse, combine_mode="generic")

    torch.testing.assert_close(
        intarsia.compile(f, options=RAISE, fullgraph=True)(*xs), in_order(recurrence, xs, 1, reverse)
    )
    stats = intarsia.stats()
    assert (stats.graphs, stats.fallbacks) == (1, 0)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("n", [2, 5])
def test_strides_are_those_of_eager(dim, n):
    x = torch.rand(n, n, n)

    def f(x):
        return associative_scan(torch.add, x, dim=dim, reverse=True, combine_mode="generic")

    compiled, eager = intarsia.compile(f, options=RAISE, fullgraph=True)(x), f(x)
    torch.testing.assert_close(compiled, eager)
    assert compiled.stride() == eager.stride()


def test_one_tensor_with_a_number_from_outside_and_gradients():
    decay, x = torch.tensor(0.5), torch.randn(6, 4, requires_grad=True)

    def f(x):
        return associative_scan(lambda a, b: torch.maximum(a, b) + decay * 0, x, dim=0, combine_mode="generic")

    y = intarsia.compile(f, options=RAISE, fullgraph=True)(x)
    torch.testing.assert_close(y, x.cummax(0).values)
    y.sum().backward()
    expected = torch.autograd.grad(x.cummax(0).values.sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)


@pytest.mark.parametrize(
    "combine",
    [
        lambda a, b: a + b + b.sum(0) * 0,
        lambda a, b: a + b * torch.ones(3),
        lambda a, b: a @ b,
        lambda a, b: a.add_(b),
    ],
)
def test_what_sees_more_than_an_item_is_refused(combine):
    def f(x):
        return associative_scan(combine, x, dim=0, combine_mode="generic")

    with pytest.raises(UnsupportedError, match="associative_scan"):
        intarsia.compile(f, options=RAISE, fullgraph=True)(torch.randn(4, 3, 3))
