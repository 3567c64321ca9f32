"""Index expressions: integer polynomials over axes, size symbols, floor divisions and remainders.

Interned and simplified when built, so equality is identity and there is no `simplify` to call, or to forget. An
expression is a sorted tuple of (monomial, coefficient); a monomial is a sorted tuple of atoms, () for the constant
term; an atom is an axis, a size symbol, or a quotient or remainder of two expressions.

Laws, for b > 0 (every divisor in a program is a size or a step, hence positive):

    I1  (q*b + r) // b = q + r // b
    I2  (q*b + r) % b = r % b
    I3  r // b = 0  and  r % b = r            when 0 <= r < b
    I4  (a // b + s) // c = (a + s*b) // (b*c)
    I5  (k * (a % (b*c)) + s) % b = (k*a + s) % b
    I6  b * (a // b) + a % b = a              also scaled, and inside longer sums
    I7  an axis of extent 1 is 0

Order is by text, never by id or hash, so every printout and every generated source is the same in every process.
Tables of interned objects are weak: what no program refers to is freed.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from intarsia_loops._interning import InternTable

__all__ = [
    "INF",
    "ONE",
    "ZERO",
    "Atom",
    "IndexExpr",
    "atom_expr",
    "axis",
    "divides",
    "flat",
    "floordiv",
    "less",
    "lift",
    "lower",
    "mod",
    "row_major",
    "size_symbol",
    "unflat",
    "upper",
]

INF = 1 << 62
"""Bounds at and beyond +-INF mean unbounded."""

Monomial = tuple["Atom", ...]


class Atom:
    """An indivisible factor. Built by `axis`, `size_symbol`, `floordiv` and `mod`, which intern it.

    Attributes:
        kind: `"axis"`, `"sym"`, `"/"` or `"%"`.
        key: Its text, which also orders it.
        lo: Least value.
        hi: Greatest value, at most INF.
        a: Dividend of a quotient or remainder.
        b: Divisor of a quotient or remainder.
        extent: Number of values of an axis, which runs over 0 <= value < extent.
    """

    __slots__ = ("__weakref__", "a", "b", "extent", "hi", "key", "kind", "lo")

    kind: str
    key: str
    lo: int
    hi: int
    a: IndexExpr
    b: IndexExpr
    extent: IndexExpr

    def __init__(self, kind: str, key: str, lo: int, hi: int) -> None:
        self.kind, self.key, self.lo, self.hi = kind, key, lo, hi

    def __repr__(self) -> str:
        return self.key

    def __copy__(self) -> Atom:
        return self

    def __deepcopy__(self, memo: Any) -> Atom:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.kind == "axis":
            return axis, (self.key, self.extent)
        if self.kind == "sym":
            return _symbol, (self.key, self.lo, self.hi)
        return _quotient_or_remainder, (self.kind, self.a, self.b)


class IndexExpr:
    """An interned polynomial: `a == b` is `a is b`. Use the operators + - * // % with other expressions and ints.

    Attributes:
        terms: Sorted (monomial, coefficient) pairs, no coefficient 0.
        lo: Least value, at least -INF.
        hi: Greatest value, at most INF.

    Example:
        >>> i = lift(axis("i", 6))
        >>> (i * 4 + 3) // 4, (i * 4 + 3) % 4, i // 6
        (i, 3, 0)
        >>> 2 * (i // 2) + i % 2 is i
        True
    """

    __slots__ = ("__weakref__", "_axes", "_has_remainder", "_key", "hi", "lo", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    lo: int
    hi: int
    _key: str | None
    _axes: frozenset[Atom] | None
    _has_remainder: bool

    def __add__(self, other: IndexExpr | Atom | int) -> IndexExpr:
        return _add(self, other if type(other) is IndexExpr else lift(other), 1)

    __radd__ = __add__

    def __sub__(self, other: IndexExpr | Atom | int) -> IndexExpr:
        return _add(self, other if type(other) is IndexExpr else lift(other), -1)

    def __rsub__(self, other: int) -> IndexExpr:
        return _add(lift(other), self, -1)

    def __mul__(self, other: IndexExpr | Atom | int) -> IndexExpr:
        return _mul(self, other if type(other) is IndexExpr else lift(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: IndexExpr | Atom | int) -> IndexExpr:
        return floordiv(self, lift(other))

    def __mod__(self, other: IndexExpr | Atom | int) -> IndexExpr:
        return mod(self, lift(other))

    def __neg__(self) -> IndexExpr:
        return _mul(self, _MINUS_ONE)

    def const(self) -> int | None:
        """Return the value when it is known, else None."""
        terms = self.terms
        if not terms:
            return 0
        return terms[0][1] if len(terms) == 1 and not terms[0][0] else None

    def atoms(self) -> set[Atom]:
        """Return the atoms of all monomials; not those inside quotients and remainders."""
        return {a for m, _ in self.terms for a in m}

    def axes(self) -> frozenset[Atom]:
        """Return every axis that the value depends on, also inside // and %."""
        if self._axes is None:
            axes: set[Atom] = set()
            for a in self.atoms():
                if a.kind == "axis":
                    axes.add(a)
                elif a.kind in "/%":
                    axes |= a.a.axes() | a.b.axes()
            self._axes = frozenset(axes)
        return self._axes

    def symbols(self) -> set[str]:
        """Return the names of the size symbols in the expression, also inside // and %; not in extents of axes."""
        symbols: set[str] = set()
        for a in self.atoms():
            if a.kind == "sym":
                symbols.add(a.key)
            elif a.kind in "/%":
                symbols |= a.a.symbols() | a.b.symbols()
        return symbols

    def coef(self, axis: Atom) -> tuple[IndexExpr, IndexExpr] | None:
        """Return (c, rest) with self = c*axis + rest and axis in neither; None when it isn't affine in the axis."""
        if axis not in self.axes():
            return ZERO, self
        factor: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for m, k in self.terms:
            if axis in m:
                i = m.index(axis)
                m = m[:i] + m[i + 1 :]
                if axis in m:
                    return None
                factor[m] = k
            else:
                rest[m] = k
        c, r = _make(factor), _make(rest)
        return None if axis in c.axes() or axis in r.axes() else (c, r)

    def subst(self, env: Mapping[Atom, IndexExpr]) -> IndexExpr:
        """Return the expression with axes replaced, all at once."""
        if self.axes().isdisjoint(env):
            return self
        out = ZERO
        for m, k in self.terms:
            term = lift(k)
            for a in m:
                term = _mul(term, _replaced(a, env))
            out = _add(out, term, 1)
        return out

    def value(self, env: Mapping[Atom, int]) -> int:
        """Return the number at a point: `env` gives every axis and, by its atom, every size symbol."""
        total = 0
        for m, k in self.terms:
            for a in m:
                if a.kind in "/%":
                    x, y = a.a.value(env), a.b.value(env)
                    k *= x // y if a.kind == "/" else x % y
                else:
                    k *= env[a]
            total += k
        return total

    def __repr__(self) -> str:
        if self._key is None:
            self._key = " + ".join(_term_text(m, k) for m, k in self.terms) or "0"
        return self._key

    def __copy__(self) -> IndexExpr:
        return self

    def __deepcopy__(self, memo: Any) -> IndexExpr:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_terms, (self.terms,)


def _term_text(monomial: Monomial, k: int) -> str:
    return "*".join(([str(k)] if k != 1 or not monomial else []) + [a.key for a in monomial])


def _replaced(a: Atom, env: Mapping[Atom, IndexExpr]) -> IndexExpr:
    replacement = env.get(a)
    if replacement is not None:
        return replacement
    if a.kind == "/":
        return floordiv(a.a.subst(env), a.b.subst(env))
    return mod(a.a.subst(env), a.b.subst(env)) if a.kind == "%" else atom_expr(a)


# ---- interning ----------------------------------------------------------------------------------------------

_exprs: InternTable[IndexExpr] = InternTable()
_atoms: InternTable[Atom] = InternTable()
# What comes and goes all the time is kept for a while: equal layers of a model meet the same expressions again.
_recent: deque[IndexExpr] = deque(maxlen=8192)
_recent_ints: dict[int, IndexExpr] = {}  # emptied when it is full
_by_text = operator.attrgetter("key")


def _order(term: tuple[Monomial, int]) -> list[str]:
    return [a.key for a in term[0]]


def _make(coefficients: Mapping[Monomial, int]) -> IndexExpr:
    """The one expression with these coefficients; zeros are dropped."""
    terms = tuple(coefficients.items())
    if 0 in coefficients.values():
        terms = tuple([t for t in terms if t[1]])
    if len(terms) > 1:
        terms = tuple(sorted(terms, key=_order))
    ref = _exprs.refs.get(terms)
    expr = ref() if ref is not None else None
    return expr if expr is not None else _new(terms)


def _new(terms: tuple[tuple[Monomial, int], ...]) -> IndexExpr:
    e = IndexExpr()
    e.terms, e._key, e._axes = terms, None, None
    e.lo, e.hi = _bounds(terms)
    e._has_remainder = any(a.kind == "%" for m, _ in terms for a in m)
    e = _exprs.keep(terms, e)
    _recent.append(e)
    return e


def _from_terms(terms: tuple[tuple[Monomial, int], ...]) -> IndexExpr:
    return _make(dict(terms))


def _bounds(terms: Iterable[tuple[Monomial, int]]) -> tuple[int, int]:
    low = high = 0
    for m, k in terms:
        lo = hi = 1
        for a in m:
            if lo >= 0 and a.lo >= 0:
                lo, hi = lo * a.lo, hi * a.hi
            else:
                corners = (lo * a.lo, lo * a.hi, hi * a.lo, hi * a.hi)
                lo, hi = min(corners), max(corners)
            lo, hi = max(lo, -INF), min(hi, INF)
        low, high = (low + lo * k, high + hi * k) if k > 0 else (low + hi * k, high + lo * k)
    return max(low, -INF), min(high, INF)


def _known_atom(key: Any) -> Atom | None:
    ref = _atoms.refs.get(key)
    return ref() if ref is not None else None


# ---- leaves -------------------------------------------------------------------------------------------------


def lift(v: IndexExpr | Atom | int) -> IndexExpr:
    """Return an int or an atom as an expression; an expression as it is."""
    if isinstance(v, IndexExpr):
        return v
    if isinstance(v, Atom):
        return atom_expr(v)
    number = int(v)
    expr = _recent_ints.get(number)
    if expr is None:
        if len(_recent_ints) >= 4096:
            _recent_ints.clear()
        expr = _recent_ints[number] = _make({(): number})
    return expr


def atom_expr(a: Atom) -> IndexExpr:
    """Return an atom as an expression; 0 for an axis of extent 1, which has no other value."""
    if a.kind == "axis" and a.extent is ONE:
        return ZERO
    terms = (((a,), 1),)
    ref = _exprs.refs.get(terms)
    expr = ref() if ref is not None else None
    return expr if expr is not None else _new(terms)


def axis(name: str, extent: IndexExpr | int) -> Atom:
    """Return the loop variable of this name in [0, extent).

    Example:
        >>> axis("i0", 8) is axis("i0", 8), axis("i0", 8) is axis("i0", 9)
        (True, False)
    """
    extent = lift(extent)
    key = ("axis", name, extent)
    atom = _known_atom(key)
    if atom is None:
        atom = Atom("axis", name, 0, max(extent.hi - 1, 0))
        atom.extent = extent
        atom = _atoms.keep(key, atom)
    return atom


def size_symbol(name: str, lo: int = 2, hi: int = INF) -> IndexExpr:
    """Return the size symbol of this name, which has a value in [lo, hi].

    Equal names with different ranges are different symbols, which a program must not mix.
    """
    return atom_expr(_symbol(name, lo, hi))


def _symbol(name: str, lo: int, hi: int) -> Atom:
    key = ("sym", name, lo, hi)
    return _known_atom(key) or _atoms.keep(key, Atom("sym", name, lo, hi))


def _quotient_or_remainder(kind: str, a: IndexExpr, b: IndexExpr) -> Atom:
    key = (kind, a, b)
    atom = _known_atom(key)
    if atom is None:
        sign, at_least_one = ("//" if kind == "/" else "%"), max(b.lo, 1)
        if kind == "%":
            lo, hi = 0, max(b.hi - 1, 0)
        else:
            lo = a.lo // (max(b.hi, 1) if a.lo >= 0 else at_least_one)
            hi = a.hi // (at_least_one if a.hi >= 0 else max(b.hi, 1))
        atom = Atom(kind, f"(({a!r}) {sign} ({b!r}))", max(lo, -INF), min(hi, INF))
        atom.a, atom.b = a, b
        atom = _atoms.keep(key, atom)
    return atom


# ---- arithmetic ---------------------------------------------------------------------------------------------


def _add(x: IndexExpr, y: IndexExpr, sign: int) -> IndexExpr:
    """x + sign * y"""
    if not y.terms:
        return x
    total = dict(x.terms)
    for m, k in y.terms:
        total[m] = total.get(m, 0) + sign * k
    if (x._has_remainder or y._has_remainder) and len(total) > 1:
        return _join_remainders(total)
    return _make(total)


def _join_remainders(total: dict[Monomial, int]) -> IndexExpr:
    """Law I6 wherever it applies: k*rest*(a % b) + k*rest*b*(a // b) = k*rest*a."""
    for m, k in total.items():
        for position, a in enumerate(m):
            if a.kind != "%" or not k:
                continue
            rest = _make({m[:position] + m[position + 1 :]: k})
            part = _mul(_mul(rest, a.b), floordiv(a.a, a.b))
            if part.terms and all(total.get(n) == c for n, c in part.terms):
                left = {n: c for n, c in total.items() if n is not m}
                for n, _ in part.terms:
                    del left[n]
                return _add(_make(left), _mul(rest, a.a), 1)
    return _make(total)


def _mul(x: IndexExpr, y: IndexExpr) -> IndexExpr:
    if x is ONE:
        return y
    if y is ONE:
        return x
    product: dict[Monomial, int] = {}
    for m, k in x.terms:
        for n, c in y.terms:
            mn = tuple(sorted(m + n, key=_by_text)) if m and n else m or n
            product[mn] = product.get(mn, 0) + k * c
    return _make(product)


def floordiv(a: IndexExpr, b: IndexExpr) -> IndexExpr:
    """Return a // b for b > 0; 0 for b = 0, which only the sizes of tensors without elements are."""
    if b is ONE:
        return a
    if b is ZERO:
        return ZERO
    x, y = a.const(), b.const()
    if x is not None and y:
        return lift(x // y)
    q, r = _divide(a, b)  # I1
    if less(r, b):  # I3
        return q
    inner = _plain_quotient(r)
    if inner is not None:  # I4
        rest = _add(r, atom_expr(inner), -1)
        return q + floordiv(_add(inner.a, _mul(rest, inner.b), 1), _mul(inner.b, b))
    return q + atom_expr(_quotient_or_remainder("/", r, b))


def mod(a: IndexExpr, b: IndexExpr) -> IndexExpr:
    """Return a % b for b > 0, which is in [0, b) also for negative a; 0 for b = 0."""
    if b is ONE or b is ZERO:
        return ZERO
    _, r = _divide(a, b)  # I2
    if less(r, b):  # I3
        return r
    if r._has_remainder and (simpler := _without_remainders(r, b)) is not r:  # I5
        return mod(simpler, b)
    return atom_expr(_quotient_or_remainder("%", r, b))


def _plain_quotient(e: IndexExpr) -> Atom | None:
    """A quotient that is a term of its own, with coefficient 1."""
    for m, k in e.terms:
        if k == 1 and len(m) == 1 and m[0].kind == "/":
            return m[0]
    return None


def _without_remainders(e: IndexExpr, b: IndexExpr) -> IndexExpr:
    """The same value modulo b, with every factor a % (b*c) replaced by a."""
    for m, k in e.terms:
        for position, a in enumerate(m):
            if a.kind == "%" and _divide(a.b, b)[1] is ZERO:
                rest = _make({m[:position] + m[position + 1 :]: k})
                return _without_remainders(_add(_add(e, _make({m: k}), -1), _mul(rest, a.a), 1), b)
    return e


def divides(b: IndexExpr, e: IndexExpr) -> bool:
    """Tell whether `e` is a multiple of `b` by its form.

    Example:
        >>> n, m = size_symbol("n"), size_symbol("m")
        >>> divides(n, 4 * n * m), divides(n, n + m)
        (True, False)
    """
    return _divide(e, b)[1] is ZERO


def _divide(e: IndexExpr, b: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
    """(q, r) with e = q*b + r, term by term; when b is a sum, only as a whole multiple."""
    if e is b:
        return ONE, ZERO
    if len(b.terms) != 1:
        return _divide_by_sum(e, b)
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    bm, bk = b.terms[0]
    for m, k in e.terms:
        left = list(m)
        try:
            for a in bm:
                left.remove(a)
        except ValueError:
            rest[m] = k
            continue
        if k // bk:
            quotient[tuple(left)] = k // bk
        if k % bk:
            rest[m] = k % bk
    return _make(quotient), _make(rest)


def _divide_by_sum(e: IndexExpr, b: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
    """e = q*b for a monomial q, or (0, e): sizes such as (s0 + 1)*4 divided by s0 + 1."""
    if not b.terms or not e.terms or len(e.terms) < len(b.terms):
        return ZERO, e
    q, r = _divide(_make(dict(e.terms[-1:])), _make(dict(b.terms[-1:])))
    return (q, ZERO) if r is ZERO and q.terms and _mul(q, b) is e else (ZERO, e)


# ---- bounds -------------------------------------------------------------------------------------------------


def less(r: IndexExpr, b: IndexExpr) -> bool:
    """Tell whether 0 <= r < b is proven, for all values of axes and size symbols.

    Example:
        >>> n = size_symbol("n")
        >>> i = lift(axis("i", n))
        >>> less(i, n), less(n - 1 - i, n), less(i + 1, n)
        (True, True, False)
    """
    if r.lo < 0 and not _is_non_negative(r):
        return False
    if r.hi < b.lo:
        return True
    quotient = _plain_quotient(r)
    if quotient is not None and len(r.terms) == 1:  # a // c < b  is  a < b*c
        return less(quotient.a, _mul(quotient.b, b))
    top = upper(r)
    return top is not None and (b - 1 - top).lo >= 0


def _is_non_negative(r: IndexExpr) -> bool:
    bottom = lower(r)
    return bottom is not None and bottom.lo >= 0


def upper(e: IndexExpr) -> IndexExpr | None:
    """Return an upper bound that depends on no axis (size symbols stay), or None when none is known."""
    return _bound(e, 1)


def lower(e: IndexExpr) -> IndexExpr | None:
    """Return a lower bound that depends on no axis (size symbols stay), or None when none is known."""
    return _bound(e, -1)


def _bound(e: IndexExpr, direction: int) -> IndexExpr | None:
    out = ZERO
    for m, k in e.terms:
        term = lift(k)
        for a in m:
            bound = _atom_bound(a, k * direction > 0) if a.lo >= 0 else None
            if bound is None:
                return None
            term = _mul(term, bound)
        out = out + term
    return out


def _atom_bound(a: Atom, above: bool) -> IndexExpr | None:
    """A bound of a non-negative atom, from above or from below."""
    if a.kind == "sym":
        return atom_expr(a)
    if not above:
        return lift(a.lo)
    if a.kind == "axis":
        return a.extent - 1
    if a.kind == "%":
        return a.b - 1
    top = upper(a.a)
    if top is None or a.a.lo < 0:
        return None
    quotient, rest = _divide(top + 1, a.b) if len(a.b.terms) == 1 else _divide_by_sum(top + 1, a.b)
    if rest is ZERO:  # a < q*b  is  a // b < q
        return quotient - 1
    return floordiv(top, lift(max(a.b.lo, 1)))


# ---- shapes -------------------------------------------------------------------------------------------------


def flat(index: Sequence[IndexExpr], shape: Sequence[IndexExpr]) -> IndexExpr:
    """Return the row-major number of an index.

    Example:
        >>> flat((lift(2), lift(3)), (lift(5), lift(7)))
        17
    """
    out = ZERO
    for i, n in zip(index, shape, strict=True):
        out = out * n + i
    return out


def unflat(e: IndexExpr, shape: Sequence[IndexExpr]) -> tuple[IndexExpr, ...]:
    """Return the index of the element with row-major number `e`, the inverse of `flat`.

    Example:
        >>> unflat(lift(17), (lift(5), lift(7)))
        (2, 3)
    """
    if not shape:
        return ()
    out = []
    for n in reversed(shape[1:]):
        out.append(mod(e, n))
        e = floordiv(e, n)
    return (e, *reversed(out))


def row_major(shape: Sequence[IndexExpr]) -> tuple[IndexExpr, ...]:
    """Return the strides, in elements, of a tensor laid out in order; sizes 0 count as 1, as in ATen.

    Example:
        >>> row_major((lift(2), lift(3), lift(4)))
        (12, 4, 1)
    """
    out, step = [], ONE
    for n in reversed(shape):
        out.append(step)
        step = step * (ONE if n is ZERO else n)
    return tuple(reversed(out))


ZERO = _make({})
ONE = _make({(): 1})
_MINUS_ONE = _make({(): -1})
