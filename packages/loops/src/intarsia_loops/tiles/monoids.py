"""The monoid table: how points are folded, as values over the names of a state.

A row has fields (its state), operands (what a point brings) and results. Its rules are `Val`s: `fold` over the fields
and operands, `merge` over the fields and those of a second state, named `other_<field>`, `finish` over the fields.
Emitters print them like any body, the interpreter evaluates them, so what a NaN does is said here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from intarsia_loops.ops import FLOATS, NUMBERS, identity_of
from intarsia_loops.program import Val, const, load, val

__all__ = ["MONOIDS", "Monoid", "Rules"]

BOOLS = frozenset({"b8"})
LAST = (1 << 63) - 1  # a position beyond all others


@dataclass(frozen=True, slots=True)
class Rules:
    """What a row does with values of one type, a value for each field or result.

    Args:
        types: Element type of each field.
        identity: Constants.
        fold: The state after a point.
        merge: The state after another one's points.
        finish: The results.
    """

    types: tuple[str, ...]
    identity: tuple[Val, ...]
    fold: tuple[Val, ...]
    merge: tuple[Val, ...]
    finish: tuple[Val, ...]


@dataclass(frozen=True, slots=True)
class Monoid:
    """One row.

    Args:
        name: Spelling in IR text.
        fields: Names of the state.
        operands: Names of what a point brings; the first has the accumulator's type.
        results: Names of what `Take` gives, in order.
        operand_types: Types of the operands; "" is the accumulator's.
        types: Types that an accumulator may have.
        exact: Types for which every order gives the same bits.
        doc: What it computes.
        rules: Type -> rules.
    """

    name: str
    fields: tuple[str, ...]
    operands: tuple[str, ...]
    results: tuple[str, ...]
    operand_types: tuple[str, ...]
    types: frozenset[str]
    exact: frozenset[str]
    doc: str
    rules: Callable[[str], Rules]


def _named(name: str, dtype: str) -> Val:
    return load(name, (), dtype)


def _simple(op: str, kind: str) -> Callable[[str], Rules]:
    def rules(dtype: str) -> Rules:
        a, x, other = (_named(n, dtype) for n in ("a", "x", "other_a"))
        start = const(identity_of(kind, dtype), dtype)
        return Rules(
            (dtype,), (start,), (val(op, a, x, dtype=dtype),), (val(op, a, other, dtype=dtype),), (a,)
        )  # fmt: skip

    return rules


def _both(*values: Val) -> Val:
    return val("and", *values, dtype="b8")


def _either(*values: Val) -> Val:
    return val("or", *values, dtype="b8")


def _where(condition: Val, a: Val, b: Val) -> Val:
    return val("where", condition, a, b, dtype=a.dtype)


def _compare(op: str, a: Val, b: Val) -> Val:
    return val(op, a, b, dtype="b8")


def _beats(op: str, x: Val, at: Val, best: Val, best_at: Val) -> Val:
    """Whether a value at a position wins: NaN over numbers, a better one over a worse one, the first of equals."""
    better, same, first = _compare(op, x, best), _compare("eq", x, best), _compare("lt", at, best_at)
    if x.dtype not in FLOATS:
        return _either(better, _both(same, first))
    nan, best_nan = val("isnan", x, dtype="b8"), val("isnan", best, dtype="b8")
    among_nan = _both(nan, _either(val("not", best_nan, dtype="b8"), first))
    return _either(among_nan, _both(val("not", best_nan, dtype="b8"), _either(better, _both(same, first))))


def _arg(op: str, kind: str) -> Callable[[str], Rules]:
    def rules(dtype: str) -> Rules:
        v, x, other_v = (_named(n, dtype) for n in ("v", "x", "other_v"))
        at, k, other_at = (_named(n, "i64") for n in ("at", "k", "other_at"))

        def chosen(value: Val, place: Val) -> tuple[Val, Val]:
            wins = _beats(op, value, place, v, at)
            return _where(wins, value, v), _where(wins, place, at)

        identity = (const(identity_of(kind, dtype), dtype), const(LAST, "i64"))
        return Rules((dtype, "i64"), identity, chosen(x, k), chosen(other_v, other_at), (at,))

    return rules


def _two_sum(a: Val, x: Val) -> tuple[Val, Val]:
    """Return a + x and the error of that sum (Knuth)."""
    dtype = a.dtype
    total = val("add", a, x, dtype=dtype)
    back = val("sub", total, a, dtype=dtype)
    lost_a = val("sub", a, val("sub", total, back, dtype=dtype), dtype=dtype)
    lost_x = val("sub", x, back, dtype=dtype)
    return total, val("add", lost_a, lost_x, dtype=dtype)


def _sum2(dtype: str) -> Rules:
    """Sum with the errors of its additions kept apart; infinities and NaN come from the plain sum."""
    a, e, x, other_a, other_e = (_named(n, dtype) for n in ("a", "e", "x", "other_a", "other_e"))
    (total, lost), (merged, lost_there) = _two_sum(a, x), _two_sum(a, other_a)
    zero = const(0.0, dtype)
    fold = (total, val("add", e, lost, dtype=dtype))
    errors = val("add", val("add", e, other_e, dtype=dtype), lost_there, dtype=dtype)
    whole = val("add", a, e, dtype=dtype)
    return Rules((dtype, dtype), (zero, zero), fold, (merged, errors), (_where(_special(whole), a, whole),))


def _special(v: Val) -> Val:
    return _either(val("isnan", v, dtype="b8"), val("isinf", v, dtype="b8"))


def _expsum(dtype: str) -> Rules:
    """Largest value, and the sum of exponentials relative to it (Milakov and Gimelshein)."""
    m, s, x, other_m, other_s = (_named(n, dtype) for n in ("m", "s", "x", "other_m", "other_s"))
    zero = const(0.0, dtype)

    def joined(value: Val, count: Val) -> tuple[Val, Val]:
        top = val("max", m, value, dtype=dtype)
        base = _where(val("isinf", top, dtype="b8"), zero, top)

        def scaled(n: Val, v: Val) -> Val:
            return val("mul", n, val("exp", val("sub", v, base, dtype=dtype), dtype=dtype), dtype=dtype)

        return top, val("add", scaled(s, m), scaled(count, value), dtype=dtype)

    # relative to an infinite value nothing has a number: exp(inf - inf)
    apart = val("exp", val("sub", m, m, dtype=dtype), dtype=dtype)
    finish = (m, val("mul", s, apart, dtype=dtype))
    identity = (const(identity_of("max", dtype), dtype), zero)
    return Rules((dtype, dtype), identity, joined(x, const(1.0, dtype)), joined(other_m, other_s), finish)


def _squares(dtype: str) -> Rules:
    """Number, mean, and sum of squared distances from the mean (Welford; Chan, Golub and LeVeque)."""
    names = ("n", "mean", "q", "x", "other_n", "other_mean", "other_q")
    n, mean, q, x, other_n, other_mean, other_q = (_named(name, dtype) for name in names)
    zero, one = const(0.0, dtype), const(1.0, dtype)

    def f(op: str, *args: Val) -> Val:
        return val(op, *args, dtype=dtype)

    count, delta = f("add", n, one), f("sub", x, mean)
    middle = f("add", mean, f("div", delta, count))
    fold = (count, middle, f("add", q, f("mul", delta, f("sub", x, middle))))
    both, apart = f("add", n, other_n), f("sub", other_mean, mean)
    share = f("div", other_n, _where(_compare("eq", both, zero), one, both))
    squares = f("add", f("add", q, other_q), f("mul", f("mul", apart, apart), f("mul", n, share)))
    merge = (both, f("add", mean, f("mul", apart, share)), squares)
    return Rules((dtype,) * 3, (zero,) * 3, fold, merge, (n, mean, q))


def _row(name: str, op: str, types: frozenset[str], exact: frozenset[str], doc: str) -> Monoid:
    return Monoid(name, ("a",), ("x",), ("a",), ("",), types, exact, doc, _simple(op, name))


def _arg_row(name: str, op: str, doc: str) -> Monoid:
    return Monoid(
        name, ("v", "at"), ("x", "k"), ("at",), ("", "i64"), NUMBERS, NUMBERS, doc, _arg(op, name.removeprefix("arg"))
    )


_NONE: frozenset[str] = frozenset()
_ROWS = (
    _row("sum", "add", NUMBERS, NUMBERS - FLOATS, "Sum; integers wrap. As a scan's carry: the running sum."),
    _row("prod", "mul", NUMBERS, NUMBERS - FLOATS, "Product. As a scan's carry: the running product."),
    _row("max", "max", NUMBERS, NUMBERS, "Largest; NaN when any is."),
    _row("min", "min", NUMBERS, NUMBERS, "Smallest; NaN when any is."),
    _row("any", "or", BOOLS, BOOLS, "Whether some value is true."),
    _row("all", "and", BOOLS, BOOLS, "Whether every value is true."),
    _arg_row("argmax", "gt", "Position of the largest; the first of equals; the first NaN."),
    _arg_row("argmin", "lt", "Position of the smallest; the first of equals; the first NaN."),
    Monoid("sum2", ("a", "e"), ("x",), ("a",), ("",), FLOATS, _NONE, "Compensated sum.", _sum2),
    Monoid(
        "expsum", ("m", "s"), ("x",), ("m", "s"), ("",), FLOATS, _NONE, "Largest value m, and the sum of exp(x - m).",
        _expsum,
    ),
    Monoid(
        "squares", ("n", "mean", "q"), ("x",), ("n", "mean", "q"), ("",), FLOATS, _NONE,
        "Number of values, their mean, and the sum of squared distances from it, which is NaN when one isn't finite.",
        _squares,
    ),
)  # fmt: skip

MONOIDS: Mapping[str, Monoid] = MappingProxyType({row.name: row for row in _ROWS})
