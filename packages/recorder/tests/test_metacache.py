"""The cache answers what the op would have answered, and knows what it must not answer."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_recorder import MetaCache, snapshot
from intarsia_shapes import ShapeEnv, fake_mode, fakeify

aten = torch.ops.aten


@pytest.fixture
def cache():
    return MetaCache(FakeTensorMode(static_shapes=True))


def fake(cache, *shape, **options):
    return cache.mode.from_tensor(torch.empty(*shape, **options), static_shapes=True)


def call(cache, op, *args, **kwargs):
    with cache.mode:
        return cache.call(op, args, kwargs)


def layout(tensor):
    return tensor.dtype, tensor.device, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        (aten.add.Tensor, lambda c: (fake(c, 3, 4), fake(c, 4))),
        (aten.sum.dim_IntList, lambda c: (fake(c, 3, 4), [1], True)),
        (aten.select.int, lambda c: (fake(c, 3, 4), 0, 1)),
        (aten.unbind.int, lambda c: (fake(c, 3, 4), 1)),
        (aten.native_layer_norm.default, lambda c: (fake(c, 3, 4), [4], None, None, 1e-5)),
        (aten.add_.Tensor, lambda c: (fake(c, 3), 1)),
        (aten.mul.Tensor, lambda c: (fake(c, 4, 3).t(), fake(c, 3, 4))),
    ],
    ids=lambda value: str(value) if hasattr(value, "_schema") else "",
)
def test_a_hit_equals_a_run(cache, op, arguments):
    flatten = torch.utils._pytree.tree_leaves
    first = flatten(call(cache, op, *arguments(cache)))
    args = arguments(cache)
    second = flatten(call(cache, op, *args))
    assert (cache.misses, cache.hits) == (1, 1)
    assert [layout(t) for t in first] == [layout(t) for t in second]
    shared = [t.untyped_storage()._cdata == args[0].untyped_storage()._cdata for t in second]
    with cache.mode:
        assert shared == [t.untyped_storage()._cdata == args[0].untyped_storage()._cdata for t in flatten(op(*args))]


def test_an_in_place_op_returns_its_argument_on_a_hit(cache):
    for _ in range(2):
        x = fake(cache, 3)
        assert call(cache, aten.relu_.default, x) is x


def test_arguments_that_differ_in_type_or_sign_have_different_keys(cache):
    x = fake(cache, 3, dtype=torch.int64)
    assert call(cache, aten.mul.Tensor, x, 1).dtype is torch.int64
    assert call(cache, aten.mul.Tensor, x, 1.0).dtype is torch.float32
    assert call(cache, aten.mul.Tensor, x, True).dtype is torch.int64
    assert cache.misses == 3


def test_the_same_tensor_twice_is_not_two_tensors(cache):
    x, y = fake(cache, 3), fake(cache, 3)
    call(cache, aten.add.Tensor, x, y)
    call(cache, aten.add.Tensor, x, x)
    assert cache.misses == 2


def test_metadata_changed_in_place_changes_the_key(cache):
    x = fake(cache, 3, 4)
    assert call(cache, aten.sum.dim_IntList, x, [0]).shape == (4,)
    call(cache, aten.t_.default, x)
    assert call(cache, aten.sum.dim_IntList, x, [0]).shape == (3,)


def test_values_are_never_cached(cache):
    with pytest.raises(Exception, match="_local_scalar_dense"):
        call(cache, aten._local_scalar_dense.default, fake(cache, 1))
    with cache.mode:
        known = torch.tensor(2.0)
    call(cache, aten.mul.Tensor, known, 2)
    assert (cache.misses, cache.hits, cache.skipped) == (0, 0, 2)


def test_the_default_type_is_part_of_the_key(cache):
    x = fake(cache, 3, dtype=torch.int64)
    assert call(cache, aten.div.Tensor, x, 2).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert call(cache, aten.div.Tensor, x, 2).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_snapshot_keeps_the_metadata_and_forgets_autograd(cache):
    with cache.mode:
        x = torch.empty(3, 4).requires_grad_()
        y = (x * 2).t()
        frozen = snapshot(cache.mode, y)
    assert layout(frozen) == layout(y)
    assert frozen.grad_fn is None and not frozen.requires_grad


@pytest.mark.parametrize(
    "view", [(aten.slice.Tensor, 0, 1, 2**63 - 1), (aten.slice.Tensor, 1, 0, 1), (aten.t.default,)]
)
def test_a_view_made_again_asks_nothing_of_its_sizes(view, monkeypatch):
    env = ShapeEnv()
    cache = MetaCache(fake_mode(env))
    x = fakeify(cache.mode, torch.empty(4, 5), "x", dynamic=(0, 1))
    op, *arguments = view
    first = call(cache, op, x, *arguments)
    asked = []
    evaluate = ShapeEnv.evaluate

    def noted(self, expr, *args, **more):
        asked.append(expr)
        return evaluate(self, expr, *args, **more)

    monkeypatch.setattr(ShapeEnv, "evaluate", noted)
    second = call(cache, op, x, *arguments)
    assert cache.hits == 1 and asked == []
    assert layout(first) == layout(second)
    assert second.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert second._base is None
