"""Element numbers in strided buffers, and what is asked of them when loops are arranged."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_loops.index import ONE, ZERO, IndexExpr, lift
from intarsia_loops.program import Val

__all__ = ["address", "divides_axes", "indices_of", "product"]


def address(index: Sequence[IndexExpr], strides: Sequence[IndexExpr]) -> IndexExpr:
    """Return the element number of an index of a buffer with these strides."""
    total = ZERO
    for position, stride in zip(index, strides, strict=True):
        total = total + lift(position) * stride
    return total


def product(extents: Sequence[IndexExpr]) -> IndexExpr:
    """Return how many points a space with these extents has."""
    total = ONE
    for extent in extents:
        total = total * extent
    return total


def divides_axes(expr: IndexExpr) -> bool:
    """Tell whether an expression has a quotient or remainder that differs between points.

    Example:
        >>> from intarsia_loops.index import axis, size_symbol
        >>> i, n = lift(axis("i", 100)), size_symbol("s0")
        >>> divides_axes(i // n), divides_axes(i * (n // 3))
        (True, False)
    """
    return any(a.kind in "/%" and bool(a.a.axes() | a.b.axes()) for a in expr.atoms())


def indices_of(v: Val) -> tuple[IndexExpr, ...]:
    """Return the index expressions that a value is written with, without those of its operands."""
    if v.op == "index":
        return v.args
    return tuple(e for e in v.args[1] if isinstance(e, IndexExpr)) if v.op in ("load", "gather") else ()
