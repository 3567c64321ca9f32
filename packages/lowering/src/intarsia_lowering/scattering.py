"""Lowerings of ops that add to elements at places given by data: `index_add`, `scatter_add`, an embedding's gradient.

Each becomes one scatter nest over the points of its source, on top of the operand or of zeros. Indices are checked and
kept inside the result as those of gathers are (see `indexing`). Library calls are left, where this is not a lowering's
business or would not be eager's result:
  half types    eager rounds after each addition, in an order that depends on the device
  a GPU         everything where deterministic algorithms are demanded
  no elements   of a size that is known

On the CPU (2 busy cores, best runs, ATen's time over that of the generated kernel): accumulating `index_put` 3 to
13 times, an embedding's gradient 2.7 to 4.8 times, and 0.9 to 1.05 where filling a large table with zeros is all the
work (32000 x 256 for 16 to 512 words); `index_add` 0.95 to 9 times; `scatter_add` 0.8 to 1.6 times; maxima and minima
1.4 to 2.6 times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from intarsia_loops.index import ONE, ZERO, IndexExpr, lift
from intarsia_loops.layout import elements_overlap
from intarsia_loops.ops import NUMBERS
from intarsia_loops.program import Val, cast, index_value, scatter, val
from intarsia_lowering import _math as m
from intarsia_lowering._builder import Builder
from intarsia_lowering._table import DECLINED, Table
from intarsia_lowering._values import Point, Tensor, constant, read
from intarsia_lowering.indexing import check_range, entry

__all__ = ["TABLE"]

aten: Any = torch.ops.aten
TABLE = Table("scattering")

FOLDS = {"sum": "scatter_sum", "amax": "scatter_max", "amin": "scatter_min"}


def _is_lowered(b: Builder, *tensors: Tensor) -> bool:
    """Whether generated code folds into elements of the result's type where the result is; see the module."""
    spec = b.spec()
    if any(n is ZERO for shape in (spec.shape, *(t.shape for t in tensors)) for n in shape):
        return False
    if not spec.shape or elements_overlap(spec.shape, spec.strides):
        return False
    on_cpu = torch.device(spec.device).type == "cpu"
    return spec.dtype in NUMBERS and (on_cpu or not b.deterministic)


def _along(
    b: Builder, kind: str, self: Tensor, dim: int, index: Tensor, at: Callable[[Point], Point], source: Any
) -> Tensor:
    """Fold `source` into `self` at its own point, but for dimension `dim`, whose place is an element of `index`."""
    size, shape = self.shape[dim], source[0]
    places = b.known(index, at(b.point_of(shape)), size, may_wrap=False)
    if places is None:
        check_range(b, index, size, may_wrap=False)

    def body(p: Point, r: Point) -> Val:
        place = (*r[:dim], entry(b, index, at(r), size, may_wrap=False), *r[dim + 1 :])
        return scatter(self.at(p), source[1](r), place)

    return b.nest(kind, b.spec(), shape, body)


@TABLE.add(aten.index_add.default)
def _index_add(
    b: Builder, self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: bool | int | float = 1
) -> Any:
    if not index.shape or not source.shape or not _is_lowered(b, index, source):
        return DECLINED
    dim, dtype = dim % len(self.shape), self.dtype

    def value(r: Point) -> Val:
        x = cast(source.at(r), dtype)
        return x if alpha == 1 else val("mul", x, constant(alpha, dtype), dtype=dtype)

    return _along(b, "scatter_sum", self, dim, index, lambda r: (r[dim],), (source.shape, value))


@TABLE.add(aten.index_reduce.default)
def _index_reduce(
    b: Builder, self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    kind = FOLDS.get(reduce)
    if kind is None or not include_self or not index.shape or not source.shape:
        return DECLINED
    if not _is_lowered(b, index, source):
        return DECLINED
    dim = dim % len(self.shape)
    given = (source.shape, lambda r: cast(source.at(r), self.dtype))
    return _along(b, kind, self, dim, index, lambda r: (r[dim],), given)


@TABLE.add(aten.scatter_add.default)
def _scatter_add(b: Builder, self: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    return _scatter_reduce(b, self, dim, index, src, "sum")


@TABLE.add(aten.scatter_reduce.two)
def _scatter_reduce(
    b: Builder, self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    kind = FOLDS.get(reduce)
    if kind is None or not include_self or not len(self.shape) == len(index.shape) == len(src.shape):
        return DECLINED
    if not _is_lowered(b, index, src):
        return DECLINED
    # only as much of the source as the index has
    given = (index.shape, lambda r: cast(src.at(r), self.dtype))
    return _along(b, kind, self, dim % len(self.shape), index, lambda r: r, given)


@TABLE.add(aten.index_put.default, aten._unsafe_index_put.default)
def _index_put(
    b: Builder, self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Any:
    """x[i, :, j] += values: the points are those of `x[i, :, j]`, see `indexing`."""
    given = {d: t for d, t in enumerate(indices) if t is not None}
    if not accumulate or not given or any(t.dtype in ("b8", "u8") for t in given.values()):
        return DECLINED  # masks: as many places as data says
    inner = _broadcast([t.shape for t in given.values()])
    if inner is None or not _is_lowered(b, values, *given.values()):
        return DECLINED
    dims = list(given)
    start = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    rest = [n for d, n in enumerate(self.shape) if d not in given]
    shape = (*rest[:start], *inner, *rest[start:])
    if len(values.shape) > len(shape):
        return DECLINED
    for d, index in given.items():
        if b.known(index, b.point_of(shape)[start : start + len(inner)], self.shape[d]) is None:
            check_range(b, index, self.shape[d], may_wrap=True)

    def body(p: Point, r: Point) -> Val:
        others, chosen = iter((*r[:start], *r[start + len(inner) :])), r[start : start + len(inner)]
        place = [
            entry(b, given[d], chosen, n, may_wrap=True) if d in given else next(others)
            for d, n in enumerate(self.shape)
        ]
        return scatter(self.at(p), cast(read(values, r), self.dtype), place)

    return b.nest("scatter_sum", b.spec(), shape, body)


def _broadcast(shapes: Sequence[tuple[IndexExpr, ...]]) -> tuple[IndexExpr, ...] | None:
    """Return the common shape of index tensors; None where sizes are not known to be equal."""
    rank = max(map(len, shapes))
    sizes: list[IndexExpr] = [ONE] * rank
    for shape in shapes:
        for d, n in enumerate(shape, rank - len(shape)):
            if n is ONE or n is sizes[d]:
                continue
            if sizes[d] is not ONE:
                return None
            sizes[d] = n
    return tuple(sizes)


@TABLE.add(aten.embedding_dense_backward.default)
def _embedding_backward(
    b: Builder, grad_output: Tensor, indices: Tensor, num_weights: Any, padding_idx: Any, scale_grad_by_freq: bool
) -> Any:
    """Rows of the gradient, added up by their word. As in eager, words out of range, and the padding, get nothing."""
    if scale_grad_by_freq or not _is_lowered(b, grad_output, indices):
        return DECLINED
    size, dtype = b.spec().shape[0], b.spec().dtype
    padding = index_value(lift(padding_idx))

    def body(p: Point, r: Point) -> Val:
        word, zero = cast(indices.at(r[:-1]), "i64"), constant(0, dtype)
        valid = m.and_(
            val("ne", word, padding, dtype="b8"),
            m.and_(val("le", constant(0, "i64"), word, dtype="b8"), val("lt", word, index_value(size), dtype="b8")),
        )
        place = entry(b, indices, r[:-1], size, may_wrap=False)
        return scatter(zero, m.select(valid, cast(grad_output.at(r), dtype), zero), (place, r[-1]))

    return b.nest("scatter_sum", b.spec(), grad_output.shape, body)
