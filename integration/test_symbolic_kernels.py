"""One compiled function with symbolic sizes, at many sizes, against eager and against functions for each size."""

import pytest
import torch

import intarsia

RAISE = {"on_error": "raise"}


def heads(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1) * 2


def padded(x):
    return torch.cat([torch.nn.functional.pad(x, (1, 2)), x.flip(-1)], -1).roll(1, -1)


def normed(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:]) * x.shape[1] + x.mean((0, 1)) / x.shape[0]


def chunked(x):
    return torch._chunk_cat([x, x * 2], 0, 2)


def rotated(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1) * 2 + x.roll(3, -1)


def pooled(x):
    return torch.nn.functional.max_pool2d(x, 3, 2, 1, return_indices=True)


def compared(x):
    at = torch.arange(x.shape[-1])
    rows = torch.arange(x.shape[1])[:, None]
    last = at == x.shape[-1] - 1
    return torch.where((at * 3 - 2 < x.shape[1]) | last, x, -x), (rows >= at).sum(0), at.flip(0) > x.shape[0]


@pytest.mark.parametrize(
    ("function", "most"), [(compared, 2), (heads, 2), (padded, 2), (normed, 2), (chunked, 4), (pooled, 2), (rotated, 2)]
)
def test_one_function_for_many_sizes(function, most):
    intarsia.reset()
    symbolic = intarsia.compile(function, dynamic=True, fullgraph=True, options=RAISE)
    for shape in [(2, 3, 5, 7), (3, 5, 4, 17), (6, 2, 9, 33), (5, 4, 8, 16), (2, 7, 3, 70), (2, 2, 2, 131)]:
        x = torch.randn(shape)
        expected, made = function(x), symbolic(x)
        torch.testing.assert_close(made, expected)
        pairs = zip(made, expected) if isinstance(made, tuple) else [(made, expected)]
        assert all(m.stride() == e.stride() for m, e in pairs)
    stats = intarsia.stats()
    assert stats.frames_eager == stats.fallbacks == 0 and stats.kernels_generated
    assert stats.graphs <= most  # chunks ask whether sizes are even
    static = intarsia.compile(function, dynamic=False, fullgraph=True, options=RAISE)
    torch.testing.assert_close(static(x), symbolic(x))
