"""Lowerings of pooling: reductions over a window, with positions outside of the input masked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from intarsia_loops.index import ONE, ZERO, IndexExpr, lift
from intarsia_loops.ops import FLOATS, identity_of
from intarsia_loops.program import Val, cast, index_value, val
from intarsia_lowering import _math as m
from intarsia_lowering._builder import Builder
from intarsia_lowering._table import DECLINED, Table
from intarsia_lowering._values import Point, Tensor, compute_type, constant
from intarsia_lowering.indexing import in_range, less

__all__ = ["TABLE"]

aten: Any = torch.ops.aten
TABLE = Table("pooling")

Start = Callable[[Point, Point], list[IndexExpr]]
"""(point of the result, point of the window) -> position in the pooled dimensions, which may lie outside."""


def _each(value: Any, rank: int, default: Sequence[int] = ()) -> list[int]:
    """A per-dimension argument, from one number, a list of one or `rank`, or an empty list."""
    values = [value] if isinstance(value, int) else list(value)
    return list(default) if not values else values * rank if len(values) == 1 else values


def _windows(size: Sequence[int], step: Sequence[int], pad: Sequence[int], spread: Sequence[int]) -> Start:
    """Windows of one size, at regular steps."""
    rank = len(size)
    return lambda p, r: [p[len(p) - rank + k] * step[k] + r[k] * spread[k] - pad[k] for k in range(rank)]


def _element(x: Tensor, place: Sequence[IndexExpr], p: Point, dtype: str) -> tuple[Val, Val]:
    """Whether a place in the pooled dimensions is inside of the input, and the element there."""
    sizes = x.shape[len(x.shape) - len(place) :]
    inside = constant(True, "b8")
    for i, n in zip(place, sizes, strict=True):
        inside = m.and_(inside, in_range(i, 0, n))
    point = (*p[: len(p) - len(place)], *[i if _sure(i, n) else i % n for i, n in zip(place, sizes, strict=True)])
    return inside, cast(x.at(point), dtype)


def _sure(i: IndexExpr, n: IndexExpr) -> bool:
    return i.lo >= 0 and (n - 1 - i).lo >= 0


def _is_empty(b: Builder, x: Tensor, position: int | None = None) -> bool:
    return any(n is ZERO for n in (*x.shape, *b.spec(position).shape))


# ---- the largest element ------------------------------------------------------------------------------------


def _max_pool(rank: int) -> Callable[..., Any]:
    def lowering(
        b: Builder,
        self: Tensor,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        if _is_empty(b, self, 0):
            return DECLINED
        size = _each(kernel_size, rank)
        step, pad, spread = _each(stride, rank, size), _each(padding, rank), _each(dilation, rank)
        return _largest(b, self, [lift(n) for n in size], _windows(size, step, pad, spread))

    return lowering


TABLE.put([aten.max_pool2d_with_indices.default], _max_pool(2))
TABLE.put([aten.max_pool3d_with_indices.default], _max_pool(3))


def _largest(b: Builder, x: Tensor, red: list[IndexExpr], start: Start, within: Any = None) -> Any:
    """The largest element of each window, and where it is, if anybody asks.

    Args:
        b: The builder.
        x: The input.
        red: Size of the windows.
        start: Where an element of a window lies.
        within: (point of the result, point of the window) -> whether the window has that element; None: it has all.
    """
    dtype, spec = compute_type(x.dtype), b.spec(0)

    def element(p: Point, r: Point) -> tuple[Val, Val]:
        inside, value = _element(x, start(p, r), p, dtype)
        return (inside if within is None else m.and_(within(p, r), inside)), value

    def body(p: Point, r: Point) -> Val:
        return m.select(*element(p, r), constant(identity_of("max", dtype), dtype))

    if dtype == spec.dtype:
        top = values = b.nest("max", spec, red, body)
    else:
        top = b.nest("max", replace(spec, dtype=dtype), red, body, "max")  # in one order, so that one kernel does both
        values = b.map(top.at, spec)
    return values, _where_largest(b, x, top, red, start, element) if b.is_used(1) else None


def _where_largest(b: Builder, x: Tensor, top: Tensor, red: list[IndexExpr], start: Start, element: Any) -> Tensor:
    """Row-major position in the pooled dimensions: of the first among equals, but of the last NaN, as ATen scans."""
    sizes = x.shape[len(x.shape) - len(red) :]
    far = constant(1 << 62, "i64")

    def key(p: Point, r: Point) -> Val:
        inside, value = element(p, r)
        place = ZERO
        for i, n in zip(start(p, r), sizes, strict=True):
            place = place * n + i
        here, largest = index_value(place), top.at(p)
        if top.dtype not in FLOATS:
            return m.select(m.and_(inside, m.compare("eq", value, largest)), here, far)
        is_nan = val("isnan", largest, dtype="b8")
        is_largest = val("where", is_nan, val("isnan", value, dtype="b8"), m.compare("eq", value, largest), dtype="b8")
        signed = val("where", is_nan, m.unary("neg", here), here, dtype="i64")
        return val("where", m.and_(inside, is_largest), signed, far, dtype="i64")

    nearest = b.nest("min", b.temp_spec(top.shape, "i64"), red, key, "nearest")
    return b.map(lambda p: m.unary("abs", nearest.at(p)), b.spec(1), "where")


def _max_pool_backward(rank: int) -> Callable[..., Any]:
    def lowering(
        b: Builder,
        grad_output: Tensor,
        self: Tensor,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        indices: Tensor,
    ) -> Any:
        if _is_empty(b, self) or _is_empty(b, grad_output):
            return DECLINED
        size, pad, spread = (_each(value, rank) for value in (kernel_size, padding, dilation))
        step = _each(stride, rank, size)
        # windows that hold an element, along each dimension
        n_windows = [-(-((n - 1) * d + 1) // s) for n, d, s in zip(size, spread, step, strict=True)]
        is_apart = all(n == 1 for n in n_windows)
        if b.spec().device == "cpu" and not is_apart:
            return DECLINED  # ATen's loop visits each window once, and not each element
        dtype, sizes = compute_type(grad_output.dtype), self.shape[len(self.shape) - rank :]

        def element(p: Point, r: Point) -> Val:
            """What a window that holds a point passes back to it."""
            place_of_window, place = p[len(p) - rank :], ZERO
            for i, n in zip(place_of_window, sizes, strict=True):
                place = place * n + i
            window = [(i + q) // s - k for i, q, s, k in zip(place_of_window, pad, step, r, strict=True)]
            inside, largest = _element(indices, window, p, "i64")
            _, gradient = _element(grad_output, window, p, dtype)
            is_here = m.and_(inside, m.compare("eq", largest, index_value(place)))
            return m.select(is_here, gradient, constant(0, dtype))

        if is_apart:
            return b.map(lambda p: element(p, (ZERO,) * rank), b.spec())
        total = b.nest("sum", b.temp_spec(b.spec().shape, dtype), [lift(n) for n in n_windows], element, "sum")
        return b.map(total.at, b.spec())

    return lowering


TABLE.put([aten.max_pool2d_with_indices_backward.default], _max_pool_backward(2))
TABLE.put([aten.max_pool3d_with_indices_backward.default], _max_pool_backward(3))


# ---- the mean -----------------------------------------------------------------------------------------------


def _avg_pool(rank: int) -> Callable[..., Any]:
    def lowering(
        b: Builder,
        self: Tensor,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        if _is_empty(b, self):
            return DECLINED
        size = _each(kernel_size, rank)
        step, pad = _each(stride, rank, size), _each(padding, rank)
        sizes = self.shape[len(self.shape) - rank :]

        def divisor(p: Point) -> Val:
            """Elements of the window; those in the padding count, but never those that `ceil_mode` adds behind it."""
            count = constant(1, "i64")
            for k, n in enumerate(sizes):
                first = p[len(p) - rank + k] * step[k] - pad[k]
                last = first + size[k]
                border = pad[k] if count_include_pad else 0
                begin = first if count_include_pad else _clipped("max", first, ZERO)
                count = m.binary("mul", count, _difference(_clipped("min", last, n + border), begin))
            return count

        fixed = divisor_override or (None if ceil_mode or (any(pad) and not count_include_pad) else _product(size))
        start = _windows(size, step, pad, [1] * rank)
        return _mean(b, self, [lift(n) for n in size], start, fixed or divisor)

    return lowering


TABLE.put([aten.avg_pool2d.default], _avg_pool(2))
TABLE.put([aten.avg_pool3d.default], _avg_pool(3))


def _product(sizes: Sequence[int]) -> int:
    product = 1
    for n in sizes:
        product *= n
    return product


def _clipped(op: str, i: IndexExpr, bound: IndexExpr) -> IndexExpr | Val:
    """The smaller or larger of two index expressions, decided now where the ranges allow."""
    gap = bound - i if op == "min" else i - bound
    if gap.lo >= 0:
        return i
    return bound if gap.hi <= 0 else val(op, index_value(i), index_value(bound), dtype="i64")


def _difference(a: IndexExpr | Val, b: IndexExpr | Val) -> Val:
    if isinstance(a, IndexExpr) and isinstance(b, IndexExpr):
        return index_value(a - b)
    both = [x if isinstance(x, Val) else index_value(x) for x in (a, b)]
    return val("sub", *both, dtype="i64")


def _mean(
    b: Builder,
    x: Tensor,
    red: list[IndexExpr],
    start: Start,
    divisor: int | Callable[[Point], Val],
    within: Any = None,
) -> Any:
    """Sum of each window over a fixed divisor, or over one that depends on the position."""
    dtype, spec = compute_type(x.dtype), b.spec()
    if dtype not in FLOATS:
        return DECLINED

    def body(p: Point, r: Point) -> Val:
        inside, value = _element(x, start(p, r), p, dtype)
        return m.select(inside if within is None else m.and_(within(p, r), inside), value, constant(0, dtype))

    total = b.nest("sum", b.temp_spec(spec.shape, dtype), red, body, "sum")
    if isinstance(divisor, int):
        return b.map(lambda p: m.binary("div", total.at(p), float(divisor)), spec)
    return b.map(lambda p: m.binary("div", total.at(p), cast(divisor(p), dtype)), spec)


# ---- windows that cover the input ---------------------------------------------------------------------------


class _Cover:
    """The windows of adaptive pooling: number i of `wanted` goes from i*n // wanted to ((i + 1)*n - 1) // wanted.

    Args:
        sizes: Sizes of the input.
        wanted: Numbers of windows.
    """

    def __init__(self, sizes: Sequence[IndexExpr], wanted: Sequence[IndexExpr]) -> None:
        self.sizes, self.wanted = sizes, wanted
        self.even = all(n % w is ZERO for n, w in zip(sizes, wanted, strict=True))
        # a window that starts inside of a step reaches over one more element
        self.red = [n // w if n % w is ZERO else (n - 1) // w + 2 for n, w in zip(sizes, wanted, strict=True)]

    def start(self, p: Point, r: Point) -> list[IndexExpr]:
        return [first + k for first, k in zip(self._first(p), r, strict=True)]

    def within(self, p: Point, r: Point) -> Val:
        inside = constant(True, "b8")
        for k, length in zip(r, self._lengths(p), strict=True):
            inside = m.and_(inside, less(k, length))
        return inside

    def count(self, p: Point) -> Val:
        total = ONE
        for length in self._lengths(p):
            total = total * length
        return index_value(total)

    def _first(self, p: Point) -> list[IndexExpr]:
        window = p[len(p) - len(self.sizes) :]
        return [i * n // w for i, n, w in zip(window, self.sizes, self.wanted, strict=True)]

    def _lengths(self, p: Point) -> list[IndexExpr]:
        window = p[len(p) - len(self.sizes) :]
        ends = [((i + 1) * n - 1) // w + 1 for i, n, w in zip(window, self.sizes, self.wanted, strict=True)]
        return [end - first for end, first in zip(ends, self._first(p), strict=True)]


def _cover(b: Builder, x: Tensor, rank: int, position: int | None = None) -> _Cover | None:
    if _is_empty(b, x, position):
        return None
    return _Cover(x.shape[-rank:], b.spec(position).shape[-rank:])


def _adaptive_avg_pool(rank: int) -> Callable[..., Any]:
    def lowering(b: Builder, self: Tensor, output_size: Any) -> Any:
        cover = _cover(b, self, rank)
        if cover is None:
            return DECLINED
        within = None if cover.even else cover.within
        return _mean(b, self, cover.red, cover.start, cover.count, within)

    return lowering


TABLE.put([aten._adaptive_avg_pool2d.default], _adaptive_avg_pool(2))
TABLE.put([aten._adaptive_avg_pool3d.default], _adaptive_avg_pool(3))


def _adaptive_max_pool(rank: int) -> Callable[..., Any]:
    def lowering(b: Builder, self: Tensor, output_size: Any) -> Any:
        cover = _cover(b, self, rank, 0)
        if cover is None:
            return DECLINED
        return _largest(b, self, cover.red, cover.start, None if cover.even else cover.within)

    return lowering


TABLE.put([aten.adaptive_max_pool2d.default], _adaptive_max_pool(2))
TABLE.put([aten.adaptive_max_pool3d.default], _adaptive_max_pool(3))
