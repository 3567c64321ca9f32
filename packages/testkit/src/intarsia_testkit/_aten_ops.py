"""The ops that random functional ATen programs are made of: each rule draws operands that fit, and adds one call.

A rule returns whether it added a node; it doesn't when no tensor fits or the result would be too large.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import strategies as st

from intarsia_testkit._builder import Builder, Item

__all__ = ["FAMILIES", "Rule"]

aten = torch.ops.aten
Rule = Callable[[Builder], bool]

_ROUNDING_UNARY = (
    aten.sin,
    aten.cos,
    aten.exp,
    aten.tanh,
    aten.sigmoid,
    aten.erf,
    aten.expm1,
    aten.atan,
    aten.gelu,
    aten.silu,
    aten.reciprocal,
    aten.sqrt,
    aten.rsqrt,
    aten.log1p,
    aten.log,
)
_EXACT_UNARY = (aten.neg, aten.abs, aten.relu, aten.clone, aten.alias)
_JUMPING_UNARY = (aten.floor, aten.ceil, aten.trunc, aten.round, aten.sign)
_COMPARISONS = (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge)


def _is_float(item: Item) -> bool:
    return item.value.is_floating_point()


def _is_number(item: Item) -> bool:
    return item.value.dtype is not torch.bool


def _is_exact(item: Item) -> bool:
    return item.exact and _is_number(item)


def _dim(b: Builder, item: Item) -> int:
    return b.below(item.rank, -item.rank)


# ---- pointwise -------------------------------------------------------------------------------------------------


def _unary(b: Builder) -> bool:
    op = b.choose(_ROUNDING_UNARY)
    x = b.pick(lambda item: _is_float(item) and bool((item.value > 0).all()) if op in _POSITIVE else _is_float(item))
    return x is not None and b.call(op.default, x, exact=False)


_POSITIVE = (aten.sqrt, aten.rsqrt, aten.log1p, aten.log)


def _exact_unary(b: Builder) -> bool:
    x = b.pick(_is_number)
    return x is not None and b.call(b.choose(_EXACT_UNARY).default, x, exact=True)


def _jumping_unary(b: Builder) -> bool:
    x = b.pick(lambda item: item.exact and _is_float(item))
    return x is not None and b.call(b.choose(_JUMPING_UNARY).default, x, exact=True)


def _pair(b: Builder, condition: Callable[[Item], bool]) -> tuple[Item, Item] | None:
    """Draw two tensors whose shapes broadcast."""
    x = b.pick(condition)
    if x is None:
        return None
    y = b.pick(lambda item: condition(item) and _broadcasts(x.value.shape, item.value.shape))
    return None if y is None else (x, y)


def _broadcasts(a: torch.Size, b: torch.Size) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b)))


def _arithmetic(b: Builder) -> bool:
    pair = _pair(b, _is_number)
    op = b.choose((aten.add, aten.sub, aten.mul))
    return pair is not None and b.call(op.Tensor, *pair, exact=False)


def _scaled_add(b: Builder) -> bool:
    pair = _pair(b, _is_float)
    op = b.choose((aten.add, aten.sub))
    return pair is not None and b.call(op.Tensor, *pair, alpha=b.choose((2, -1)), exact=False)


def _with_scalar(b: Builder) -> bool:
    x = b.pick(_is_number)
    op = b.choose((aten.add, aten.sub, aten.mul))
    scalar = b.choose((1, 2, -3, 0, 0.5, -1.25))
    return x is not None and b.call(op.Tensor, x, scalar, exact=False)


def _division(b: Builder) -> bool:
    pair = _pair(b, _is_number)
    if pair is None or bool((pair[1].value == 0).any()):
        return False
    return b.call(aten.div.Tensor, *pair, exact=False)


def _power(b: Builder) -> bool:
    x = b.pick(_is_float)
    return x is not None and b.call(aten.pow.Tensor_Scalar, x, b.choose((2, 3, 2.0)), exact=False)


def _extremum(b: Builder) -> bool:
    pair = _pair(b, _is_number)
    op = b.choose((aten.maximum, aten.minimum))
    return pair is not None and b.call(op.default, *pair, exact=True)


def _comparison(b: Builder) -> bool:
    pair = _pair(b, _is_exact)
    op = b.choose(_COMPARISONS)
    return pair is not None and b.call(op.Tensor, *pair, exact=True)


def _comparison_with_scalar(b: Builder) -> bool:
    x = b.pick(_is_exact)
    op = b.choose(_COMPARISONS)
    return x is not None and b.call(op.Scalar, x, b.choose((0, 1, 0.5)), exact=True)


def _logical(b: Builder) -> bool:
    pair = _pair(b, lambda item: item.exact)
    op = b.choose((aten.logical_and, aten.logical_or, aten.logical_xor))
    return pair is not None and b.call(op.default, *pair, exact=True)


def _logical_not(b: Builder) -> bool:
    x = b.pick(lambda item: item.exact)
    return x is not None and b.call(aten.logical_not.default, x, exact=True)


def _bitwise(b: Builder) -> bool:
    pair = _pair(b, lambda item: not _is_float(item))
    op = b.choose((aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor))
    return pair is not None and b.call(op.Tensor, *pair, exact=True)


def _where(b: Builder) -> bool:
    condition = b.pick(lambda item: item.value.dtype is torch.bool)
    pair = _pair(b, _is_number)
    if condition is None or pair is None:
        return False
    shapes = [condition.value.shape, pair[0].value.shape, pair[1].value.shape]
    if not all(_broadcasts(a, c) for a in shapes for c in shapes):
        return False
    return b.call(aten.where.self, condition, *pair, exact=True)


def _clamp(b: Builder) -> bool:
    x = b.pick(_is_float)
    return x is not None and b.call(aten.clamp.default, x, -0.5, b.choose((None, 1.0)), exact=True)


def _cast(b: Builder) -> bool:
    dtypes = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)
    dtype = b.choose(dtypes)
    x = b.pick(lambda item: item.exact or (dtype.is_floating_point and _is_float(item)))
    return x is not None and b.call(aten._to_copy.default, x, dtype=dtype, exact=dtype is not torch.float32)


# ---- reductions and scans --------------------------------------------------------------------------------------


def _dims(b: Builder, item: Item) -> list[int]:
    return b.draw(st.lists(st.integers(0, item.rank - 1), min_size=1, max_size=item.rank, unique=True))


def _reduction(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and _is_float(item))
    op = b.choose((aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.amin.default))
    if x is None:
        return False
    return b.call(op, x, _dims(b, x), b.flag(), exact=op in (aten.amax.default, aten.amin.default))


def _integer_sum(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and not _is_float(item))
    return x is not None and b.call(aten.sum.dim_IntList, x, _dims(b, x), b.flag(), exact=True)


def _full_reduction(b: Builder) -> bool:
    x = b.pick(_is_float)
    return x is not None and b.call(b.choose((aten.sum.default, aten.mean.default)), x, exact=False)


def _product(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and _is_number(item))
    return x is not None and b.call(aten.prod.dim_int, x, _dim(b, x), b.flag(), exact=False)


def _truth(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and item.exact)
    op = b.choose((aten.any.dim, aten.all.dim))
    return x is not None and b.call(op, x, _dim(b, x), b.flag(), exact=True)


def _extremum_with_index(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and _is_exact(item) and item.value.numel() > 0)
    op = b.choose((aten.max.dim, aten.min.dim))
    return x is not None and b.call(op, x, _dim(b, x), b.flag(), exact=True)


def _arg_extremum(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and _is_exact(item) and item.value.numel() > 0)
    op = b.choose((aten.argmax.default, aten.argmin.default))
    return x is not None and b.call(op, x, _dim(b, x), b.flag(), exact=True)


def _variance(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and _is_float(item) and item.value.shape[0] > 1)
    return x is not None and b.call(aten.var.correction, x, [0], correction=1, keepdim=b.flag(), exact=False)


def _softmax(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and _is_float(item))
    op = b.choose((aten._softmax.default, aten._log_softmax.default))
    return x is not None and b.call(op, x, _dim(b, x), False, exact=False)


def _scan(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and _is_number(item))
    return x is not None and b.call(aten.cumsum.default, x, _dim(b, x), exact=not _is_float(x))


def _layer_norm(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and _is_float(item) and item.value.shape[-1] > 1)
    return x is not None and b.call(
        aten.native_layer_norm.default, x, [x.value.shape[-1]], None, None, 1e-5, exact=False
    )


# ---- views and data movement -----------------------------------------------------------------------------------


def _with_rank(b: Builder, rank: int) -> Item | None:
    return b.pick(lambda item: item.rank >= rank)


def _permute(b: Builder) -> bool:
    x = _with_rank(b, 2)
    return x is not None and b.call(aten.permute.default, x, b.draw(st.permutations(range(x.rank))), exact=True)


def _transpose(b: Builder) -> bool:
    x = _with_rank(b, 2)
    return x is not None and b.call(aten.transpose.int, x, 0, -1, exact=True)


def _unsqueeze(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank < 4)
    return x is not None and b.call(aten.unsqueeze.default, x, b.below(x.rank + 1, -x.rank - 1), exact=True)


def _squeeze(b: Builder) -> bool:
    x = _with_rank(b, 1)
    return x is not None and b.call(aten.squeeze.dim, x, _dim(b, x), exact=True)


def _flat_view(b: Builder) -> bool:
    x = b.pick(lambda item: item.value.is_contiguous())
    return x is not None and b.call(aten.view.default, x, [-1], exact=True)


def _split_view(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and item.value.is_contiguous() and item.value.shape[-1] % 2 == 0)
    if x is None:
        return False
    return b.call(aten.view.default, x, [*x.value.shape[:-1], 2, x.value.shape[-1] // 2], exact=True)


def _expand(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank < 4)
    return x is not None and b.call(aten.expand.default, x, [b.below(4, 1), *x.value.shape], exact=True)


def _slice(b: Builder) -> bool:
    x = _with_rank(b, 1)
    if x is None:
        return False
    dim, n = (d := _dim(b, x)), x.value.shape[d]
    start = b.below(max(n, 1))
    return b.call(aten.slice.Tensor, x, dim, start, b.choose((2**63 - 1, n)), *_step(b), exact=True)


def _step(b: Builder) -> tuple[int, ...]:
    return b.choose(((), (2,), (1,)))


def _select(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and item.value.numel() > 0)
    if x is None:
        return False
    dim = _dim(b, x)
    n = x.value.shape[dim]
    return b.call(aten.select.int, x, dim, b.below(n, -n), exact=True)


def _diagonal(b: Builder) -> bool:
    x = _with_rank(b, 2)
    return x is not None and b.call(aten.diagonal.default, x, b.choose((0, 1, -1)), exact=True)


def _split(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and item.value.shape[0] > 1)
    return x is not None and b.call(aten.split.Tensor, x, 1, exact=x.exact)


def _flip(b: Builder) -> bool:
    x = _with_rank(b, 1)
    return x is not None and b.call(aten.flip.default, x, [_dim(b, x)], exact=True)


def _repeat(b: Builder) -> bool:
    x = _with_rank(b, 1)
    return x is not None and b.call(aten.repeat.default, x, [2] + [1] * (x.rank - 1), exact=True)


def _pad(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank > 0 and _is_number(item))
    return x is not None and b.call(aten.constant_pad_nd.default, x, [1, b.below(3, -1)], 3, exact=True)


def _concatenate(b: Builder) -> bool:
    x = _with_rank(b, 1)
    if x is None:
        return False
    y = b.pick(lambda item: item.value.shape[1:] == x.value.shape[1:] and item.rank == x.rank)
    return y is not None and b.call(aten.cat.default, [x, y, x][: b.below(4, 2)], 0, exact=True)


def _stack(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank < 4)
    if x is None:
        return False
    y = b.pick(lambda item: item.value.shape == x.value.shape)
    return y is not None and b.call(aten.stack.default, [x, y], b.below(x.rank + 1), exact=True)


def _contiguous(b: Builder) -> bool:
    x = b.pick(lambda item: not item.value.is_contiguous())
    return x is not None and b.call(aten.clone.default, x, memory_format=torch.contiguous_format, exact=True)


def _index_select(b: Builder) -> bool:
    index = b.pick(lambda item: item.index and item.rank == 1)
    x = b.pick(lambda item: item.rank > 0 and item.value.shape[0] > 1)
    return index is not None and x is not None and b.call(aten.index_select.default, x, 0, index, exact=True)


def _embedding(b: Builder) -> bool:
    index = b.pick(lambda item: item.index)
    x = b.pick(lambda item: item.rank == 2 and _is_float(item) and item.value.shape[0] > 1)
    return index is not None and x is not None and b.call(aten.embedding.default, x, index, exact=True)


def _advanced_index(b: Builder) -> bool:
    index = b.pick(lambda item: item.index)
    x = b.pick(lambda item: item.rank > 0 and item.value.shape[0] > 1)
    return index is not None and x is not None and b.call(aten.index.Tensor, x, [index], exact=True)


# ---- products and creation -------------------------------------------------------------------------------------


def _matrix_product(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank == 2 and _is_float(item))
    if x is None:
        return False
    y = b.pick(lambda item: item.rank == 2 and item.value.dtype == x.value.dtype and _fits(x, item))
    return y is not None and b.call(aten.mm.default, x, y, exact=False)


def _batched_product(b: Builder) -> bool:
    x = b.pick(lambda item: item.rank == 3 and _is_float(item))
    if x is None:
        return False
    y = b.pick(
        lambda item: (
            item.rank == 3
            and item.value.dtype == x.value.dtype
            and item.value.shape[0] == x.value.shape[0]
            and _fits(x, item)
        )
    )
    return y is not None and b.call(aten.bmm.default, x, y, exact=False)


def _fits(x: Item, y: Item) -> bool:
    return x.value.shape[-1] == y.value.shape[-2]


def _full(b: Builder) -> bool:
    dtype = b.choose((torch.float32, torch.int64, torch.bool))
    size = b.draw(st.lists(st.integers(1, 3), max_size=2))
    fill = b.choose((0, 1, True)) if dtype is not torch.float32 else 0.75
    return b.call(aten.full.default, size, fill, dtype=dtype, device=torch.device("cpu"), pin_memory=False, exact=True)


def _arange(b: Builder) -> bool:
    n = b.below(5, 1)
    return b.call(aten.arange.start_step, 0, n, 1, device=torch.device("cpu"), pin_memory=False, exact=True)


def _like(b: Builder) -> bool:
    x = b.pick(_is_number)
    op = b.choose((aten.zeros_like, aten.ones_like))
    return x is not None and b.call(op.default, x, pin_memory=False, exact=True)


FAMILIES: dict[str, dict[str, Rule]] = {
    "pointwise": {
        "unary": _unary,
        "exact unary": _exact_unary,
        "jumping unary": _jumping_unary,
        "arithmetic": _arithmetic,
        "scaled add": _scaled_add,
        "with scalar": _with_scalar,
        "division": _division,
        "power": _power,
        "extremum": _extremum,
        "comparison": _comparison,
        "comparison with scalar": _comparison_with_scalar,
        "logical": _logical,
        "logical not": _logical_not,
        "bitwise": _bitwise,
        "where": _where,
        "clamp": _clamp,
        "cast": _cast,
    },
    "reduction": {
        "reduction": _reduction,
        "integer sum": _integer_sum,
        "full reduction": _full_reduction,
        "product": _product,
        "truth": _truth,
        "extremum with index": _extremum_with_index,
        "arg extremum": _arg_extremum,
        "variance": _variance,
        "softmax": _softmax,
        "scan": _scan,
        "layer norm": _layer_norm,
    },
    "view": {
        "permute": _permute,
        "transpose": _transpose,
        "unsqueeze": _unsqueeze,
        "squeeze": _squeeze,
        "flat view": _flat_view,
        "split view": _split_view,
        "expand": _expand,
        "slice": _slice,
        "select": _select,
        "diagonal": _diagonal,
        "split": _split,
    },
    "movement": {
        "flip": _flip,
        "repeat": _repeat,
        "pad": _pad,
        "concatenate": _concatenate,
        "stack": _stack,
        "contiguous": _contiguous,
        "index select": _index_select,
        "embedding": _embedding,
        "advanced index": _advanced_index,
    },
    "product": {"matrix product": _matrix_product, "batched product": _batched_product},
    "creation": {"full": _full, "arange": _arange, "like": _like},
}
