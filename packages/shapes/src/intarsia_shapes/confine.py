"""Integers of 64 bits: what kernels compute with, where Python's integers are exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from intarsia_shapes.intervals import INF, Interval, interval

__all__ = ["confine"]

_INT64 = 1 << 63
# no dimension of a tensor in use has as many elements, so products of two sizes are taken to fit
_LARGEST_SIZE = 1 << 31
# how many times its value of now a symbol may grow, as much as the expression allows
_GROWTH = (1 << 20, 1 << 12, 1 << 8, 1 << 4, 2)


def confine(number: torch.SymInt) -> bool:
    """Tell whether an integer fits 64 bits, relying on limits of its symbols where it wouldn't for all values of them.

    Args:
        number: Result of arithmetic on sizes and numbers of a `ShapeEnv`. Symbols without hints get no limits here.

    Returns:
        False: no limits that leave the symbols room make it fit. Nothing is relied on then.

    Example:
        >>> from intarsia_shapes import ShapeEnv, freeze
        >>> env = ShapeEnv()
        >>> n = env.create_size(5, "n")
        >>> confine(n * 2), [str(f) for f in freeze(env).facts]
        (True, [])
        >>> confine(n * n * n * n)
        True
    """
    node = number.node
    env, expr = node.shape_env, node.expr
    ranges = env.knowledge.range_of()
    symbols = sorted(expr.free_symbols, key=str)
    hints = {s: env.size_hint(s) for s in symbols}
    if _fits(expr, {s: _usual(ranges(s), hints[s]) for s in symbols}):
        return True
    if None in hints.values():
        return False
    for growth in _GROWTH:
        limits = {s: min(ranges(s)[1], max(2, abs(hints[s])) * growth) for s in symbols}
        if _fits(expr, {s: (ranges(s)[0], limits[s]) for s in symbols}):
            for s in symbols:
                bool(env.create_symintnode(s, hint=hints[s]) <= limits[s])
            return True
    return False


def _fits(expr: Any, ranges: Mapping[Any, Interval]) -> bool:
    low, high = interval(expr, ranges.__getitem__)
    return low >= -_INT64 and high < _INT64


def _usual(bounds: Interval, now: int | None) -> Interval:
    return bounds[0], max(_LARGEST_SIZE, now or 0) if bounds[1] == INF else bounds[1]
