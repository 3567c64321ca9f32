"""Index expressions: integer polynomials over axes, size symbols, floor-divisions and remainders.

Hash-consed and simplified when built, so equality is identity and there is no `simplify()` to call (or to forget).
An expression is a sorted tuple of (monomial, coefficient); a monomial is a sorted tuple of atoms; () is the constant.
Laws used (all for b > 0):
  (q*b + r) // b = q + r // b         (q*b + r) % b = r % b         r // b = 0, r % b = r     when 0 <= r < b
  (a // b) // c  = a // (b*c)         (a % (b*c)) % b = a % b       b * (a // b) + a % b = a
"""
from __future__ import annotations
import operator

INF = 1 << 62


class Atom:
    __slots__ = ("kind", "a", "b", "key", "lo", "hi", "extent")

    def __init__(self, kind, a, b, key, lo, hi, extent=None):
        self.kind, self.a, self.b, self.key, self.lo, self.hi, self.extent = kind, a, b, key, lo, hi, extent

    def __repr__(self):
        return self.key

    def __copy__(self): return self
    def __deepcopy__(self, memo): return self


class IndexExpr:
    __slots__ = ("terms", "lo", "hi", "_key")

    def __add__(self, o): return _add(self, lift(o), 1)
    def __radd__(self, o): return _add(self, lift(o), 1)
    def __sub__(self, o): return _add(self, lift(o), -1)
    def __rsub__(self, o): return _add(lift(o), self, -1)
    def __mul__(self, o): return _mul(self, lift(o))
    __rmul__ = __mul__
    def __floordiv__(self, o): return floordiv(self, lift(o))
    def __mod__(self, o): return mod(self, lift(o))
    def __neg__(self): return _mul(self, lift(-1))

    def const(self):
        return 0 if not self.terms else self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    def atoms(self):
        return {a for m, _ in self.terms for a in m}

    def axes(self):
        """every axis the value depends on, also inside // and %"""
        out = set()
        for a in self.atoms():
            out |= {a} if a.kind == "axis" else a.a.axes() | a.b.axes() if a.kind in "/%" else set()
        return out

    def symbols(self):
        """names of the size symbols that the value depends on, also inside // and %, and in no axis extent"""
        out = set()
        for a in self.atoms():
            out |= {a.key} if a.kind == "sym" else a.a.symbols() | a.b.symbols() if a.kind in "/%" else set()
        return out

    def __copy__(self): return self
    def __deepcopy__(self, memo): return self

    def coef(self, axis):
        """(c, rest) with self = c*axis + rest and axis not in c or rest; None when it isn't affine in axis."""
        c, rest = {}, {}
        for m, k in self.terms:
            if axis in m:
                i = m.index(axis)
                m = m[:i] + m[i + 1:]
                if axis in m: return None
                c[m] = k
            else:
                rest[m] = k
        c, rest = _make(c), _make(rest)
        return None if axis in c.axes() or axis in rest.axes() else (c, rest)

    def subst(self, env):
        """replace axes: env maps Atom -> E"""
        if not (self.axes() & env.keys()): return self
        out = ZERO
        for m, k in self.terms:
            t = lift(k)
            for a in m:
                t = t * (env[a] if a in env else floordiv(a.a.subst(env), a.b.subst(env)) if a.kind == "/"
                         else mod(a.a.subst(env), a.b.subst(env)) if a.kind == "%" else atom_expr(a))
            out = out + t
        return out

    def value(self, env):
        s = 0
        for m, k in self.terms:
            for a in m:
                k *= env[a] if a.kind in ("axis", "sym") else (a.a.value(env) // a.b.value(env) if a.kind == "/" else a.a.value(env) % a.b.value(env))
            s += k
        return s

    def __repr__(self):
        if self._key is None:
            self._key = " + ".join("*".join(([str(k)] if k != 1 or not m else []) + [a.key for a in m]) for m, k in self.terms) or "0"
        return self._key


_table: dict = {}
_atoms: dict = {}


def _make(d):
    terms = tuple(sorted(((m, k) for m, k in d.items() if k), key=lambda t: [a.key for a in t[0]])) if len(d) > 1 else \
        tuple((m, k) for m, k in d.items() if k)
    e = _table.get(terms)
    if e is None:
        e = IndexExpr(); e.terms, e._key = terms, None
        lo = hi = 0
        for m, k in terms:
            l = h = 1
            for a in m:
                l, h = l * a.lo, min(h * a.hi, INF)        # atoms are never negative
            l, h = (l * k, h * k) if k > 0 else (h * k, l * k)
            lo, hi = lo + l, hi + h
        e.lo, e.hi = max(lo, -INF), min(hi, INF)
        _table[terms] = e
    return e


def lift(v):
    return v if type(v) is IndexExpr else _make({(): v}) if type(v) is int else atom_expr(v)


def atom_expr(a):
    # an axis of extent 1 has one value: bodies and rows then agree on how to write it
    return ZERO if a.kind == "axis" and a.extent is ONE else _make({(a,): 1})


def axis(name, extent):
    """a loop variable in [0, extent)"""
    extent = lift(extent)
    k = ("axis", name, extent)
    if k not in _atoms:
        _atoms[k] = Atom("axis", None, None, name, 0, max(extent.hi - 1, 0), extent)
    return _atoms[k]


def size_symbol(name, lo=2, hi=INF):
    k = ("sym", name)
    if k not in _atoms: _atoms[k] = Atom("sym", None, None, name, lo, hi)
    return atom_expr(_atoms[k])


def _add(x, y, s):
    d = dict(x.terms)
    for m, k in y.terms: d[m] = d.get(m, 0) + s * k
    for m, k in (y.terms if len(y.terms) < len(x.terms) else x.terms):        # b*(a//b) + a%b = a
        for a in m:
            if a.kind == "%" and d.get(m) and (q := _atoms.get(("/", a.a, a.b))):
                rest = tuple(z for z in m if z is not a)
                part = _mul(a.b, _make({tuple(sorted(rest + (q,), key=operator.attrgetter("key"))): d[m]}))
                if all(d.get(pm) == pk for pm, pk in part.terms):
                    k = d.pop(m)
                    for pm, _ in part.terms: del d[pm]
                    return _add(_make(d), _mul(a.a, _make({rest: k})), 1)
    return _make(d)


def _mul(x, y):
    d = {}
    for m, k in x.terms:
        for n, l in y.terms:
            mn = tuple(sorted(m + n, key=operator.attrgetter("key"))) if m and n else m or n
            d[mn] = d.get(mn, 0) + k * l
    return _make(d)


def upper(e):
    """an upper bound without axes (size symbols stay), or None"""
    out = ZERO
    for m, k in e.terms:
        t = lift(k)
        for a in m:
            if k < 0: t = t * a.lo if a.kind != "sym" else t * atom_expr(a)
            else: t = t * (a.extent - 1 if a.kind == "axis" else a.b - 1 if a.kind == "%" else upper(a.a) if a.kind == "/" else atom_expr(a))
        out = out + t
    return out


def less(r, b):
    """0 <= r < b proven?"""
    return r.lo >= 0 and (r.hi < b.lo or (b - 1 - upper(r)).lo >= 0)


def _divide(e, b):
    """e = q*b + r, term by term"""
    q, r = {}, {}
    if len(b.terms) == 1:
        bm, bk = b.terms[0]
        for m, k in e.terms:
            left = list(m)
            try:
                for a in bm: left.remove(a)
            except ValueError:
                r[m] = k; continue
            if k // bk: q[tuple(left)] = k // bk
            if k % bk: r[m] = k % bk
        return _make(q), _make(r)
    return ZERO, e


def floordiv(a, b):
    if b is ONE: return a
    if (x := a.const()) is not None and (y := b.const()): return lift(x // y)
    q, r = _divide(a, b)
    if less(r, b): return q
    if len(r.terms) == 1 and r.terms[0][1] == 1 and len(r.terms[0][0]) == 1 and (d := r.terms[0][0][0]).kind == "/":
        return q + floordiv(d.a, d.b * b)
    return q + _node("/", r, b)


def mod(a, b):
    if b is ONE: return ZERO
    q, r = _divide(a, b)
    if less(r, b): return r
    if len(r.terms) == 1 and r.terms[0][1] == 1 and len(r.terms[0][0]) == 1 and (d := r.terms[0][0][0]).kind == "%" \
            and _divide(d.b, b)[1] is ZERO:
        return mod(d.a, b)
    return _node("%", r, b)


def _node(kind, a, b):
    k = (kind, a, b)
    if k not in _atoms:
        hi = (a.hi // max(b.lo, 1) if kind == "/" else b.hi - 1)
        _atoms[k] = Atom(kind, a, b, f"(({a!r}) {'//' if kind == '/' else '%'} ({b!r}))", 0, min(hi, INF))
        if kind == "%" and a.lo >= 0: _node("/", a, b)
    return atom_expr(_atoms[k])


ZERO, ONE = lift(0), lift(1)


def flat(idx, shape):
    """row-major number of an index"""
    out = ZERO
    for i, n in zip(idx, shape): out = out * n + i
    return out


def unflat(e, shape):
    out = []
    for n in reversed(shape[1:]):
        out.append(mod(e, lift(n))); e = floordiv(e, lift(n))
    return (e, *reversed(out)) if shape else ()


def row_major(shape):
    """strides in elements of a tensor laid out in order; sizes 0 count as 1, as in ATen"""
    out, step = [], ONE
    for n in reversed(tuple(shape)):
        out.append(step)
        step = step * (ONE if n is ZERO else n)
    return tuple(reversed(out))
