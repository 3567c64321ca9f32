"""Random ops as nests (`rng="philox"`): a seed drawn from torch's generator in program order, and Philox from there.

The seed is an extern call of `aten.randint`, so a call draws anew and `torch.manual_seed` makes it repeatable; the
numbers are of the same distributions as eager's, but not eager's numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from intarsia_loops.index import IndexExpr, lift, row_major
from intarsia_loops.ops import FLOATS, HALVES
from intarsia_loops.program import Val, cast, index_value, load, val
from intarsia_lowering import _math as m
from intarsia_lowering import philox
from intarsia_lowering._builder import Builder
from intarsia_lowering._table import DECLINED, Table
from intarsia_lowering._values import Point, Tensor, compute_type, constant, read

__all__ = ["TABLE"]

aten: Any = torch.ops.aten
TABLE = Table("random")
_SEEDS = (1 << 63) - 1


def _words(b: Builder, shape: tuple[IndexExpr, ...]) -> Callable[[Point], tuple[Val, ...]]:
    """Draw a seed and return the random words of each point of a shape."""
    seed = b.call(aten.randint.low, (0, _SEEDS, ()), b.temp_spec((), "i64"), "seed")

    def at(p: Point) -> tuple[Val, ...]:
        number = lift(0)
        for position, stride in zip(p, row_major(shape), strict=True):
            number = number + position * stride
        return philox.words(load(seed.buffer, (), "i64"), index_value(number))

    return at


def _is_float(dtype: str) -> bool:
    return dtype in FLOATS or dtype in HALVES


def _uniform(b: Builder, *_: Any, **__: Any) -> Any:
    spec = b.spec()
    if not _is_float(spec.dtype):
        return DECLINED
    words = _words(b, spec.shape)
    if spec.dtype in HALVES:  # fewer bits than the type has, so that 1 is never rounded to
        kept = {"bf16": 8, "f16": 11}[spec.dtype]
        return b.map(lambda p: _few_bits(words(p)[0], kept))
    return b.map(lambda p: philox.uniform(words(p), spec.dtype))


def _few_bits(word: Val, bits: int) -> Val:
    kept = cast(val("shr", word, constant(32 - bits, "i64"), dtype="i64"), "f32")
    return val("mul", kept, constant(2.0**-bits, "f32"), dtype="f32")


def _normal(b: Builder, *_: Any, **__: Any) -> Any:
    spec = b.spec()
    if not _is_float(spec.dtype):
        return DECLINED
    words = _words(b, spec.shape)

    return b.map(lambda p: philox.normal(words(p), compute_type(spec.dtype)))


TABLE.put([aten.rand.default, aten.rand_like.default], _uniform)
TABLE.put([aten.randn.default, aten.randn_like.default], _normal)


@TABLE.add(aten.bernoulli.p)
def _bernoulli_p(b: Builder, self: Tensor, p: Any, *, generator: Any = None) -> Any:
    if generator is not None or not isinstance(p, (int, float)) or not 0 <= p <= 1:
        return DECLINED
    words, dtype = _words(b, self.shape), compute_type(b.spec().dtype)
    return b.map(lambda at: cast(_happens(words(at)[0], constant(float(p), "f32")), dtype))


@TABLE.add(aten.native_dropout.default)
def _native_dropout(b: Builder, input: Tensor, p: Any, train: bool | None) -> Any:
    if train is False or not isinstance(p, (int, float)) or not 0 <= p <= 1 or not _is_float(input.dtype):
        return DECLINED
    compute, kept = compute_type(input.dtype), 1.0 - float(p)
    words = _words(b, input.shape)
    mask = b.map(lambda at: _happens(words(at)[0], constant(kept, "f32")), b.spec(1), "mask")
    scale = constant(1.0 / kept if kept else 0.0, compute)

    def scaled(at: Point) -> Val:
        value = m.binary("mul", cast(read(input, at), compute), cast(read(mask, at), compute))
        return m.binary("mul", value, scale)

    return b.map(scaled, b.spec(0)), mask


def _happens(word: Val, probability: Val) -> Val:
    return val("lt", philox.uniform((word,)), probability, dtype="b8")
