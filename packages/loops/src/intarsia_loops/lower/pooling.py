"""Lowerings of pooling: a reduction over the window, with positions outside the input masked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from intarsia_loops.index import ZERO, IndexExpr, lift
from intarsia_loops.lower import _math as m
from intarsia_loops.lower._builder import Builder
from intarsia_loops.lower._table import DECLINED, Table
from intarsia_loops.lower._values import Point, Tensor, compute_type, constant
from intarsia_loops.lower.indexing import in_range
from intarsia_loops.ops import identity_of
from intarsia_loops.program import Val, cast

__all__ = ["TABLE"]

aten: Any = torch.ops.aten
TABLE = Table("pooling")


def _pair(value: Any, default: Sequence[int] = ()) -> list[int]:
    """A per-dimension argument of two, from one number, a list of one or two, or an empty list."""
    values = [value] if isinstance(value, int) else list(value)
    return list(default) if not values else values * 2 if len(values) == 1 else values


def _windowed(
    x: Tensor, dtype: str, start: Callable[[Point, Point], list[IndexExpr]], outside: bool | float | int
) -> Any:
    """Element of the window, or `outside` where the window leaves the input."""

    def body(p: Point, r: Point) -> Val:
        place = start(p, r)
        sizes = x.shape[len(x.shape) - len(place) :]
        inside = constant(True, "b8")
        for i, n in zip(place, sizes, strict=True):
            inside = m.and_(inside, in_range(i, 0, n))
        point = (*p[: len(p) - len(place)], *[i if _sure(i, n) else i % n for i, n in zip(place, sizes, strict=True)])
        return m.select(inside, cast(x.at(point), dtype), constant(outside, dtype))

    return body


def _sure(i: IndexExpr, n: IndexExpr) -> bool:
    return i.lo >= 0 and (n - 1 - i).lo >= 0


@TABLE.add(aten.max_pool2d_with_indices.default)
def _max_pool(
    b: Builder,
    self: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    if b.is_used(1):
        return DECLINED  # positions are those of ATen's own scan, also among equals and NaNs
    size = _pair(kernel_size)
    step, pad, spread = _pair(stride, size), _pair(padding), _pair(dilation)
    dtype, spec = compute_type(self.dtype), b.spec(0)

    def start(p: Point, r: Point) -> list[IndexExpr]:
        return [p[len(p) - 2 + k] * step[k] + r[k] * spread[k] - pad[k] for k in range(2)]

    body = _windowed(self, dtype, start, identity_of("max", dtype))
    red = [lift(n) for n in size]
    if dtype == spec.dtype:
        return b.nest("max", spec, red, body), None
    wide = b.nest("max", b.temp_spec(spec.shape, dtype), red, body, "max")
    return b.map(wide.at, spec), None


@TABLE.add(aten.avg_pool2d.default)
def _avg_pool(
    b: Builder,
    self: Tensor,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    size = _pair(kernel_size)
    step, pad = _pair(stride, size), _pair(padding)
    if ceil_mode or (any(pad) and not count_include_pad and not divisor_override):
        return DECLINED  # the divisor depends on the position
    dtype, spec = compute_type(self.dtype), b.spec()

    def start(p: Point, r: Point) -> list[IndexExpr]:
        return [p[len(p) - 2 + k] * step[k] + r[k] - pad[k] for k in range(2)]

    body = _windowed(self, dtype, start, 0)
    return _mean_of(b, spec, [lift(n) for n in size], body, dtype, divisor_override or size[0] * size[1])


def _mean_of(b: Builder, spec: Any, red: list[IndexExpr], body: Any, dtype: str, divisor: int) -> Any:
    if dtype not in ("f32", "f64"):
        return DECLINED
    total = b.nest("sum", b.temp_spec(spec.shape, dtype), red, body, "sum")
    return b.map(lambda p: m.binary("div", total.at(p), float(divisor)), spec)


@TABLE.add(aten._adaptive_avg_pool2d.default)
def _adaptive_avg_pool(b: Builder, self: Tensor, output_size: Any) -> Any:
    spec, dtype = b.spec(), compute_type(self.dtype)
    factors = []
    for n, wanted in zip(self.shape[-2:], spec.shape[-2:], strict=True):
        if not wanted.const() or (n % wanted) is not ZERO or n is ZERO:
            return DECLINED  # windows of unequal size
        factors.append(n // wanted)
    if (divisor := (factors[0] * factors[1]).const()) is None:
        return DECLINED

    def body(p: Point, r: Point) -> Val:
        return cast(self.at((*p[:-2], p[-2] * factors[0] + r[0], p[-1] * factors[1] + r[1])), dtype)

    return _mean_of(b, spec, factors, body, dtype, divisor)
