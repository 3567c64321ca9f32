"""Scalar formulas: small functions from Vals to Vals that lowerings put into bodies."""

from __future__ import annotations

import math

from intarsia_ir.errors import InvalidArgumentError
from intarsia_loops.program import Val, cast, val
from intarsia_lowering._values import constant

__all__ = [
    "and_",
    "binary",
    "clamped",
    "compare",
    "gelu",
    "log1p_exp",
    "negative",
    "not_",
    "number",
    "rounded_to",
    "select",
    "sigmoid",
    "square",
    "unary",
]


def unary(op: str, a: Val) -> Val:
    """Return `op(a)` in the type of `a`."""
    return val(op, a, dtype=a.dtype)


def binary(op: str, a: Val, b: Val | bool | int | float) -> Val:
    """Return `op(a, b)` in the type of `a`; a number becomes a constant of that type."""
    return val(op, a, b if isinstance(b, Val) else constant(b, a.dtype), dtype=a.dtype)


def compare(op: str, a: Val, b: Val | int | float) -> Val:
    """Return the predicate `op(a, b)`."""
    return val(op, a, b if isinstance(b, Val) else constant(b, a.dtype), dtype="b8")


def select(condition: Val, a: Val | bool | int | float, b: Val | bool | int | float) -> Val:
    """Return `a` where the condition holds, else `b`; decided now when the condition is a constant.

    A number becomes a constant of the other one's type; two numbers have no type.
    """
    like = next((x for x in (a, b) if isinstance(x, Val)), None)
    if like is None:
        raise InvalidArgumentError(
            f"a choice between the numbers {a} and {b}: neither has a type",
            code="loops.lowering",
            hints=("make one of them a value: number(1.0, like=value)",),
        )
    first, second = (x if isinstance(x, Val) else constant(x, like.dtype) for x in (a, b))
    if condition.op == "const":
        return first if condition.args[0] else second
    return val("where", condition, first, second, dtype=first.dtype)


def not_(a: Val) -> Val:
    """Return the logical complement."""
    return val("not", a, dtype="b8")


def and_(a: Val, b: Val) -> Val:
    """Return the conjunction; a constant operand is decided now."""
    for x, y in ((a, b), (b, a)):
        if x.op == "const":
            return y if x.args[0] else x
    return val("and", a, b, dtype="b8")


def number(value: float, like: Val) -> Val:
    """Return a constant of the type of `like`."""
    return constant(value, like.dtype)


def negative(a: Val) -> Val:
    """Return `-a`."""
    return unary("neg", a)


def rounded_to(a: Val, dtype: str) -> Val:
    """Return `a` as an element of `dtype` would hold it, in the type of `a`."""
    return cast(cast(a, dtype), a.dtype)


def square(a: Val) -> Val:
    """Return `a * a`."""
    return binary("mul", a, a)


def sigmoid(a: Val) -> Val:
    """Return 1 / (1 + e**-a)."""
    return binary("div", number(1.0, a), binary("add", unary("exp", negative(a)), 1.0))


def clamped(a: Val, low: float, high: float) -> Val:
    """Return `a` limited to [low, high]; NaN stays NaN."""
    return binary("min", binary("max", a, low), high)


def log1p_exp(a: Val) -> Val:
    """Return log(1 + e**a)."""
    return unary("log1p", unary("exp", a))


def gelu(a: Val, approximate: str, *, nan_at_infinity: bool = False) -> Val:
    """Return the Gaussian error linear unit, exact or by its tanh approximation, as ATen writes them.

    `nan_at_infinity`: as oneDNN computes the exact one with AVX-512.
    """
    half = binary("mul", a, 0.5)
    if approximate == "tanh":
        cube = binary("mul", square(a), a)
        inner = binary("mul", binary("add", a, binary("mul", cube, 0.044715)), math.sqrt(2.0 / math.pi))
        return binary("mul", half, binary("add", unary("tanh", inner), 1.0))
    share = binary("add", unary("erf", binary("mul", a, math.sqrt(0.5))), 1.0)
    if nan_at_infinity:
        share = binary("sub", share, binary("sub", a, a))  # 0, or NaN for an infinity
    return binary("mul", half, share)
