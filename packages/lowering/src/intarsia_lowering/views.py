"""Lowerings of views: each is an index map over the same buffer, and adds nothing to the program.

Views work for every element type. The map takes a point of the view to the point of the viewed tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from intarsia_loops.index import ONE, ZERO, IndexExpr, flat, lift, unflat
from intarsia_lowering._builder import Builder
from intarsia_lowering._table import DECLINED, Table
from intarsia_lowering._values import Point, Tensor

__all__ = ["TABLE", "first_of_slice", "from_front", "reshaped"]

aten: Any = torch.ops.aten
TABLE = Table("views")


# ---- helpers ------------------------------------------------------------------------------------------------


def _view(b: Builder, x: Tensor, step: Callable[[Point], Point], position: int | None = None) -> Tensor:
    """`x` seen through one more index map, with the sizes and strides that the node's result has."""
    spec = b.spec(position)
    return Tensor(x.buffer, spec.shape, x.dtype, step if x.direct else lambda p: x.index(step(p)), spec.strides)


def reshaped(old: Sequence[IndexExpr], new: Sequence[IndexExpr]) -> Callable[[Point], Point]:
    """Return the map from a point of shape `new` to the point of shape `old` with the same row-major number.

    Dimensions are matched in groups of equal products, so that unrelated ones never meet in one expression.
    """
    if any(n is ZERO for n in old):
        return lambda _: tuple([ZERO] * len(old))
    groups = _groups(tuple(old), tuple(new))

    def step(point: Point) -> Point:
        out: list[IndexExpr] = []
        for (o0, o1), (n0, n1) in groups:
            if o1 - o0 == n1 - n0 == 1:
                out.append(point[n0])
            else:
                out.extend(unflat(flat(point[n0:n1], new[n0:n1]), old[o0:o1]))
        return tuple(out)

    return step


@functools.lru_cache(maxsize=1024)
def _groups(
    old: tuple[IndexExpr, ...], new: tuple[IndexExpr, ...]
) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """Ranges of dimensions of both shapes with equal products, as fine as known sizes allow."""
    groups = []
    i = j = 0
    while i < len(old) or j < len(new):
        o0, n0 = i, j
        left = right = ONE
        while True:
            if left is right and (i > o0 or j > n0):
                break
            if j < len(new) and (i >= len(old) or _smaller(right, left) or i > o0):
                right = right * new[j]
                j += 1
            elif i < len(old):
                left = left * old[i]
                i += 1
            else:
                break
        groups.append(((o0, i), (n0, j)))
    return tuple(groups)


def _smaller(a: IndexExpr, b: IndexExpr) -> bool:
    x, y = a.const(), b.const()
    return x is not None and y is not None and x < y


# ---- the same tensor ----------------------------------------------------------------------------------------


@TABLE.add(aten.alias.default, aten.detach.default, aten.lift_fresh.default, any_dtype=True)
def _alias(b: Builder, self: Tensor) -> Tensor:
    return self


# ---- reshaping ----------------------------------------------------------------------------------------------


@TABLE.add(
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten._reshape_alias.default, any_dtype=True
)
def _reshape(b: Builder, self: Tensor, size: Any, stride: Any = None) -> Tensor:
    return _view(b, self, reshaped(self.shape, b.spec().shape))


@TABLE.add(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default, any_dtype=True)
def _squeeze(b: Builder, self: Tensor, dim: Any = None) -> Tensor:
    return _view(b, self, reshaped(self.shape, b.spec().shape))


# ---- permuting ----------------------------------------------------------------------------------------------


def _permutation(order: Sequence[int]) -> Callable[[Point], Point]:
    """Dimension k of the view is dimension order[k] of the tensor."""
    place = [order.index(d) for d in range(len(order))]
    return lambda p: tuple([p[k] for k in place])


@TABLE.add(aten.permute.default, any_dtype=True)
def _permute(b: Builder, self: Tensor, dims: Sequence[int]) -> Tensor:
    return _view(b, self, _permutation([d % len(dims) for d in dims]))


@TABLE.add(aten.transpose.int, any_dtype=True)
def _transpose(b: Builder, self: Tensor, dim0: int, dim1: int) -> Tensor:
    if not self.shape:
        return _view(b, self, lambda p: p)
    order = list(range(len(self.shape)))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return _view(b, self, _permutation(order))


@TABLE.add(aten.t.default, any_dtype=True)
def _t(b: Builder, self: Tensor) -> Tensor:
    return _view(b, self, _permutation(list(range(len(self.shape)))[::-1]))


# ---- repeating and picking ----------------------------------------------------------------------------------


@TABLE.add(aten.expand.default, any_dtype=True)
def _expand(b: Builder, self: Tensor, size: Any, *, implicit: bool = False) -> Tensor:
    shape = self.shape

    def step(p: Point) -> Point:
        last = p[len(p) - len(shape) :]
        return tuple([ZERO if n is ONE else i for i, n in zip(last, shape, strict=True)])

    return _view(b, self, step)


def _along(dim: int, change: Callable[[IndexExpr], IndexExpr]) -> Callable[[Point], Point]:
    return lambda p: (*p[:dim], change(p[dim]), *p[dim + 1 :])


def from_front(position: Any, size: IndexExpr) -> IndexExpr | None:
    """Return a position, which may be counted from the end, as one from the front; None where its sign is open."""
    index = lift(position)
    if index.lo >= 0:
        return index
    return size + index if index.hi < 0 else None


def first_of_slice(start: Any, end: Any, step: Any, size: IndexExpr, length: IndexExpr) -> IndexExpr | None:
    """Return where a slice of `length` elements begins, inside [0, size]; None where that isn't known.

    A start before the front is 0, and whether one that is counted from the end is there depends on the sizes. What is
    known is the length, so a slice that goes on by ones to an end that is known begins that much before it.
    """
    begin = ZERO if start is None else from_front(start, size)
    if begin is not None and begin.const() is not None and size.const() is not None:
        return lift(min(max(begin.const() or 0, 0), size.const() or 0))
    if begin is not None and begin.lo >= 0:
        return begin
    stop = lift(_TO_THE_END if end is None else end)
    if step == 1 and (stop.hi < 0 or (stop.const() or 0) >= _TO_THE_END):
        return (size + stop if stop.hi < 0 else size) - length
    return None


_TO_THE_END = 2**63 - 1


@TABLE.add(aten.slice.Tensor, any_dtype=True)
def _slice(b: Builder, self: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    dim = dim % len(self.shape)
    first = first_of_slice(start, end, step, self.shape[dim], b.spec().shape[dim])
    return DECLINED if first is None else _view(b, self, _along(dim, lambda i: i * step + first))


@TABLE.add(aten.narrow.default, any_dtype=True)
def _narrow(b: Builder, self: Tensor, dim: int, start: Any, length: Any) -> Any:
    dim = dim % len(self.shape)
    first = from_front(start, self.shape[dim])
    return DECLINED if first is None else _view(b, self, _along(dim, lambda i: i + first))


@TABLE.add(aten.select.int, any_dtype=True)
def _select(b: Builder, self: Tensor, dim: int, index: Any) -> Any:
    dim = dim % len(self.shape)
    position = from_front(index, self.shape[dim])
    return DECLINED if position is None else _view(b, self, lambda p: (*p[:dim], position, *p[dim:]))


@TABLE.add(aten.diagonal.default, any_dtype=True)
def _diagonal(b: Builder, self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    rank = len(self.shape)
    dim1, dim2 = dim1 % rank, dim2 % rank

    def step(p: Point) -> Point:
        rest = iter(p[:-1])
        at = {dim1: p[-1] + max(-offset, 0), dim2: p[-1] + max(offset, 0)}
        return tuple([at[d] if d in at else next(rest) for d in range(rank)])

    return _view(b, self, step)


@TABLE.add(aten.unfold.default, any_dtype=True)
def _unfold(b: Builder, self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    if not self.shape:
        return _view(b, self, lambda p: ())
    dim = dimension % len(self.shape)
    return _view(b, self, lambda p: (*p[:dim], p[dim] * step + p[-1], *p[dim + 1 : -1]))


# ---- views with several results -----------------------------------------------------------------------------


def _pieces(b: Builder, x: Tensor, dim: int, starts: Sequence[IndexExpr]) -> tuple[Tensor, ...]:
    def piece(k: int) -> Tensor:
        return _view(b, x, _along(dim, lambda i: i + starts[k]), k)

    return tuple([piece(k) for k in range(len(starts))])


@TABLE.add(aten.split.Tensor, any_dtype=True)
def _split(b: Builder, self: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    dim = dim % len(self.shape)
    return _pieces(b, self, dim, _starts(b, dim))


@TABLE.add(aten.split_with_sizes.default, aten.chunk.default, any_dtype=True)
def _split_with_sizes(b: Builder, self: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    dim = dim % len(self.shape)
    return _pieces(b, self, dim, _starts(b, dim))


def _starts(b: Builder, dim: int) -> list[IndexExpr]:
    """Where each result of a split begins."""
    starts, position = [], ZERO
    for k in range(b.n_results):
        starts.append(position)
        position = position + b.spec(k).shape[dim]
    return starts


@TABLE.add(aten.unbind.int, any_dtype=True)
def _unbind(b: Builder, self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    dim = dim % len(self.shape)

    def piece(k: int) -> Tensor:
        return _view(b, self, lambda p: (*p[:dim], lift(k), *p[dim:]), k)

    return tuple([piece(k) for k in range(b.n_results)])


# ---- views by strides ---------------------------------------------------------------------------------------


@TABLE.add(aten.as_strided.default, any_dtype=True)
def _as_strided(b: Builder, self: Tensor, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    buffer = b.buffers[self.buffer]
    # Storage is addressed from its start: known only for a tensor that is a whole row-major buffer at offset 0.
    dense = self.direct and not any(n is ZERO for n in self.shape) and _is_row_major(buffer.shape, buffer.strides)
    if not dense or self.buffer in b.inputs:
        return DECLINED
    offset = b.sizes(storage_offset or 0)
    strides = b.sizes.each(stride)

    def step(p: Point) -> Point:
        address = offset
        for i, s in zip(p, strides, strict=True):
            address = address + i * s
        return tuple(unflat(address, buffer.shape))

    return _view(b, self, step)


def _is_row_major(shape: Sequence[IndexExpr], strides: Sequence[IndexExpr]) -> bool:
    step = ONE
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n is not ONE and s is not step:
            return False
        step = step * n
    return True


# ---- copies of views ----------------------------------------------------------------------------------------


def _copying(lowering: Callable[..., Any]) -> Callable[..., Any]:
    """The view's index map, read once for each element."""

    def copied(b: Builder, self: Tensor, *args: Any, **kwargs: Any) -> Any:
        viewed = lowering(b, self, *args, **kwargs)
        if isinstance(viewed, Tensor):
            return b.map(viewed.at)
        if viewed is DECLINED:
            return DECLINED
        return tuple([b.map(v.at, b.spec(k), str(k)) for k, v in enumerate(viewed)])

    return copied


for _overload, _row in list(TABLE.rows.items()):
    _packet = getattr(aten, _overload._schema.name.removeprefix("aten::") + "_copy", None)
    if _packet is not None and _overload._overloadname in _packet.overloads():
        TABLE.put([getattr(_packet, _overload._overloadname)], _copying(_row.function))
