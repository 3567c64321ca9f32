"""Index expressions as Triton text, and addresses in buffers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from intarsia_loops.index import Atom, IndexExpr, lift

__all__ = ["index_text", "needs_64_bits"]

_NO_NAMES: Mapping[Atom, str] = MappingProxyType({})


def index_text(expr: IndexExpr, names: Mapping[Atom, str], flat: Mapping[Atom, str] = _NO_NAMES) -> str:
    """Return an index expression over the names of its axes; size symbols keep their own names.

    Triton's quotients round to zero and those of index expressions to minus infinity, which differs below zero.

    Args:
        expr: The expression.
        names: Axis -> name of its index.
        flat: Axis -> name of a number that has the same remainder by the axis's extent, and so by what divides it.
            Triton doesn't see that a remainder of a remainder runs along memory.
    """
    terms = []
    for monomial, coefficient in expr.terms:
        factors = [_atom_text(a, names, flat) for a in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        terms.append(" * ".join(factors))
    return " + ".join(terms) if terms else "0"


def needs_64_bits(expr: IndexExpr) -> bool:
    """Tell whether an expression without size symbols, or a part of it, may be beyond what 32 bits hold.

    Beside size symbols, and along axes of unknown size, indices have 64 bits anyway.

    Example:
        >>> from intarsia_loops.index import axis
        >>> i = lift(axis("i", 100))
        >>> [needs_64_bits(e) for e in (i * (1 << 24), i * (1 << 25), (i * (1 << 25) + 1) // (1 << 26))]
        [False, True, True]
    """
    if expr.symbols() or any(a.extent.const() is None for a in expr.axes()):
        return False
    largest = 0
    for monomial, coefficient in expr.terms:
        largest += abs(coefficient) * math.prod(max(abs(a.lo), abs(a.hi)) for a in monomial)
    inner = (part for a in expr.atoms() if a.kind in "/%" for part in (a.a, a.b))
    return largest >= 1 << 31 or any(map(needs_64_bits, inner))


def _atom_text(atom: Atom, names: Mapping[Atom, str], flat: Mapping[Atom, str]) -> str:
    if atom.kind == "axis":
        return names[atom]
    if atom.kind == "sym":
        return atom.key
    if atom.kind == "%":
        axis = next((a for a in atom.a.axes() if atom.a is lift(a)), None)
        extent, divisor = (axis.extent.const() if axis is not None else None), atom.b.const()
        if axis is not None and axis in flat and extent and divisor and extent % divisor == 0:
            return f"({flat[axis]} % {divisor})"
    a, b = index_text(atom.a, names, flat), index_text(atom.b, names, flat)
    if atom.a.lo < 0:
        return f"{'integer_floordiv' if atom.kind == '/' else 'integer_mod'}({a}, {b})"
    return f"(({a}) {'//' if atom.kind == '/' else '%'} ({b}))"
