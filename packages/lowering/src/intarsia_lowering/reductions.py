"""Lowerings of reductions and scans. Half types are folded in float32 and converted by one more map.

A reduction's nest is over the kept dimensions only; a result with `keepdim` is a view of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from intarsia_ir.eager import Rounded
from intarsia_loops.index import ONE, ZERO, IndexExpr
from intarsia_loops.ops import FLOATS, NEST_KINDS
from intarsia_loops.program import Val, cast, index_value, val
from intarsia_lowering import _math as m
from intarsia_lowering._builder import Builder, Spec, rounded_type
from intarsia_lowering._table import DECLINED, Table
from intarsia_lowering._values import Point, Tensor, compute_type, constant

__all__ = ["TABLE", "as_number", "count", "dimensions", "folded", "kept_result", "var_mean"]

aten: Any = torch.ops.aten
TABLE = Table("reductions")


# ---- helpers, also for other families -----------------------------------------------------------------------


def dimensions(x: Tensor, dim: int | Sequence[int] | None) -> list[int]:
    """Return the dimensions meant by `dim`, non-negative and ascending; None and an empty list mean all."""
    rank = len(x.shape)
    if isinstance(dim, int):
        dim = [dim]
    if not dim:
        return list(range(rank))
    return sorted({d % rank for d in dim}) if rank else []


def count(x: Tensor, dims: Sequence[int]) -> IndexExpr:
    """Return how many elements one fold over `dims` takes."""
    total = ONE
    for d in dims:
        total = total * x.shape[d]
    return total


def as_number(size: IndexExpr, dtype: str) -> Val:
    """Return a size as a value of `dtype`."""
    fixed = size.const()
    return constant(fixed, dtype) if fixed is not None else cast(index_value(size), dtype)


def folded(
    b: Builder,
    kind: str,
    x: Tensor,
    dims: Sequence[int],
    *,
    keepdim: bool,
    dtype: str,
    position: int | None = None,
    element: str | None = None,
    body: Callable[[Val, Point], Val] | None = None,
    after: Callable[[Val], Val] | None = None,
    role: str = "",
) -> Tensor:
    """Fold `x` over `dims` as result number `position` of the node, with an optional map after the fold.

    Args:
        b: The builder.
        kind: Row of the nest kind table.
        x: The tensor.
        dims: Reduced dimensions.
        keepdim: Whether the result keeps them with size 1.
        dtype: Type that is folded in.
        position: Which result of the node; None: the only one.
        element: Type that elements are converted to before `body`; None: `dtype`.
        body: (element, point of x) -> what is folded.
        after: What becomes of the fold's value.
        role: Suffix of the result's name.
    """
    spec = b.spec(position)
    kept = [d for d in range(len(x.shape)) if d not in dims]
    target = spec
    if keepdim and len(spec.shape) == len(x.shape):
        target = Spec(
            tuple([spec.shape[d] for d in kept]), tuple([spec.strides[d] for d in kept]), spec.dtype, spec.device
        )
    direct = after is None and (NEST_KINDS[kind].out_type or dtype) == spec.dtype
    out = b.reduce(
        kind,
        x,
        dims,
        dtype=dtype,
        element=element,
        body=body,
        spec=target if direct else None,
        role=role if direct else role + kind,
    )
    if not direct:
        fold = out
        out = b.map(lambda p: after(fold.at(p)) if after else fold.at(p), target, role)
    if target is spec:
        return out
    view = b.keep_dims(out, dims)
    return Tensor(view.buffer, spec.shape, view.dtype, view.index, spec.strides)


def var_mean(b: Builder, x: Tensor, dims: Sequence[int], correction: float, dtype: str) -> tuple[Tensor, Tensor]:
    """Return variance and mean over `dims` as `dtype` intermediates without these dimensions: two passes."""
    mean = _mean_of(b, x, dims, dtype, lambda element, _: element, "")
    return _variance(b, x, dims, correction, dtype, lambda element, _: element, mean), mean


Body = Callable[[Val, Point], Val]


def _mean_of(b: Builder, x: Tensor, dims: Sequence[int], dtype: str, body: Body, role: str) -> Tensor:
    total = b.reduce("sum", x, dims, dtype=dtype, body=body, role=f"{role}sum")
    n = as_number(count(x, dims), dtype)
    return b.map(lambda p: m.binary("div", total.at(p), n), b.temp_spec(total.shape, dtype), f"{role}mean")


def _variance(
    b: Builder, x: Tensor, dims: Sequence[int], correction: float, dtype: str, body: Body, mean: Tensor
) -> Tensor:
    """Return the variance of `body`, whose mean is given."""
    wide = b.keep_dims(mean, dims)

    def squared(element: Val, point: Point) -> Val:
        return m.square(m.binary("sub", body(element, point), wide.at(point)))

    squares = b.reduce("sum", x, dims, dtype=dtype, body=squared, role="squares")
    degrees = _degrees(count(x, dims), correction, dtype)
    return b.map(lambda p: m.binary("div", squares.at(p), degrees), b.temp_spec(squares.shape, dtype), "var")


def _degrees(n: IndexExpr, correction: float, dtype: str) -> Val:
    """n - correction, but not below zero."""
    fixed = n.const()
    if fixed is not None:
        return constant(max(fixed - correction, 0.0), dtype)
    free = m.binary("sub", as_number(n, dtype), correction)
    return m.binary("max", free, 0.0)


def kept_result(
    b: Builder, x: Tensor, dims: Sequence[int], position: int | None, after: Callable[[Val], Val]
) -> Tensor:
    """Return result `position` of the node, which may keep `dims`: an intermediate without them, mapped by `after`."""
    spec = b.spec(position)
    rank = len(x.shape) + len(dims)
    role = "" if not position else str(position)
    if len(spec.shape) != rank or not dims:
        return b.map(lambda p: after(x.at(p)), spec, role)
    kept = [d for d in range(rank) if d not in dims]
    target = Spec(x.shape, tuple([spec.strides[d] for d in kept]), spec.dtype, spec.device)
    view = b.keep_dims(b.map(lambda p: after(x.at(p)), target, role), dims)
    return Tensor(view.buffer, spec.shape, view.dtype, view.index, spec.strides)


# ---- sums and products --------------------------------------------------------------------------------------


@TABLE.add(aten.sum.default, aten.sum.dim_IntList)
def _sum(b: Builder, self: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    fold_in = compute_type(b.spec().dtype)
    # a sum of bools is whether any is True; added up, two of them are no value of the type
    kind = "any" if fold_in == "b8" else "sum"
    element, body = _of_result(b.spec().dtype, fold_in)
    dims = dimensions(self, dim)
    return folded(b, kind, self, dims, keepdim=keepdim, dtype=fold_in, element=element, body=body)


@TABLE.add(aten.mean.default, aten.mean.dim)
def _mean(b: Builder, self: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    dims, fold_in = dimensions(self, dim), compute_type(b.spec().dtype)
    n = as_number(count(self, dims), fold_in)
    return folded(b, "sum", self, dims, keepdim=keepdim, dtype=fold_in, after=lambda total: m.binary("div", total, n))


@TABLE.add(aten.prod.default, aten.prod.dim_int)
def _prod(b: Builder, self: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    fold_in = compute_type(b.spec().dtype)
    if fold_in == "b8":
        return DECLINED
    element, body = _of_result(b.spec().dtype, fold_in)
    dims = dimensions(self, dim)
    return folded(b, "prod", self, dims, keepdim=keepdim, dtype=fold_in, element=element, body=body)


def _of_result(dtype: str, fold_in: str) -> tuple[str, Callable[[Val, Point], Val]]:
    """Return what elements are converted to, the result's type, and the body: eager rounds them to halves first."""
    return dtype, lambda e, _: cast(e, fold_in)


@TABLE.add(aten.count_nonzero.dim_IntList)
def _count_nonzero(b: Builder, self: Tensor, dim: Any) -> Tensor:
    return folded(
        b,
        "sum",
        self,
        dimensions(self, dim),
        keepdim=False,
        dtype="i64",
        element="b8",
        body=lambda e, _: cast(e, "i64"),
    )


# ---- extremes -----------------------------------------------------------------------------------------------


def _extreme(kind: str) -> Callable[..., Any]:
    """amax, amin, and max and min of everything: logic on b8."""

    def lowering(b: Builder, self: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        dims = dimensions(self, dim)
        if count(self, dims).lo <= 0:
            return DECLINED  # eager raises where there is nothing
        if self.dtype == "b8":
            return folded(b, "any" if kind == "max" else "all", self, dims, keepdim=keepdim, dtype="b8")
        return folded(b, kind, self, dims, keepdim=keepdim, dtype=compute_type(self.dtype))

    return lowering


TABLE.put([aten.amax.default, aten.max.default], _extreme("max"))
TABLE.put([aten.amin.default, aten.min.default], _extreme("min"))


def _extreme_with_position(kind: str) -> Callable[..., Any]:
    """max and min along one dimension: the value and its position are two nests over the same rows."""

    def lowering(b: Builder, self: Tensor, dim: int, keepdim: bool = False) -> Any:
        dims = dimensions(self, dim)
        if count(self, dims).lo <= 0:
            return DECLINED  # eager raises where there is nothing
        dtype = "i32" if self.dtype == "b8" else compute_type(self.dtype)
        value = folded(b, kind, self, dims, keepdim=keepdim, dtype=dtype, position=0)
        return value, folded(b, "arg" + kind, self, dims, keepdim=keepdim, dtype=dtype, position=1, role="indices")

    return lowering


TABLE.put([aten.max.dim], _extreme_with_position("max"))
TABLE.put([aten.min.dim], _extreme_with_position("min"))


def _position(kind: str) -> Callable[..., Any]:
    def lowering(b: Builder, self: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        dims = dimensions(self, dim)
        if self.dtype == "b8" or count(self, dims).lo <= 0:
            return DECLINED  # eager raises where there is nothing
        return folded(b, kind, self, dims, keepdim=keepdim, dtype=compute_type(self.dtype))

    return lowering


TABLE.put([aten.argmax.default], _position("argmax"))
TABLE.put([aten.argmin.default], _position("argmin"))


@TABLE.add(aten.aminmax.default)
def _aminmax(b: Builder, self: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    if self.dtype == "b8":
        return DECLINED
    dims, dtype = dimensions(self, dim), compute_type(self.dtype)
    low = folded(b, "min", self, dims, keepdim=keepdim, dtype=dtype, position=0)
    return low, folded(b, "max", self, dims, keepdim=keepdim, dtype=dtype, position=1, role="max")


def _logical(kind: str) -> Callable[..., Any]:
    """any and all: on u8 the result is u8."""

    def lowering(b: Builder, self: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        return folded(b, kind, self, dimensions(self, dim), keepdim=keepdim, dtype="b8")

    return lowering


for _kind in ("any", "all"):
    _packet = getattr(aten, _kind)
    TABLE.put([_packet.default, _packet.dim, _packet.dims], _logical(_kind))


# ---- moments and norms --------------------------------------------------------------------------------------


def _moments(results: str, root: bool) -> Callable[..., Any]:
    """var, std, and the same with the mean."""

    def lowering(
        b: Builder, self: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
    ) -> Any:
        dims = dimensions(self, dim)
        dtype = compute_type(b.spec(0 if "mean" in results else None).dtype)
        if dtype not in FLOATS:
            return DECLINED  # eager raises
        how = b, self, dims, 1 if correction is None else correction
        # eager's CPU kernels fold in double: sums of squares may be beyond float32's range where their roots aren't.
        # var_mean is what a batch norm is made of, where half the lanes cost more than that range is worth
        in_double = results != "var_mean" and dtype == "f32" and self.dtype != "f16"
        if in_double and b.temp_spec((), dtype).device == "cpu":
            var, mean = _moments_of_one_pass(*how, "f64")
        else:
            var, mean = _spread(*how, dtype), None
        if "mean" in results:
            mean = mean or _mean_of(b, self, dims, dtype, lambda e, _: e, "")
            mean = _running_mean(b, self, mean, dims, mean.dtype)
        result = kept_result(
            b, var, dims, 0 if "mean" in results else None, (lambda v: m.unary("sqrt", v)) if root else (lambda v: v)
        )
        return (result, kept_result(b, mean, dims, 1, lambda v: v)) if mean and "mean" in results else result

    return lowering


def _spread(b: Builder, x: Tensor, dims: Sequence[int], correction: float, dtype: str) -> Tensor:
    """Return the variance, which is exactly 0 where all elements are equal: that of their distances from the first.

    The mean of equal numbers is rounded, and the gradient of a standard deviation that is almost 0 is noise.
    """
    distance = _distance(x, dims, dtype)
    return _variance(b, x, dims, correction, dtype, distance, _mean_of(b, x, dims, dtype, distance, "distance_"))


def _moments_of_one_pass(
    b: Builder, x: Tensor, dims: Sequence[int], correction: float, dtype: str
) -> tuple[Tensor, Tensor]:
    """Return the same, and the mean, of float32 numbers in float64, which has bits to spare.

    The first number's own distance is 0, so the mean distance is at most sqrt(n) deviations: the difference below
    loses no more than the bits of n, of the 29 that there are beyond float32's.
    """
    first, distance = _first(x, dims, dtype), _distance(x, dims, dtype)

    def squared(element: Val, point: Point) -> Val:
        return m.square(distance(element, point))

    total = b.reduce("sum", x, dims, dtype=dtype, body=distance, role="distance_sum")
    squares = b.reduce("sum", x, dims, dtype=dtype, body=squared, role="squares")
    n = count(x, dims)

    def spread(p: Point) -> Val:
        common = m.binary("div", m.square(total.at(p)), as_number(n, dtype))
        return m.binary("div", m.binary("sub", squares.at(p), common), _degrees(n, correction, dtype))

    def centre(p: Point) -> Val:
        far = m.binary("div", total.at(p), as_number(n, dtype))
        if first is None:
            return far
        alone = m.compare("eq", as_number(n, dtype), 1.0)  # an infinite number is no distance from itself
        return m.select(alone, first(p), m.binary("add", first(p), far))

    spec = b.temp_spec(squares.shape, dtype)
    return b.map(spread, spec, "var"), b.map(centre, spec, "mean")


def _distance(x: Tensor, dims: Sequence[int], dtype: str) -> Body:
    """The distance of an element from the first that it is folded with; itself where there may be none."""
    first = _first(x, dims, dtype)

    def distance(element: Val, point: Point) -> Val:
        return (
            element
            if first is None
            else m.binary("sub", element, first([p for d, p in enumerate(point) if d not in dims]))
        )

    return distance


def _first(x: Tensor, dims: Sequence[int], dtype: str) -> Callable[[Sequence[Any]], Val] | None:
    """Where a result is -> the first element that is folded there; None where there may be none."""
    if not dims or count(x, dims).lo < 1:
        return None

    def first(kept: Sequence[Any]) -> Val:
        places = iter(kept)
        return cast(x.at(tuple([ZERO if d in dims else next(places) for d in range(len(x.shape))])), dtype)

    return first


def _running_mean(b: Builder, x: Tensor, mean: Tensor, dims: Sequence[int], dtype: str) -> Tensor:
    """The mean as ATen's CPU kernel updates it by each element: NaN once elements follow an infinite one."""
    if not dims or b.spec(1).device != "cpu" or count(x, dims).lo < 1:
        return mean

    def followed(element: Val, p: Point) -> Val:
        places = [val("lt", index_value(p[d]), index_value(x.shape[d] - ONE), dtype="b8") for d in dims]
        return m.and_(val("isinf", element, dtype="b8"), functools.reduce(lambda a, c: m.binary("or", a, c), places))

    lost = b.reduce("any", x, dims, dtype="b8", element=dtype, body=followed, role="lost")

    def body(p: Point) -> Val:
        return m.select(lost.at(p), m.number(math.nan, mean.at(p)), mean.at(p))

    return b.map(body, b.temp_spec(mean.shape, dtype), "running")


TABLE.put([aten.var.correction], _moments("var", False))
TABLE.put([aten.std.correction], _moments("std", True))
TABLE.put([aten.var_mean.correction], _moments("var_mean", False))
TABLE.put([aten.std_mean.correction], _moments("std_mean", True))


@TABLE.add(aten.logsumexp.default)
def _logsumexp(b: Builder, self: Tensor, dim: Any, keepdim: bool = False) -> Any:
    dims, dtype = dimensions(self, dim), compute_type(b.spec().dtype)
    if any(n.const() == 0 for n in (self.shape[d] for d in dims)):
        return DECLINED
    top = b.reduce("max", self, dims, dtype=dtype, role="max")

    half = rounded_type(b, "logsumexp", Rounded.EACH_STEP, b.spec().dtype)

    def step(v: Val) -> Val:
        return v if half is None else m.rounded_to(v, half)

    def finite(v: Val) -> Val:  # an infinite maximum is not subtracted: inf - inf is NaN
        return m.select(val("isinf", v, dtype="b8"), m.number(0.0, v), v)

    wide = b.keep_dims(top, dims)
    total = b.reduce(
        "sum",
        self,
        dims,
        dtype=dtype,
        body=lambda e, p: step(m.unary("exp", step(m.binary("sub", e, finite(wide.at(p)))))),
        role="sum",
    )

    def back(p: Any) -> Val:
        return m.binary("add", step(m.unary("log", step(total.at(p)))), finite(top.at(p)))

    joined = b.map(back, b.temp_spec(top.shape, dtype), "log")
    return kept_result(b, joined, dims, None, lambda v: v)


@TABLE.add(aten.linalg_vector_norm.default)
def _vector_norm(
    b: Builder, self: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    dims, fold_in = dimensions(self, dim), compute_type(b.spec().dtype)
    if math.isinf(ord):
        if any(self.shape[d].const() == 0 for d in dims):
            return DECLINED
        kind = "max" if ord > 0 else "min"
        return folded(b, kind, self, dims, keepdim=keepdim, dtype=fold_in, body=lambda e, _: m.unary("abs", e))
    if ord not in (1, 2):
        if fold_in == "f32" and self.dtype == "f64":
            return DECLINED  # eager takes powers in the wider type
        return _power_norm(b, self, dims, ord, keepdim=keepdim, dtype=fold_in)
    if ord == 1:
        return folded(b, "sum", self, dims, keepdim=keepdim, dtype=fold_in, body=lambda e, _: m.unary("abs", e))
    return folded(
        b,
        "sum",
        self,
        dims,
        keepdim=keepdim,
        dtype=fold_in,
        body=lambda e, _: m.square(e),
        after=lambda total: m.unary("sqrt", total),
    )


def _power_norm(b: Builder, x: Tensor, dims: Sequence[int], order: float, *, keepdim: bool, dtype: str) -> Tensor:
    """Sum of powers, and its root; order 0 counts what isn't 0."""

    def body(e: Val, _: Any) -> Val:
        if order == 0:
            return m.select(m.compare("ne", e, 0.0), m.number(1.0, e), m.number(0.0, e))
        return m.binary("pow", m.unary("abs", e), float(order))

    def after(total: Val) -> Val:
        return total if order == 0 else m.binary("pow", total, 1.0 / order)

    return folded(b, "sum", x, dims, keepdim=keepdim, dtype=dtype, body=body, after=after)


# ---- scans --------------------------------------------------------------------------------------------------


def _scan(kind: str) -> Callable[..., Any]:
    def lowering(b: Builder, self: Tensor, dim: int, *, dtype: Any = None) -> Any:
        spec = b.spec()
        fold_in = compute_type(spec.dtype)
        if fold_in == "b8":
            return DECLINED
        if not self.shape:
            return b.map(lambda p: cast(self.at(p), fold_in))
        dim = dim % len(self.shape)
        if fold_in == spec.dtype:
            return b.scan(kind, self, dim, dtype=fold_in, spec=spec)
        # eager rounds the elements to the half type first
        wide = b.scan(kind, self, dim, dtype=fold_in, element=spec.dtype, role=kind)
        return b.map(wide.at)

    return lowering


TABLE.put([aten.cumsum.default], _scan("cumsum"))
TABLE.put([aten.cumprod.default], _scan("cumprod"))
