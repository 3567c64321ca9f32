"""The head of every emitted module: imports, and the helpers that op texts call."""

from __future__ import annotations

__all__ = ["PRELUDE"]

PRELUDE = """\
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def float_mod(a, b):
    r = libdevice.fmod(a, b)
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def float_floordiv(a, b):
    r = libdevice.fmod(a, b)
    q = (a - r) / b
    q = tl.where((r != 0) & ((r < 0) != (b < 0)), q - 1, q)
    nearest = tl.floor(q)
    nearest = tl.where(q - nearest > 0.5, nearest + 1, nearest)
    return tl.where(b == 0, a / b, tl.where(q == 0, libdevice.copysign(q * 0, a / b), nearest))


@triton.jit
def integer_floordiv(a, b):
    q = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), q - 1, q)


@triton.jit
def integer_mod(a, b):
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def integer_pow(a, b):
    one = a * 0 + b * 0 + 1
    result, square, left = one, a * one, b * one
    for _ in range(63):
        result = tl.where((left & 1) != 0, result * square, result)
        square = square * square
        left = left >> 1
    inverse = tl.where(a + 1 == 0, tl.where((b & 1) != 0, a, one), one * 0)
    return tl.where(b < 0, tl.where(a == 1, one, inverse), result)


# Extrema of floats by those of their bits. As signed numbers these rise with the floats that have no sign bit, as
# unsigned ones they fall with those that have one. NAN is beyond the infinity that wins, so it stays.
@triton.jit
def float_atomic_max(pointer, value, mask, SIGNED: tl.constexpr, UNSIGNED: tl.constexpr, NAN: tl.constexpr):
    bits = tl.where(value != value, NAN, value.to(SIGNED, bitcast=True)).to(SIGNED)
    tl.atomic_max(pointer.to(tl.pointer_type(SIGNED), bitcast=True), bits, mask & (bits >= 0), sem="relaxed")
    unsigned = bits.to(UNSIGNED, bitcast=True)
    tl.atomic_min(pointer.to(tl.pointer_type(UNSIGNED), bitcast=True), unsigned, mask & (bits < 0), sem="relaxed")


@triton.jit
def float_atomic_min(pointer, value, mask, SIGNED: tl.constexpr, UNSIGNED: tl.constexpr, NAN: tl.constexpr):
    bits = tl.where(value != value, NAN, value.to(SIGNED, bitcast=True)).to(SIGNED)
    tl.atomic_min(pointer.to(tl.pointer_type(SIGNED), bitcast=True), bits, mask & (bits >= 0), sem="relaxed")
    unsigned = bits.to(UNSIGNED, bitcast=True)
    tl.atomic_max(pointer.to(tl.pointer_type(UNSIGNED), bitcast=True), unsigned, mask & (bits < 0), sem="relaxed")


@triton.jit
def half_gelu(x):
    u = tl.minimum(x * x, 30.25)
    p = tl.fma(u, 5.17340999e-09, -3.85581198e-07)
    p = tl.fma(p, u, 1.14920671e-05)
    p = tl.fma(p, u, -0.000159884938)
    p = tl.fma(p, u, -9.32560472e-05)
    p = tl.fma(p, u, 0.104834313)
    p = tl.fma(p, u, 2.30220952)
    return libdevice.fast_dividef(x, 1.0 + tl.exp2(-x * p))


@triton.jit
def quotient(a, b, inverse):
    q = a * inverse
    return tl.fma(tl.fma(-q, b, a), inverse, q)


@triton.jit
def fold_sum(a, b):
    return a + b


@triton.jit
def fold_prod(a, b):
    return a * b


@triton.jit
def fold_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def fold_min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def fold_any(a, b):
    return a | b


@triton.jit
def fold_all(a, b):
    return a & b


@triton.jit
def first_max(a, b, earlier):
    return (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & earlier)


@triton.jit
def first_min(a, b, earlier):
    return (a < b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & earlier)


@triton.jit
def beyond_max(a, b):
    return (a > b) | ((a != a) & (b == b))


@triton.jit
def beyond_min(a, b):
    return (a < b) | ((a != a) & (b == b))


@triton.jit
def same(a, b):
    return (a == b) | ((a != a) & (b != b))


@triton.jit
def better_max(a, i, b, j):
    wins = first_max(a, b, i < j)
    return tl.where(wins, a, b), tl.where(wins, i, j)


@triton.jit
def better_min(a, i, b, j):
    wins = first_min(a, b, i < j)
    return tl.where(wins, a, b), tl.where(wins, i, j)
"""
