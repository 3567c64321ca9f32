"""Index expressions as Triton text, and addresses in buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from intarsia_loops.index import Atom, IndexExpr, lift

__all__ = ["address", "index_text", "product"]


def index_text(expr: IndexExpr, names: Mapping[Atom, str]) -> str:
    """Return an index expression over the names of its axes; size symbols keep their own names.

    Quotients and remainders are of values that are never negative, so C's division is Python's.
    """
    terms = []
    for monomial, coefficient in expr.terms:
        factors = [_atom_text(a, names) for a in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        terms.append(" * ".join(factors))
    return " + ".join(terms) if terms else "0"


def address(index: Sequence[IndexExpr], strides: Sequence[IndexExpr]) -> IndexExpr:
    """Return the element offset of an index in a buffer."""
    total = lift(0)
    for position, stride in zip(index, strides, strict=True):
        total = total + position * stride
    return total


def product(extents: Sequence[IndexExpr]) -> IndexExpr:
    """Return the number of points of some axes."""
    total = lift(1)
    for extent in extents:
        total = total * extent
    return total


def _atom_text(atom: Atom, names: Mapping[Atom, str]) -> str:
    if atom.kind == "axis":
        return names[atom]
    if atom.kind == "sym":
        return atom.key
    operator = "//" if atom.kind == "/" else "%"
    return f"(({index_text(atom.a, names)}) {operator} ({index_text(atom.b, names)}))"
