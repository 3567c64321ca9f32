"""What is known about size symbols, and three-valued answers from it.

Terms. A *fact* is a relation that holds for every admissible value. Facts are kept in the forms that answer fast:
  ranges        symbol -> interval
  replacements  symbol -> expression it equals (unit coefficient, found by solving an equation)
  lower bounds  normalised polynomial k -> smallest c with k + c >= 0, looked up in constant time
  divisible     remainders known to be zero
  truths        relations seen literally

Every new fact bumps `version`; memos elsewhere compare it.
"""

from __future__ import annotations

import math
from typing import Any

import sympy
from sympy import Integer, S
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod

from intarsia_shapes.intervals import INF, Ranges, interval

__all__ = ["Knowledge"]

_TRUE, _FALSE = sympy.true, sympy.false


class Knowledge:
    """Facts about symbols, learnt one relation at a time, and questions answered True, False or None (unknown).

    Attributes:
        ranges: Symbol -> inclusive bounds.
        replacements: Symbol -> what it equals.
        size_like: Unbacked symbols that are sizes; a size-oblivious question takes them to be at least 2.
        version: Grows with every new fact.
        replacement_version: Grows with every new replacement.
    """

    def __init__(self) -> None:
        self.ranges: dict[Any, tuple[float, float]] = {}
        self.replacements: dict[Any, Any] = {}
        self.size_like: set[Any] = set()
        self.version = 0
        self.replacement_version = 0
        self._lower_bounds: dict[Any, int] = {}
        self._truths: dict[Any, bool] = {}
        self._nonzero: set[Any] = set()
        self._divisible: set[Any] = set()
        self._answers: dict[tuple[Any, bool], Any] = {}

    # ---- questions ------------------------------------------------------------------------------------------

    def range_of(self, *, oblivious: bool = False) -> Ranges:
        """Return the bounds of symbols as a function; `oblivious` takes every size to be at least 2."""
        if not oblivious:
            return lambda s: self.ranges.get(s, (-INF, INF))
        return lambda s: (2, INF) if s in self.size_like else self.ranges.get(s, (-INF, INF))

    def decide(self, expr: Any, *, oblivious: bool = False) -> Any:
        """Return a number, True or False that `expr` has for every admissible value, or None."""
        key = (expr, oblivious)
        if key not in self._answers:
            self._answers[key] = self._decide(expr, oblivious)
        return self._answers[key]

    def replace(self, expr: Any) -> Any:
        """Return `expr` with every replaced symbol gone."""
        if not self.replacements:
            return expr
        replacements = {s: self._resolve(s) for s in expr.free_symbols if s in self.replacements}
        if not replacements:
            return expr
        result = expr.xreplace(replacements)
        return _expanded(result)

    def simplify(self, expr: Any) -> Any:
        """Return `expr` without the divisions, remainders, maxima and minima that the facts decide."""
        expr = self.replace(expr)
        if self._divisible and expr.has(FloorDiv):
            expr = self._exact_divisions(expr)
        if expr.has(Mod, PythonMod):
            replacements = {a: r for a in expr.atoms(Mod, PythonMod) if (r := self._known_remainder(a)) is not None}
            expr = expr.xreplace(replacements) if replacements else expr
        if expr.has(Max, Min):
            replacements = {a: r for a in expr.atoms(Max, Min) if (r := self._known_extremum(a)) is not None}
            expr = expr.xreplace(replacements) if replacements else expr
        return expr

    # ---- learning -------------------------------------------------------------------------------------------

    def learn(self, relation: Any) -> None:
        """Take `relation` as true from now on."""
        if relation is _TRUE:
            return
        self._truths[relation] = True
        self._truths[sympy.Not(relation)] = False
        self._bump()
        if relation.func is sympy.And:
            for part in relation.args:
                self.learn(part)
        elif relation.is_Relational:
            self._learn_relation(relation)

    def narrow(self, symbol: Any, low: float, high: float) -> None:
        """Intersect the range of `symbol` with `[low, high]`.

        Raises:
            ValueError: The intersection is empty.
        """
        old = self.ranges.get(symbol, (-INF, INF))
        new = (max(old[0], low), min(old[1], high))
        if new[0] > new[1]:
            raise ValueError(f"contradictory range for {symbol}: {new}")
        if new != old:
            self.ranges[symbol] = new
            self._bump()
            if new[0] == new[1] and symbol not in self.replacements:
                self._replace_symbol(symbol, Integer(int(new[0])))

    def _learn_relation(self, relation: Any) -> None:
        left, right = relation.args
        difference = sympy.expand(left - right)
        kind = relation.func
        if kind is sympy.Eq:
            if left.func in (Mod, PythonMod) and right == 0:
                self._divisible.add(self.simplify(left))
            elif difference.is_integer:
                self._solve(difference)
        elif kind is sympy.Ne:
            self._learn_unequal(difference)
        elif difference.is_integer:
            self._learn_at_least_zero(_as_at_least_zero(kind, difference))

    def _learn_at_least_zero(self, p: Any) -> None:
        key, c = _normalise(sympy.expand(p))
        old = self._lower_bounds.get(key)
        if old is None or c < old:
            self._lower_bounds[key] = c
            self._bump()
        if key.is_Symbol:
            self.narrow(key, -c, INF)
        elif (-key).is_Symbol:
            self.narrow(-key, -INF, c)

    def _learn_unequal(self, difference: Any) -> None:
        self._nonzero |= {difference, sympy.expand(-difference)}
        c, k = difference.as_coeff_Add()
        for symbol, value in ((k, -c), (-k, c)):
            if symbol.is_Symbol and symbol in self.ranges:
                low, high = self.ranges[symbol]
                if low == value:
                    self.narrow(symbol, low + 1, high)
                elif high == value:
                    self.narrow(symbol, low, high - 1)

    def _solve(self, d: Any) -> None:
        """Learn `d == 0`: eliminate a symbol with unit coefficient if there is one."""
        self._learn_at_least_zero(d)
        self._learn_at_least_zero(-d)
        d = self.replace(d)
        solvable = _solvable_symbol(d)
        if solvable is not None:
            self._replace_symbol(*solvable)
        elif len(d.free_symbols) == 1:
            (symbol,) = d.free_symbols
            coefficient = d.coeff(symbol, 1)
            rest = sympy.expand(d - coefficient * symbol)
            if coefficient.is_Integer and coefficient != 0 and rest.is_Integer and rest % coefficient == 0:
                self._replace_symbol(symbol, -rest / coefficient)

    def _replace_symbol(self, symbol: Any, target: Any) -> None:
        if symbol == target or symbol in self.replacements:
            return
        low, high = interval(target, self.range_of())
        old_low, old_high = self.ranges.get(symbol, (-INF, INF))
        self.replacements[symbol] = target
        self.replacement_version += 1
        self._bump()
        if target.is_Symbol:
            self.narrow(target, max(low, old_low), min(high, old_high))
            if symbol in self.size_like:
                self.size_like.add(target)
        elif not target.is_number:
            # what was known of the symbol must survive its elimination
            if old_low != -INF and low < old_low:
                self._learn_at_least_zero(target - int(old_low))
            if old_high != INF and high > old_high:
                self._learn_at_least_zero(int(old_high) - target)

    def _resolve(self, symbol: Any) -> Any:
        target = self.replacements.get(symbol)
        if target is None:
            return symbol
        replacements = {s: self._resolve(s) for s in target.free_symbols if s in self.replacements}
        if replacements:
            target = self.replacements[symbol] = sympy.expand(target.xreplace(replacements))
        return target

    def _bump(self) -> None:
        self.version += 1
        self._answers.clear()

    # ---- deciding -------------------------------------------------------------------------------------------

    def _decide(self, expr: Any, oblivious: bool) -> Any:
        if expr is _TRUE or expr is True:
            return True
        if expr is _FALSE or expr is False:
            return False
        if expr.is_Relational:
            return self._decide_relation(expr, oblivious)
        if expr.func is sympy.Not:
            inner = self.decide(expr.args[0], oblivious=oblivious)
            return None if inner is None else not inner
        if expr.func in (sympy.And, sympy.Or):
            return self._decide_junction(expr, oblivious)
        if expr.is_Boolean and not expr.is_Symbol:
            return self._truths.get(expr)
        return self._decide_number(expr, oblivious)

    def _decide_junction(self, expr: Any, oblivious: bool) -> bool | None:
        short = expr.func is sympy.Or
        parts = [self.decide(a, oblivious=oblivious) for a in expr.args]
        if short in [p for p in parts if p is not None]:
            return short
        if None in parts:
            return self._truths.get(self.simplify(expr))
        return not short

    def _decide_number(self, expr: Any, oblivious: bool) -> Any:
        if expr.is_number:
            return expr
        expr = self.simplify(expr)
        if expr.is_number:
            return expr
        low, high = interval(expr, self.range_of(oblivious=oblivious))
        if low == high and abs(low) != INF:
            return Integer(int(low)) if expr.is_integer else sympy.Float(low)
        return None

    def _decide_relation(self, relation: Any, oblivious: bool) -> bool | None:
        left, right = relation.args
        d = left - right
        if not d.is_number:
            d = sympy.expand(self.simplify(d))
        kind = relation.func
        if kind in (sympy.Eq, sympy.Ne):
            equal = bool(d == 0) if d.is_number else self._is_zero(d, oblivious)
            if equal is None and left.func in (Mod, PythonMod) and right == 0 and self._known_remainder(left) == 0:
                equal = True
            return None if equal is None else equal == (kind is sympy.Eq)
        if d.is_number:
            value = float(d)
            return {sympy.Ge: value >= 0, sympy.Gt: value > 0, sympy.Le: value <= 0, sympy.Lt: value < 0}[kind]
        if not d.is_integer:
            return self._decide_real(relation, d, oblivious)
        return self._at_least_zero(_as_at_least_zero(kind, d), oblivious)

    def _decide_real(self, relation: Any, d: Any, oblivious: bool) -> bool | None:
        low, high = interval(d, self.range_of(oblivious=oblivious))
        upward = relation.func in (sympy.Gt, sympy.Ge)
        if low > 0 or high < 0:
            return upward == (low > 0)
        return self._truths.get(relation)

    def _at_least_zero(self, p: Any, oblivious: bool = False) -> bool | None:
        p = sympy.expand(p)
        if p.is_number:
            return bool(p >= 0)
        ranges = self.range_of(oblivious=oblivious)
        low, high = interval(p, ranges)
        if low >= 0:
            return True
        if high < 0:
            return False
        if self._has_lower_bound(p):
            return True
        if self._has_lower_bound(sympy.expand(-p - 1)):
            return False
        return _sign_by_shift(p, ranges)

    def _has_lower_bound(self, p: Any) -> bool:
        key, c = _normalise(p)
        bound = self._lower_bounds.get(key)
        return bound is not None and c >= bound

    def _is_zero(self, d: Any, oblivious: bool) -> bool | None:
        low, high = interval(d, self.range_of(oblivious=oblivious))
        if low > 0 or high < 0:
            return False
        if low == high == 0:
            return True
        if d.is_integer:
            if self._at_least_zero(d - 1, oblivious) or self._at_least_zero(-d - 1, oblivious):
                return False
            if self._at_least_zero(d, oblivious) and self._at_least_zero(-d, oblivious):
                return True
            if _no_integer_root(d):
                return False
        return False if d in self._nonzero else None

    def _known_remainder(self, a: Any) -> Any:
        p, q = a.args
        if a in self._divisible:
            return S.Zero
        return p if self._at_least_zero(p) and self._at_least_zero(q - p - 1) else None

    def _known_extremum(self, a: Any) -> Any:
        if len(a.args) != 2:
            return None
        first_larger = self._at_least_zero(a.args[0] - a.args[1])
        if first_larger is None:
            return None
        large, small = a.args if first_larger else a.args[::-1]
        return large if a.func is Max else small

    def _exact_divisions(self, expr: Any) -> Any:
        quotients = {
            a: a.args[0] / a.args[1]
            for a in expr.atoms(FloorDiv)
            if Mod(*a.args) in self._divisible or PythonMod(*a.args) in self._divisible
        }
        if not quotients:
            return expr
        result = _expanded(expr.xreplace(quotients))
        whole = all(x.is_Integer for x in result.atoms(sympy.Rational))
        polynomial = all(p.exp.is_nonnegative for p in result.atoms(sympy.Pow))
        return result if whole and polynomial else expr


def _as_at_least_zero(kind: Any, d: Any) -> Any:
    """Return p with `d <kind> 0` exactly when `p >= 0`, over the integers."""
    return {sympy.Ge: d, sympy.Gt: d - 1, sympy.Le: -d, sympy.Lt: -d - 1}[kind]


def _content(terms: Any) -> int:
    """Return the greatest common divisor of the terms' coefficients; 1 when one isn't an integer."""
    divisor = 0
    for term in terms:
        coefficient = term.as_coeff_Mul()[0]
        if not coefficient.is_Integer:
            return 1
        divisor = math.gcd(divisor, abs(int(coefficient)))
    return divisor


def _normalise(p: Any) -> tuple[Any, int]:
    """Split `p >= 0` into a key and c with `key + c >= 0`, the common factor divided out (c rounds down)."""
    c, key = p.as_coeff_Add()
    if not c.is_Integer:
        return p, 0
    divisor = _content(sympy.Add.make_args(key))
    if divisor > 1:
        return sympy.expand(key / divisor), int(c) // divisor
    return key, int(c)


def _no_integer_root(d: Any) -> bool:
    """Tell whether `d == 0` fails by divisibility, as `2*s0 - 3 == 0` does."""
    c, rest = d.as_coeff_Add()
    if not c.is_Integer or c == 0:
        return False
    divisor = _content(sympy.Add.make_args(rest))
    return divisor > 1 and int(c) % divisor != 0


def _sign_by_shift(p: Any, ranges: Ranges) -> bool | None:
    """Substitute s = s' + low with s' >= 0; equal signs of all coefficients then decide `p >= 0`."""
    symbols = p.free_symbols
    if len(symbols) > 6 or not any(t.is_Mul or t.is_Pow for t in sympy.Add.make_args(p)):
        return None
    lows = {s: ranges(s)[0] for s in symbols}
    if -INF in lows.values():
        return None
    shifted = sympy.expand(p.xreplace({s: s + int(low) for s, low in lows.items() if low}))
    if shifted.atoms(FloorDiv, Mod, PythonMod, Max, Min):
        return None
    signs = [t.as_coeff_Mul()[0] for t in sympy.Add.make_args(shifted)]
    if all(bool(c >= 0) for c in signs):
        return True
    if all(bool(c <= 0) for c in signs) and shifted.as_coeff_Add()[0] < 0:
        return False
    return None


def _expanded(expr: Any) -> Any:
    """Return a number with its products multiplied out; what is true or false stays as it is."""
    return expr if expr.is_Relational or expr.is_Boolean else sympy.expand(expr)


def _solvable_symbol(d: Any) -> tuple[Any, Any] | None:
    """Return (symbol, value) from `d == 0`: the newest unbacked symbol, or the newest backed one if none is.

    What an unbacked symbol is replaced by is known when it comes up: programs are written in the order of the names.
    So no other one is taken where the newest can't be. A backed symbol has a value at entry, which never depends on
    what only the running program knows.
    """
    unbacked = [symbol for symbol in d.free_symbols if _is_unbacked(symbol)]
    candidates = (
        [min(unbacked, key=_by_age)] if unbacked else sorted(d.free_symbols, key=lambda s: s.name, reverse=True)
    )
    for symbol in candidates:
        coefficient = d.coeff(symbol, 1)
        if coefficient in (1, -1) and not (d - coefficient * symbol).has(symbol):
            return symbol, sympy.expand(-(d - coefficient * symbol) / coefficient)
    return None


def _by_age(symbol: Any) -> int:
    """The newest unbacked symbol first."""
    return -int(symbol.name.removeprefix("u"))


def _is_unbacked(symbol: Any) -> bool:
    return bool(symbol.name.startswith("u") and symbol.name[1:].isdigit())
