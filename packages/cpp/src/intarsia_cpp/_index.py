"""Index expressions as C text."""

from __future__ import annotations

from collections.abc import Callable

from intarsia_loops.index import Atom, IndexExpr

__all__ = ["c_text", "size_symbols"]


def c_text(expr: IndexExpr, name_of: Callable[[Atom], str]) -> str:
    """Return `expr` as a C expression of type i64.

    Args:
        expr: The expression.
        name_of: C variable of an axis or size symbol.
    """
    terms = [_product_text(monomial, k, name_of) for monomial, k in expr.terms]
    text = " + ".join(terms) or "0"
    return text if len(terms) < 2 else f"({text})"


def _product_text(monomial: tuple[Atom, ...], k: int, name_of: Callable[[Atom], str]) -> str:
    factors = [_atom_text(a, name_of) for a in monomial]
    if k != 1 or not factors:
        number = f"{k}LL" if abs(k) >= 1 << 31 else str(k)
        factors.insert(0, number if k >= 0 else f"({number})")
    return "*".join(factors)


def _atom_text(atom: Atom, name_of: Callable[[Atom], str]) -> str:
    if atom.kind not in ("/", "%"):
        return name_of(atom)
    a, b = c_text(atom.a, name_of), c_text(atom.b, name_of)
    if atom.kind == "%" and atom.b.const() is None:
        return f"near_mod({a}, {b})"
    if atom.a.lo < 0:  # C rounds to zero, index algebra to minus infinity
        return f"{'floor_div' if atom.kind == '/' else 'floor_mod'}({a}, {b})"
    return f"({a} {atom.kind} ({b}))" if "*" in b else f"({a} {atom.kind} {b})"


def size_symbols(expr: IndexExpr) -> set[str]:
    """Return the names of the size symbols in `expr`, also inside divisions and axis extents."""
    found: set[str] = set()
    for atom in expr.atoms():
        if atom.kind == "sym":
            found.add(atom.key)
        elif atom.kind in ("/", "%"):
            found |= size_symbols(atom.a) | size_symbols(atom.b)
    return found
