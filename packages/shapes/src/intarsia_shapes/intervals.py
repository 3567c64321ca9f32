"""Bounds of symbolic integer and real expressions, by interval arithmetic.

An interval is `(low, high)`, both inclusive; an unknown end is an infinity. Bounds are sound, not tight.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy
from torch.utils._sympy.functions import (
    CeilToInt,
    FloatTrueDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    IsNonOverlappingAndDenseIndicator,
    Max,
    Min,
    Mod,
    PythonMod,
    RoundToInt,
    ToFloat,
    TruncToInt,
)

__all__ = ["INF", "Interval", "Ranges", "interval"]

INF = math.inf
_LARGE = 1e300
Interval = tuple[float, float]
Ranges = Callable[[Any], Interval]

_ROUNDING: dict[Any, Callable[[float], float]] = {
    ToFloat: lambda v: v,
    FloorToInt: math.floor,
    CeilToInt: math.ceil,
    TruncToInt: math.trunc,
    RoundToInt: round,
}


def interval(expr: Any, ranges: Ranges) -> Interval:
    """Return bounds of a SymPy expression.

    Args:
        expr: Integer or real expression over size symbols.
        ranges: Bounds of each symbol.

    Example:
        >>> s = sympy.Symbol("s0", integer=True, positive=True)
        >>> interval(2 * s + 1, lambda _: (2, 10))
        (5, 21)
    """
    if expr.is_Integer:
        return int(expr), int(expr)
    if expr.is_Symbol:
        return ranges(expr)
    if expr.is_Rational or expr.is_Float:
        return float(expr), float(expr)
    if expr.is_Add:
        return _sum(expr, ranges)
    rule = _RULES.get(expr.func)
    if rule is not None:
        return rule(expr, ranges)
    return -INF, INF


def _sum(expr: Any, ranges: Ranges) -> Interval:
    low: float = 0
    high: float = 0
    for term in expr.args:
        term_low, term_high = interval(term, ranges)
        low, high = low + term_low, high + term_high
        if low == -INF and high == INF:
            break
    # inf - inf: nothing is known of that end
    return (-INF if math.isnan(low) else low), (INF if math.isnan(high) else high)


def _product(expr: Any, ranges: Ranges) -> Interval:
    low: float = 1
    high: float = 1
    for factor in expr.args:
        f_low, f_high = interval(factor, ranges)
        corners = (_times(low, f_low), _times(low, f_high), _times(high, f_low), _times(high, f_high))
        low, high = min(corners), max(corners)
    return low, high


def _times(a: float, b: float) -> float:
    # 0 * inf is 0 here: the factor is exactly zero, whatever the other one is
    return 0 if a == 0 or b == 0 else a * b


def _power(expr: Any, ranges: Ranges) -> Interval:
    base, exponent = expr.args
    if not (exponent.is_Integer and int(exponent) > 0):
        return -INF, INF
    low, high = interval(base, ranges)
    n = int(exponent)
    if low >= 0 or n % 2:
        return low**n, high**n
    return 0, max(low**n, high**n)


def _floordiv(expr: Any, ranges: Ranges) -> Interval:
    (a_low, a_high), (b_low, b_high) = (interval(a, ranges) for a in expr.args)
    if b_low <= 0:
        return -INF, INF
    corners = [_quotient(a, b) for a in (a_low, a_high) for b in (b_low, b_high)]
    return min(corners), max(corners)


def _division(expr: Any, ranges: Ranges) -> Interval:
    (a_low, a_high), (b_low, b_high) = (interval(a, ranges) for a in expr.args)
    if b_low <= 0 or max(abs(a_low), abs(a_high), b_low) > _LARGE:
        return -INF, INF
    corners = [a / b for a in (a_low, a_high) for b in (b_low, b_high)]
    return min(corners), max(corners)


def _quotient(a: float, b: float) -> float:
    if abs(b) == INF:
        return 0 if abs(a) == INF or (a >= 0) == (b > 0) else -1
    if abs(a) == INF:
        return a if b > 0 else -a
    return a // b


def _remainder(expr: Any, ranges: Ranges) -> Interval:
    (a_low, a_high), (b_low, b_high) = (interval(a, ranges) for a in expr.args)
    if b_low <= 0:
        return -INF, INF
    return 0, min(b_high - 1, a_high if a_low >= 0 else INF)


def _maximum(expr: Any, ranges: Ranges) -> Interval:
    bounds = [interval(a, ranges) for a in expr.args]
    return max(b[0] for b in bounds), max(b[1] for b in bounds)


def _minimum(expr: Any, ranges: Ranges) -> Interval:
    bounds = [interval(a, ranges) for a in expr.args]
    return min(b[0] for b in bounds), min(b[1] for b in bounds)


def _rounded(expr: Any, ranges: Ranges) -> Interval:
    low, high = interval(expr.args[0], ranges)
    rounding = _ROUNDING[expr.func]
    return (low if abs(low) == INF else rounding(low)), (high if abs(high) == INF else rounding(high))


def _piecewise(expr: Any, ranges: Ranges) -> Interval:
    bounds = [interval(branch.expr, ranges) for branch in expr.args]
    return min(b[0] for b in bounds), max(b[1] for b in bounds)


_RULES: dict[Any, Callable[[Any, Ranges], Interval]] = {
    sympy.Mul: _product,
    sympy.Pow: _power,
    FloorDiv: _floordiv,
    IntTrueDiv: _division,
    FloatTrueDiv: _division,
    Mod: _remainder,
    PythonMod: _remainder,
    Max: _maximum,
    sympy.Max: _maximum,
    Min: _minimum,
    sympy.Min: _minimum,
    IsNonOverlappingAndDenseIndicator: lambda expr, ranges: (0, 1),
    sympy.Piecewise: _piecewise,
    **dict.fromkeys(_ROUNDING, _rounded),
}
