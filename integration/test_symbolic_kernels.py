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


LAST = torch.channels_last
RESAMPLED = {
    "nearest": lambda x: torch.nn.functional.interpolate(x, scale_factor=1.3),
    "nearest exact": lambda x: torch.nn.functional.interpolate(x, scale_factor=1.3, mode="nearest-exact"),
    "bilinear": lambda x: torch.nn.functional.interpolate(x, scale_factor=1.3, mode="bilinear"),
    "bicubic": lambda x: torch.nn.functional.interpolate(x, scale_factor=(1.3, 2), mode="bicubic"),
    "to a size": lambda x: torch.nn.functional.interpolate(x, size=(x.shape[2], 7), mode="bilinear"),
    "sizes computed": lambda x: torch.nn.functional.interpolate(x, scale_factor=1.3, recompute_scale_factor=True),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", RESAMPLED)
def test_resampling_after_another_layout_and_size(name, dynamic):
    function = RESAMPLED[name]
    compiled = intarsia.compile(function, dynamic=dynamic, options=RAISE)
    for shape, layout in (((1, 2, 3, 5), None), ((1, 2, 3, 5), LAST), ((1, 2, 3, 6), LAST), ((2, 2, 4, 3), None)):
        x = torch.randn(shape)
        x = (x if layout is None else x.to(memory_format=layout)).requires_grad_()
        y = x.detach().clone().requires_grad_()
        ours, eager = compiled(x), function(y)
        assert ours.stride() == eager.stride()
        torch.testing.assert_close(ours, eager)
        weights = torch.randn_like(eager)
        (ours * weights).sum().backward()
        (eager * weights).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize(("mode", "sides"), [("linear", (3,)), ("bilinear", (3, 5)), ("trilinear", (3, 5, 4))])
def test_a_kept_side_ignores_its_scale_whatever_else_is_symbolic(mode, sides, dim):
    def function(x):
        return torch.nn.functional.interpolate(x, scale_factor=1.3, mode=mode)

    x = torch.randn(2, 2, *sides)
    marked = x.clone()
    intarsia.mark_dynamic(marked, dim)
    torch.testing.assert_close(intarsia.compile(function, options=RAISE)(marked), function(x))


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"fullgraph": True}, {"fullgraph": True, "dynamic": True}])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear"])
def test_resampling_to_nothing_raises_as_in_eager(mode, options):
    def function(x):
        return torch.nn.functional.interpolate(x, scale_factor=0.1, mode=mode)

    for x in (torch.randn(1, 1, 3), torch.randn(1, 1, 3, requires_grad=True)):
        with pytest.raises(RuntimeError, match="should be greater than 0") as eager:
            function(x)
        with pytest.raises(RuntimeError) as ours:
            intarsia.compile(function, **options)(x)
        assert (type(ours.value), str(ours.value)) == (type(eager.value), str(eager.value))


def test_a_scale_that_changes_may_come_to_nothing():
    def function(x, scale):
        return torch.nn.functional.interpolate(x, scale_factor=scale)

    compiled, x = intarsia.compile(function), torch.randn(1, 1, 3)
    for scale in (2.0, 1.4, 0.7):
        torch.testing.assert_close(compiled(x, scale), function(x, scale))
    with pytest.raises(RuntimeError, match="should be greater than 0"):
        compiled(x, 0.1)


def test_margin_losses_and_shrinking_of_every_size():
    def function(x, classes):
        return torch.nn.functional.multilabel_margin_loss(x, classes)

    compiled = intarsia.compile(function, dynamic=True, options=RAISE)
    for classes in ([[1, 2, -1, 0], [3, -1, 0, 1]], [[2, -1, 0], [1, 0, -1], [-1, 0, 1]]):
        x, y = torch.randn(len(classes), len(classes[0])), torch.tensor(classes)
        torch.testing.assert_close(compiled(x, y), function(x, y))
    special = torch.tensor([[0.3, -0.3, 2.0, torch.inf, -torch.inf, torch.nan]])
    for shrink in (torch.nn.functional.softshrink, torch.nn.functional.hardshrink):
        compiled = intarsia.compile(shrink, dynamic=True, options=RAISE)
        for rows in (2, 3):
            x, y = special.repeat(rows, 1).requires_grad_(), special.repeat(rows, 1).requires_grad_()
            compiled(x).sum().backward()
            shrink(y).sum().backward()
            torch.testing.assert_close(x.grad, y.grad, equal_nan=True)
