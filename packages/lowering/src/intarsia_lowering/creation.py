"""Lowerings of ops that make tensors from numbers."""

from __future__ import annotations

from typing import Any

import torch

from intarsia_loops.index import IndexExpr, lift
from intarsia_loops.ops import FLOATS
from intarsia_loops.program import Val, cast, index_value, val
from intarsia_lowering import _math as m
from intarsia_lowering._builder import Builder
from intarsia_lowering._table import DECLINED, Table
from intarsia_lowering._values import Tensor, compute_type, constant, fits, operand

__all__ = ["TABLE"]

aten: Any = torch.ops.aten
TABLE = Table("creation")


def _filled(b: Builder, value: Any) -> Any:
    spec = b.spec()
    if not isinstance(value, (bool, int, float, IndexExpr, Val)) or not fits(value, spec.dtype):
        return DECLINED
    return b.map(lambda p: operand(value, p, compute_type(spec.dtype)), spec)


@TABLE.add(aten.full.default)
def _full(b: Builder, size: Any, fill_value: Any, **_: Any) -> Any:
    return _filled(b, fill_value)


@TABLE.add(aten.full_like.default)
def _full_like(b: Builder, self: Tensor, fill_value: Any, **_: Any) -> Any:
    return _filled(b, fill_value)


@TABLE.add(aten.new_full.default)
def _new_full(b: Builder, self: Tensor, size: Any, fill_value: Any, **_: Any) -> Any:
    return _filled(b, fill_value)


@TABLE.add(aten.scalar_tensor.default)
def _scalar_tensor(b: Builder, s: Any, **_: Any) -> Any:
    return _filled(b, s)


def _zeros(b: Builder, *_: Any, **__: Any) -> Any:
    return _filled(b, 0)


def _ones(b: Builder, *_: Any, **__: Any) -> Any:
    return _filled(b, 1)


def _empty(b: Builder, *_: Any, **__: Any) -> Any:
    """Zeros are as good as any values, and the same in every run. Deterministic mode promises others: ATen fills."""
    return DECLINED if b.deterministic else _filled(b, 0)


TABLE.put([aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default], _zeros)
TABLE.put(
    [
        aten.empty.memory_format,
        aten.empty_like.default,
        aten.empty_strided.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
    ],
    _empty,
)
TABLE.put([aten.ones.default, aten.ones_like.default, aten.new_ones.default], _ones)


def _range(b: Builder, start: Any, step: Any) -> Any:
    spec = b.spec()
    if isinstance(start, (int, IndexExpr)) and isinstance(step, (int, IndexExpr)):
        reach = lift(int(start) if isinstance(start, bool) else start) + spec.shape[0] * step
        exact_in_float32 = reach.lo > -(1 << 24) and reach.hi < 1 << 24
        if spec.dtype not in FLOATS or exact_in_float32:
            return b.map(lambda p: index_value(p[0] * step + start), spec)
    if any(not isinstance(x, (bool, int, float)) for x in (start, step)):
        return DECLINED
    if spec.dtype not in FLOATS and not spec.dtype.endswith("16"):
        return DECLINED

    def body(p: Any) -> Val:  # ATen counts in float64
        steps = m.binary("mul", cast(index_value(p[0]), "f64"), float(step))
        return m.binary("add", steps, float(start))

    return b.map(body, spec)


@TABLE.add(aten.arange.default)
def _arange(b: Builder, end: Any, **_: Any) -> Any:
    return _range(b, 0, 1)


@TABLE.add(aten.arange.start)
def _arange_start(b: Builder, start: Any, end: Any, **_: Any) -> Any:
    return _range(b, start, 1)


@TABLE.add(aten.arange.start_step)
def _arange_start_step(b: Builder, start: Any, end: Any, step: Any = 1, **_: Any) -> Any:
    return _range(b, start, step)


@TABLE.add(aten.eye.default, aten.eye.m)
def _eye(b: Builder, n: Any, m_: Any = None, **_: Any) -> Any:
    spec = b.spec()
    dtype = compute_type(spec.dtype)

    def body(p: Any) -> Val:
        same = val("eq", index_value(p[0]), index_value(p[1]), dtype="b8")
        return m.select(same, constant(1, dtype), constant(0, dtype))

    return b.map(body, spec)
