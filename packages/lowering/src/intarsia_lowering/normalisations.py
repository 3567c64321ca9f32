"""Lowerings of softmax and of the normalisations, as plain nests: the fuser makes one row kernel of them.

Statistics are computed in float32 (float64 for float64) in two passes, whatever the element type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.eager import MIXED_PARAMETERS, Rounded
from intarsia_loops.ops import FLOATS
from intarsia_loops.program import Val, cast
from intarsia_lowering import _math as m
from intarsia_lowering._builder import Builder, rounded_type
from intarsia_lowering._table import DECLINED, Table
from intarsia_lowering._values import Point, Tensor, compute_type, constant
from intarsia_lowering.reductions import as_number, count, kept_result, var_mean

__all__ = ["TABLE"]

aten: Any = torch.ops.aten
TABLE = Table("normalisations")


# ---- softmax ------------------------------------------------------------------------------------------------


def _exponentials(b: Builder, x: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """(e**(x - max), its sum along dim, max along dim); the last two keep the dimension with size 1."""
    dtype, dims = compute_type(b.spec().dtype), [dim] if x.shape else []
    top = b.keep_dims(b.reduce("max", x, dims, dtype=dtype, role="max"), dims)
    powers = b.map(
        lambda p: m.unary("exp", m.binary("sub", cast(x.at(p), dtype), top.at(p))),
        b.temp_spec(x.shape, dtype),
        "exp",
    )
    total = b.keep_dims(b.reduce("sum", powers, dims, dtype=dtype, role="sum"), dims)
    return powers, total, top


@TABLE.add(aten._softmax.default)
def _softmax(b: Builder, self: Tensor, dim: int, half_to_float: bool) -> Any:
    if compute_type(self.dtype) not in FLOATS:
        return DECLINED  # eager raises
    powers, total, _ = _exponentials(b, self, dim % max(len(self.shape), 1))
    return b.map(lambda p: m.binary("div", powers.at(p), total.at(p)))


@TABLE.add(aten._log_softmax.default)
def _log_softmax(b: Builder, self: Tensor, dim: int, half_to_float: bool) -> Any:
    if compute_type(self.dtype) not in FLOATS:
        return DECLINED  # eager raises
    dtype = compute_type(b.spec().dtype)
    axis = dim % max(len(self.shape), 1)
    _, total, top = _exponentials(b, self, axis)
    half = rounded_type(b, "_log_softmax", Rounded.LAST_SUM, self.dtype) if axis == len(self.shape) - 1 else None

    def step(v: Val) -> Val:
        return v if half is None else m.rounded_to(v, half)

    def body(p: Point) -> Val:
        shifted = m.binary("sub", cast(self.at(p), dtype), top.at(p))
        return m.binary("sub", shifted, step(m.unary("log", step(total.at(p)))))

    return b.map(body)


# ---- layer, RMS and group norm ------------------------------------------------------------------------------


def _inverse_root(b: Builder, var: Tensor, eps: float) -> Tensor:
    """1 / sqrt(var + eps) as an intermediate of the same shape."""
    return b.map(lambda p: m.unary("rsqrt", m.binary("add", var.at(p), eps)), b.temp_spec(var.shape, var.dtype), "rstd")


def _scaled(value: Val, weight: Val | None, bias: Val | None) -> Val:
    value = value if weight is None else m.binary("mul", value, cast(weight, value.dtype))
    return value if bias is None else m.binary("add", value, cast(bias, value.dtype))


def _is_refused(b: Builder, x: Tensor, *others: Tensor | None) -> bool:
    """Tell whether eager's kernel refuses these types together; a GPU's kernels promote where a CPU's refuse."""
    on_cpu = torch.device(b.spec(0).device).type == "cpu"
    types = {dtype_from_name(t.dtype) for t in others if t is not None}
    return on_cpu and MIXED_PARAMETERS.refused(dtype_from_name(x.dtype), types)


@TABLE.add(aten.native_layer_norm.default)
def _layer_norm(
    b: Builder, input: Tensor, normalized_shape: Sequence[Any], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    if _is_refused(b, input, weight, bias):
        return DECLINED
    rank = len(input.shape)
    dims = list(range(rank - len(normalized_shape), rank))
    dtype = compute_type(input.dtype)
    var, mean = var_mean(b, input, dims, 0, dtype)
    rstd = _inverse_root(b, var, eps)
    wide_mean, wide_rstd = b.keep_dims(mean, dims), b.keep_dims(rstd, dims)

    def body(p: Point) -> Val:
        inner = p[dims[0] :]
        centred = m.binary("sub", cast(input.at(p), dtype), wide_mean.at(p))
        value = m.binary("mul", centred, wide_rstd.at(p))
        return _scaled(value, weight.at(inner) if weight else None, bias.at(inner) if bias else None)

    out = b.map(body, b.spec(0))
    return out, kept_result(b, mean, dims, 1, _same), kept_result(b, rstd, dims, 2, _same)


def _same(v: Val) -> Val:
    return v


@TABLE.add(aten._fused_rms_norm.default)
def _rms_norm(
    b: Builder, input: Tensor, normalized_shape: Sequence[Any], weight: Tensor | None, eps: float | None
) -> Any:
    rank = len(input.shape)
    dims = list(range(rank - len(normalized_shape), rank))
    dtype = compute_type(input.dtype)
    if eps is None:
        eps = torch.finfo(torch.float64 if dtype == "f64" else torch.float32).eps
    n = as_number(count(input, dims), dtype)
    squares = b.reduce("sum", input, dims, dtype=dtype, body=lambda e, _: m.square(e), role="squares")
    mean = b.map(lambda p: m.binary("div", squares.at(p), n), b.temp_spec(squares.shape, dtype), "mean")
    rstd = _inverse_root(b, mean, eps)
    wide = b.keep_dims(rstd, dims)

    def body(p: Point) -> Val:
        value = m.binary("mul", cast(input.at(p), dtype), wide.at(p))
        return _scaled(value, weight.at(p[dims[0] :]) if weight else None, None)

    return b.map(body, b.spec(0)), kept_result(b, rstd, dims, 1, _same)


@TABLE.add(aten.native_group_norm.default)
def _group_norm(
    b: Builder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: Any,  # noqa: N803  (the schema's names)
    C: Any,  # noqa: N803
    HxW: Any,  # noqa: N803
    group: int,
    eps: float,
) -> Any:
    if _is_refused(b, input, weight, bias):
        return DECLINED
    dtype = compute_type(input.dtype)
    batch, channels, *space = input.shape
    per_group = channels // group
    grouped = Tensor(
        input.buffer,
        (batch, b.sizes(group), per_group, *space),
        input.dtype,
        lambda p: input.index((p[0], p[1] * per_group + p[2], *p[3:])),
    )
    dims = list(range(2, len(grouped.shape)))
    var, mean = var_mean(b, grouped, dims, 0, dtype)
    rstd = _inverse_root(b, var, eps)

    def body(p: Point) -> Val:
        row = (p[0], p[1] // per_group)
        value = m.binary("mul", m.binary("sub", cast(input.at(p), dtype), mean.at(row)), rstd.at(row))
        channel = (p[1],)
        return _scaled(value, weight.at(channel) if weight else None, bias.at(channel) if bias else None)

    out = b.map(body, b.spec(0))
    specs = b.spec(1), b.spec(2)
    return out, b.map(mean.at, specs[0], "1"), b.map(rstd.at, specs[1], "2")


# ---- batch norm with known statistics -----------------------------------------------------------------------


def _batch_norm(
    b: Builder, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float
) -> Any:
    dtype = compute_type(b.spec(0).dtype)

    def body(p: Point) -> Val:
        channel = (p[1],)
        inverse = _inverse_root_at(var, channel, eps, dtype)
        value = m.binary("mul", m.binary("sub", cast(x.at(p), dtype), cast(mean.at(channel), dtype)), inverse)
        return _scaled(value, weight.at(channel) if weight else None, bias.at(channel) if bias else None)

    out = b.map(body, b.spec(0))
    # what a backward would need: a GPU's kernels return it in inference too, a CPU's return tensors of no elements
    kept_mean = b.map(lambda p: cast(mean.at(p), compute_type(b.spec(1).dtype)), b.spec(1), "1")
    return out, kept_mean, b.map(lambda p: _inverse_root_at(var, p, eps, compute_type(b.spec(2).dtype)), b.spec(2), "2")


def _inverse_root_at(var: Tensor, p: Point, eps: float, dtype: str) -> Val:
    root = m.unary("sqrt", m.binary("add", cast(var.at(p), dtype), eps))
    return m.binary("div", constant(1.0, dtype), root)


def _plain_statistics(b: Builder, mean: Tensor) -> bool:
    """Tell whether the results beside the output are statistics a channel, or have no elements."""
    return all(b.spec(k).shape == mean.shape or any(n.const() == 0 for n in b.spec(k).shape) for k in (1, 2))


@TABLE.add(aten._native_batch_norm_legit_no_training.default)
def _batch_norm_no_training(
    b: Builder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> Any:
    if not _plain_statistics(b, running_mean) or _is_refused(b, input, weight, bias, running_mean, running_var):
        return DECLINED
    return _batch_norm(b, input, weight, bias, running_mean, running_var, eps)


@TABLE.add(aten.native_batch_norm.default)
def _native_batch_norm(
    b: Builder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if training or running_mean is None or running_var is None or not _plain_statistics(b, running_mean):
        return DECLINED
    if _is_refused(b, input, weight, bias, running_mean, running_var):
        return DECLINED
    return _batch_norm(b, input, weight, bias, running_mean, running_var, eps)
