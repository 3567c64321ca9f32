"""Index expressions at positions that may depend on data: expressions where none does, else Vals that compute them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from intarsia_loops.index import Atom, IndexExpr, atom_expr
from intarsia_loops.program import Val, const, index_value, val

__all__ = ["is_computable", "placed"]

Places = Mapping[Atom, IndexExpr | Val]


def is_computable(expressions: Iterable[IndexExpr]) -> bool:
    """Whether expressions can be computed from data: quotients and remainders are by numbers only."""
    return all(_is_plain(a) for e in expressions for monomial, _ in e.terms for a in monomial)


def placed(e: IndexExpr, places: Places) -> IndexExpr | Val:
    """Return `e` with positions for axes: an index expression when no position in it depends on data.

    Example:
        >>> from intarsia_loops.index import axis, lift
        >>> from intarsia_loops.program import load
        >>> i, j = axis("i", 4), axis("j", 4)
        >>> placed(lift(i) + 1, {i: lift(j)})
        1 + j
        >>> placed(lift(i) + 1, {i: load("n", (lift(j),), "i64")})
        add(i64(1), load(%n, j))
    """
    if any(isinstance(places.get(a), Val) for a in e.axes()):
        return _computed(e, places)
    return e.subst({a: i for a, i in places.items() if isinstance(i, IndexExpr)})


def _is_plain(a: Atom) -> bool:
    if a.kind in ("axis", "sym"):
        return True
    return (a.b.const() or 0) > 0 and all(_is_plain(inner) for monomial, _ in a.a.terms for inner in monomial)


def _computed(e: IndexExpr, places: Places) -> Val:
    total: Val | None = None
    for monomial, k in e.terms:
        term = const(k, "i64") if k != 1 or not monomial else None
        for a in monomial:
            factor = _atom_value(a, places)
            term = factor if term is None else val("mul", term, factor, dtype="i64")
        assert term is not None  # a monomial without atoms is its coefficient
        total = term if total is None else val("add", total, term, dtype="i64")
    return const(0, "i64") if total is None else total


def _atom_value(a: Atom, places: Places) -> Val:
    if a.kind in ("axis", "sym"):
        place = places.get(a)
        return place if isinstance(place, Val) else index_value(atom_expr(a) if place is None else place)
    divisor = const(a.b.const() or 1, "i64")
    return val("floordiv" if a.kind == "/" else "mod", _computed(a.a, places), divisor, dtype="i64")
