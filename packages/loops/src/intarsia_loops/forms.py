"""Cheaper forms of what is rounded to bf16 or f16 at once: kernels of half types are bound by their instructions.

half_div    a quotient, divided with 2 ulp of float32 instead of exactly: far below half an ulp of what it is rounded to
half_gelu   0.5 x (1 + erf(x / sqrt(2))) as x / (1 + 2^(-x P(x^2))), P of degree 6. Measured over [-13, 13] against
    float64: absolute error 6.0e-7 (the form with a float32 erf: 4.4e-7), relative error 5.0e-4 at -4 and 2.2e-2 at -5
    (5.0e-4, 4.9e-2). On an H200 a bias + gelu over bf16 is bound by erf: 101 to 107 us with it, 69 without.

A form is a name in a body of a grid's walk, and stands for an expression: `exact` writes that out. It has no row in the
table of scalar ops, since nests and kernels don't have it. Each stands only where its result has no other reader.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

from intarsia_loops.ops import HALVES
from intarsia_loops.program import Val, const, val
from intarsia_loops.rewrites import operands, postorder

__all__ = ["FORMS", "OPERANDS", "exact", "misplaced", "with_half_forms"]


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

    def made(v: Val, args: tuple[Val, ...]) -> Val:
        if _is_rounded(v) and readers[v.args[0]] == 1:
            args = (_cheaper(args[0]),)
        return val(v.op, *args, dtype=v.dtype)

    return _rebuilt(body, made)


def exact(body: Val) -> Val:
    """Return `body` with what its forms stand for; the inverse of `with_half_forms`."""
    if not any(v.op in FORMS for v in postorder(body)):
        return body

    def made(v: Val, args: tuple[Val, ...]) -> Val:
        return FORMS[v.op](*args) if v.op in FORMS else val(v.op, *args, dtype=v.dtype)

    return _rebuilt(body, made)


def misplaced(body: Val) -> tuple[Val, ...]:
    """Return the forms of a body that aren't of f32, or read by anything but one cast to a half type."""
    readers = _readers(body)
    rounded = {v.args[0] for v in postorder(body) if _is_rounded(v)}
    found = (v for v in postorder(body) if v.op in FORMS)
    return tuple(v for v in found if v not in rounded or readers[v] != 1 or any(a.dtype != "f32" for a in v.args))


def _is_rounded(v: Val) -> bool:
    return v.op == "cast" and v.dtype in HALVES and v.args[0].dtype == "f32"


def _readers(body: Val) -> Counter[Val]:
    return Counter(a for v in postorder(body) for a in operands(v))


def _rebuilt(body: Val, made: Callable[[Val, tuple[Val, ...]], Val]) -> Val:
    memo: dict[Val, Val] = {}
    for v in postorder(body):
        if v.op in ("load", "const", "index"):
            memo[v] = v
        elif v.op == "gather":
            entries = tuple(memo[i] if isinstance(i, Val) else i for i in v.args[1])
            memo[v] = val("gather", v.args[0], entries, dtype=v.dtype)
        else:
            memo[v] = made(v, tuple(memo[a] for a in v.args))
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
FORMS: Mapping[str, Callable[..., Val]] = MappingProxyType({"half_div": _quotient, "half_gelu": _gelu})
#: How many operands each takes.
OPERANDS: Mapping[str, int] = MappingProxyType({"half_div": 2, "half_gelu": 1})
