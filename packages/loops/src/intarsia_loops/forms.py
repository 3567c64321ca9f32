"""Cheaper forms in a grid's walk: of what is rounded to a half type at once, and of quotients by sums.

Kernels of half types are bound by their instructions:

half_div    a quotient, divided with 2 ulp of float32 instead of exactly: far below half an ulp of what it is rounded to
half_gelu   0.5 x (1 + erf(x / sqrt(2))) as x / (1 + 2^(-x P(x^2))), P of degree 6. Measured over [-13, 13] against
    float64: absolute error 6.0e-7 (the form with a float32 erf: 4.4e-7), relative error 5.0e-4 at -4 and 2.2e-2 at -5
    (5.0e-4, 4.9e-2). On an H200 a bias + gelu over bf16 is bound by erf: 101 to 107 us with it, 69 without.

Each of these stands only where its result has no other reader. And many quotients by one number of a row, a sum of
exponentials from 1 to the number of points, share its inverse:

div_by_sum       a / s as q + (a - q s) (1 / s) with q = a (1 / s), the remainder in one rounding
half_div_by_sum  a (1 / s), of what is rounded to a half type at once

A form is a name in a body of a grid's walk, and stands for an expression: `exact` writes that out. It has no row in the
table of scalar ops, since nests and kernels don't have it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from intarsia_loops.ops import HALVES
from intarsia_loops.program import Val, const, val
from intarsia_loops.rewrites import operands, postorder

__all__ = ["FORMS", "OPERANDS", "exact", "misplaced", "with_half_forms", "with_sum_forms"]


def with_half_forms(body: Val) -> Val:
    """Return `body` with the forms above below its casts to half types.

    Example:
        >>> from intarsia_loops.index import axis, lift
        >>> from intarsia_loops.program import cast, load
        >>> x = load("x", (lift(axis("i", 4)),), "f32")
        >>> with_half_forms(cast(val("div", x, x, dtype="f32"), "bf16"))
        cast(half_div(load(%x, i), load(%x, i)), bf16)
        >>> exact(_) is cast(val("div", x, x, dtype="f32"), "bf16")
        True
    """
    if body.op == "scatter":  # a value and places, each of which is computed by itself
        return val("scatter", *map(with_half_forms, body.args), dtype=body.dtype)
    if not any(_is_rounded(v) for v in postorder(body)):
        return body
    readers = _readers(body)

    def rebuilt(v: Val, args: tuple[Val, ...]) -> Val:
        if _is_rounded(v) and readers[v.args[0]] == 1:
            args = (_cheaper(args[0]),)
        return val(v.op, *args, dtype=v.dtype)

    return _rebuilt(body, rebuilt)


def with_sum_forms(body: Val, sums: Collection[str]) -> Val:
    """Return `body` with quotients by a number of a row taken from its inverse, after `with_half_forms`.

    Args:
        body: Of a step of a grid's walk.
        sums: The row's numbers that have inverses.

    Example:
        >>> from intarsia_loops.program import load
        >>> with_sum_forms(val("div", load("x", (), "f32"), load("s", (), "f32"), dtype="f32"), {"s"})
        div_by_sum(load(%x), load(%s))
    """
    if not any(_is_by_sum(v, sums) for v in postorder(body)):
        return body

    def made(v: Val, args: tuple[Val, ...]) -> Val:
        return val(_BY_SUM[v.op] if _is_by_sum(v, sums) else v.op, *args, dtype=v.dtype)

    return _rebuilt(body, made)


def exact(body: Val) -> Val:
    """Return `body` with what its forms stand for; the inverse of `with_half_forms` and of `with_sum_forms`."""
    if not any(v.op in FORMS for v in postorder(body)):
        return body

    def rebuilt(v: Val, args: tuple[Val, ...]) -> Val:
        return FORMS[v.op](*args) if v.op in FORMS else val(v.op, *args, dtype=v.dtype)

    return _rebuilt(body, rebuilt)


def misplaced(body: Val, sums: Collection[str] = ()) -> tuple[Val, ...]:
    """Return the forms of a body that may not stand where they do.

    Those of numbers other than f32, those of half types that anything but one cast to such a type reads, and quotients
    by anything but one of `sums`.
    """
    readers = _readers(body)
    rounded = {v.args[0] for v in postorder(body) if _is_rounded(v) and readers[v.args[0]] == 1}

    def stands(v: Val) -> bool:
        by_sum = v.op not in _BY_SUM.values() or (v.args[1].op == "load" and v.args[1].args[0] in sums)
        return by_sum and (v.op not in _HALF or v in rounded) and all(a.dtype == "f32" for a in v.args)

    return tuple(v for v in postorder(body) if v.op in FORMS and not stands(v))


def _is_rounded(v: Val) -> bool:
    return v.op == "cast" and v.dtype in HALVES and v.args[0].dtype == "f32"


def _is_by_sum(v: Val, sums: Collection[str]) -> bool:
    return v.op in _BY_SUM and v.dtype == "f32" and v.args[1].op == "load" and v.args[1].args[0] in sums


def _readers(body: Val) -> Counter[Val]:
    return Counter(a for v in postorder(body) for a in operands(v))


def _rebuilt(body: Val, rebuild: Callable[[Val, tuple[Val, ...]], Val]) -> Val:
    memo: dict[Val, Val] = {}
    for v in postorder(body):
        if v.op in ("load", "const", "index"):
            memo[v] = v
        elif v.op == "gather":
            entries = tuple(memo[i] if isinstance(i, Val) else i for i in v.args[1])
            memo[v] = val("gather", v.args[0], entries, dtype=v.dtype)
        else:
            memo[v] = rebuild(v, tuple(memo[a] for a in v.args))
    return memo[body]


def _cheaper(v: Val) -> Val:
    if v.op == "div":
        return val("half_div", *v.args, dtype=v.dtype)
    x = _gelu_of(v)
    return v if x is None else val("half_gelu", x, dtype=v.dtype)


def _gelu_of(v: Val) -> Val | None:
    """Return x where `v` is mul(mul(x, 0.5), add(erf(mul(x, sqrt(0.5))), 1)); None when it is anything else."""
    if v.op != "mul" or v.args[0].op != "mul" or v.args[1].op != "add":
        return None
    (x, half), (erf, one) = v.args[0].args, v.args[1].args
    if erf.op != "erf" or erf.args[0].op != "mul":
        return None
    scaled, root = erf.args[0].args
    constants = [(half, 0.5), (one, 1.0), (root, math.sqrt(0.5))]
    return x if scaled is x and all(c.op == "const" and c.args[0] == number for c, number in constants) else None


def _f32(op: str, *args: Val) -> Val:
    return val(op, *args, dtype="f32")


def _quotient(a: Val, b: Val) -> Val:
    return _f32("div", a, b)


def _gelu(x: Val) -> Val:
    erf = _f32("erf", _f32("mul", x, const(math.sqrt(0.5), "f32")))
    return _f32("mul", _f32("mul", x, const(0.5, "f32")), _f32("add", erf, const(1.0, "f32")))


#: Name -> what it stands for, of its operands.
FORMS: Mapping[str, Callable[..., Val]] = MappingProxyType({
    "half_div": _quotient, "half_gelu": _gelu, "div_by_sum": _quotient, "half_div_by_sum": _quotient,
})  # fmt: skip
#: How many operands each takes.
OPERANDS: Mapping[str, int] = MappingProxyType({"half_div": 2, "half_gelu": 1, "div_by_sum": 2, "half_div_by_sum": 2})
# those of what is rounded to a half type at once
_HALF = frozenset({"half_div", "half_gelu", "half_div_by_sum"})
# quotient -> the form of it that has the divisor's inverse
_BY_SUM: Mapping[str, str] = MappingProxyType({"div": "div_by_sum", "half_div": "half_div_by_sum"})
