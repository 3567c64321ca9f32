"""The op tables of the loops and kernels dialects: scalar ops inside bodies, and kinds of nests.

A body is a DAG of scalar ops (`program.Val`). The tables say, for each op, which operands it takes, how its element
type follows from theirs, and what it means, as torch code on whole index grids: that code is what `interpret` runs,
and what the emitters' tests compare with. Printer, verifier, and the docs page are derived from the tables.

Element types. Arithmetic happens in f32, f64, the integers i8 i16 i32 i64 u8, and b8. Half types (f16, bf16) only
exist in memory: a `load` or `gather` may yield one, and `cast` converts from and to it; no other op takes or gives one.
Integers wrap around. b8 has no arithmetic, only and/or/xor/not/where.

Both arms of `where` are always evaluated, so a `load` must be inside its buffer even where its value is not used:
bodies guard the index itself, usually by a remainder (`load(x, (i - 3) % n)` under a condition `i >= 3`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from intarsia_ir.dtypes import dtype_from_name

__all__ = [
    "ALL_TYPES",
    "FLOATS",
    "HALVES",
    "INTEGERS",
    "NEST_KINDS",
    "NUMBERS",
    "SCALAR_OPS",
    "NestKind",
    "Rule",
    "ScalarOp",
    "identity_of",
    "result_type",
]

FLOATS = frozenset({"f32", "f64"})
HALVES = frozenset({"f16", "bf16"})
INTEGERS = frozenset({"i8", "i16", "i32", "i64", "u8"})
NUMBERS = FLOATS | INTEGERS
BITS = INTEGERS | {"b8"}
VALUES = NUMBERS | {"b8"}
ALL_TYPES = VALUES | HALVES


class Rule(enum.Enum):
    """How the result's element type follows from the operands'."""

    GIVEN = "given"  # leaves: the value carries its own type
    SAME = "same"  # every operand has the result's type
    PREDICATE = "predicate"  # operands have one common type; the result is b8
    SELECT = "select"  # (b8, T, T) -> T
    CONVERT = "convert"  # any type -> the type that the value carries


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """One row of the scalar op table.

    Args:
        name: Spelling in IR text, in `Val.op`.
        operands: Kind of each operand: `"value"` (a Val), `"buffer"`, `"index"` (tuple with one entry per dimension),
            `"number"` (a Python number), `"expr"` (an IndexExpr).
        rule: How the result type follows from the operand types.
        types: Element types that the value operands may have; for leaves, the result.
        doc: What it computes, with every corner that an emitter must get right.
        reference: Meaning on torch tensors of equal (broadcast) shape; None for leaves and cast, which need more than
            their operands and are written out in `interpret`.
        reads: Whether it reads memory. No scalar op writes or can fail.
    """

    name: str
    operands: tuple[str, ...]
    rule: Rule
    types: frozenset[str]
    doc: str
    reference: Callable[..., torch.Tensor] | None = None
    reads: bool = False


def result_type(op: str, operand_types: Sequence[str], own: str) -> str | None:
    """Return the element type that `op` on operands of these types must have; None when they don't fit.

    Args:
        op: A row of `SCALAR_OPS`.
        operand_types: Element types of the value operands.
        own: The type that the value itself carries (what decides for leaves and casts).

    Example:
        >>> result_type("lt", ("f32", "f32"), "b8")
        'b8'
        >>> result_type("add", ("f32", "i64"), "f32") is None
        True
    """
    row = SCALAR_OPS[op]
    if row.rule is Rule.GIVEN:
        return own if own in row.types else None
    if row.rule is Rule.CONVERT:
        return own if own in ALL_TYPES and operand_types[0] in row.types else None
    if row.rule is Rule.SELECT:
        fits = operand_types[0] == "b8" and operand_types[1] == operand_types[2] and operand_types[1] in row.types
        return operand_types[1] if fits else None
    if len(set(operand_types)) != 1 or operand_types[0] not in row.types:
        return None
    return "b8" if row.rule is Rule.PREDICATE else operand_types[0]


# ---- meanings that are more than one torch call -------------------------------------------------------------


def _floor_divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="floor")


def _truncating_divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="trunc")


def _bitwise_not(a: torch.Tensor) -> torch.Tensor:
    return torch.bitwise_not(a)


def _row(
    name: str,
    arity: int,
    types: frozenset[str],
    doc: str,
    reference: Callable[..., torch.Tensor],
    rule: Rule = Rule.SAME,
) -> ScalarOp:
    return ScalarOp(name, ("value",) * arity, rule, types, doc, reference)


_ROWS: tuple[ScalarOp, ...] = (
    # leaves
    ScalarOp(
        "load",
        ("buffer", "index"),
        Rule.GIVEN,
        ALL_TYPES,
        "Element of a buffer; each index is an IndexExpr, provably inside its dimension. Result type: the buffer's.",
        reads=True,
    ),
    ScalarOp(
        "gather",
        ("buffer", "index"),
        Rule.GIVEN,
        ALL_TYPES,
        "Like load, but at least one index is a Val of type i64. Such an index must be in 0 <= index < size at run "
        "time for every point (wrapping of negative indices and bounds checks are written out in the body).",
        reads=True,
    ),
    ScalarOp(
        "const",
        ("number",),
        Rule.GIVEN,
        VALUES,
        "A Python bool, int or float (also inf, nan, -0.0), rounded to the result type.",
    ),
    ScalarOp(
        "index", ("expr",), Rule.GIVEN, frozenset({"i64"}), "The value of an index expression at the current point."
    ),
    # arithmetic
    _row("add", 2, NUMBERS, "a + b; integers wrap.", torch.add),
    _row("sub", 2, NUMBERS, "a - b; integers wrap.", torch.sub),
    _row("mul", 2, NUMBERS, "a * b; integers wrap.", torch.mul),
    _row("neg", 1, NUMBERS, "-a; integers wrap (also u8).", torch.neg),
    _row("abs", 1, NUMBERS, "|a|; the least integer stays itself.", torch.abs),
    _row("max", 2, NUMBERS, "The larger; NaN when either is NaN.", torch.maximum),
    _row("min", 2, NUMBERS, "The smaller; NaN when either is NaN.", torch.minimum),
    _row("div", 2, FLOATS, "a / b, IEEE.", torch.div),
    _row(
        "floordiv",
        2,
        NUMBERS,
        "Division rounded to minus infinity. Integers: the divisor is a constant, neither 0 nor -1. Floats: as "
        "Python's `//`, except that division by zero gives a / b.",
        _floor_divide,
    ),
    _row(
        "mod",
        2,
        NUMBERS,
        "a - floordiv(a, b) * b, exact; takes the divisor's sign. Integers: the divisor is a constant, neither 0 nor "
        "-1. Floats: fmod(a, b), plus b when that is not 0 and has another sign than b; mod(a, 0) is NaN.",
        torch.remainder,
    ),
    _row(
        "truncdiv",
        2,
        NUMBERS,
        "Division rounded to zero. Integers: as C, the divisor is a constant, neither 0 nor -1. Floats: trunc(a / b).",
        _truncating_divide,
    ),
    _row(
        "fmod",
        2,
        NUMBERS,
        "C remainder, takes the dividend's sign. Integers: the divisor is a constant, neither 0 nor -1. Floats: fmod.",
        torch.fmod,
    ),
    _row(
        "pow",
        2,
        NUMBERS,
        "a ** b. Floats: C pow. Integers: wrapping; a negative exponent gives 1 for a = 1, +-1 for a = -1, else 0.",
        torch.pow,
    ),
    _row("copysign", 2, FLOATS, "|a| with the sign bit of b.", torch.copysign),
    _row("atan2", 2, FLOATS, "C atan2(a, b).", torch.atan2),
    _row("hypot", 2, FLOATS, "sqrt(a*a + b*b), without overflow in between.", torch.hypot),
    # float functions
    *(
        _row(name, 1, FLOATS, doc, getattr(torch, name))
        for name, doc in (
            ("exp", "e ** a."),
            ("exp2", "2 ** a."),
            ("expm1", "e ** a - 1, accurate near 0."),
            ("log", "Natural logarithm; log(0) = -inf, log(negative) = NaN."),
            ("log2", "Logarithm to base 2."),
            ("log10", "Logarithm to base 10."),
            ("log1p", "log(1 + a), accurate near 0."),
            ("sqrt", "Square root, correctly rounded; sqrt(negative) = NaN, sqrt(-0.0) = -0.0."),
            ("rsqrt", "1 / sqrt(a); rsqrt(0) = inf."),
            ("sin", "Sine; full range reduction."),
            ("cos", "Cosine; full range reduction."),
            ("tan", "Tangent."),
            ("asin", "Arc sine."),
            ("acos", "Arc cosine."),
            ("atan", "Arc tangent."),
            ("sinh", "Hyperbolic sine."),
            ("cosh", "Hyperbolic cosine."),
            ("tanh", "Hyperbolic tangent; exactly +-1 at +-inf."),
            ("asinh", "Inverse hyperbolic sine."),
            ("acosh", "Inverse hyperbolic cosine."),
            ("atanh", "Inverse hyperbolic tangent."),
            ("erf", "Error function, within [-1, 1]."),
            ("erfc", "1 - erf(a), accurate for large a."),
            ("floor", "Largest integer not above a; keeps -0.0, inf and NaN."),
            ("ceil", "Smallest integer not below a."),
            ("trunc", "Towards zero."),
            ("round", "To the nearest integer, halves to even."),
        )
    ),
    # predicates
    _row("eq", 2, NUMBERS, "a == b; false with NaN.", torch.eq, Rule.PREDICATE),
    _row("ne", 2, NUMBERS, "a != b; true with NaN.", torch.ne, Rule.PREDICATE),
    _row("lt", 2, NUMBERS, "a < b; false with NaN.", torch.lt, Rule.PREDICATE),
    _row("le", 2, NUMBERS, "a <= b; false with NaN.", torch.le, Rule.PREDICATE),
    _row("gt", 2, NUMBERS, "a > b; false with NaN.", torch.gt, Rule.PREDICATE),
    _row("ge", 2, NUMBERS, "a >= b; false with NaN.", torch.ge, Rule.PREDICATE),
    _row("isnan", 1, FLOATS, "a is NaN.", torch.isnan, Rule.PREDICATE),
    _row("isinf", 1, FLOATS, "a is inf or -inf.", torch.isinf, Rule.PREDICATE),
    # bits
    _row("and", 2, BITS, "Bitwise; logical on b8.", torch.bitwise_and),
    _row("or", 2, BITS, "Bitwise; logical on b8.", torch.bitwise_or),
    _row("xor", 2, BITS, "Bitwise; logical on b8.", torch.bitwise_xor),
    _row("not", 1, BITS, "Bitwise complement; logical on b8.", _bitwise_not),
    _row(
        "shl",
        2,
        INTEGERS,
        "a << b; 0 when b is negative or at least the width in bits.",
        torch.bitwise_left_shift,
    ),
    _row(
        "shr",
        2,
        INTEGERS,
        "a >> b, arithmetic; when b is negative or at least the width: 0, or -1 for negative a.",
        torch.bitwise_right_shift,
    ),
    # select, convert
    _row("where", 3, VALUES, "a where the condition holds, else b; both are evaluated.", torch.where, Rule.SELECT),
    ScalarOp(
        "cast",
        ("value",),
        Rule.CONVERT,
        ALL_TYPES,
        "Conversion as ATen's `to`: to b8 is `!= 0`; float to integer truncates (out of range: unspecified); integers "
        "keep the low bits; narrower floats round half to even, f64 to a half type through f32.",
    ),
)

SCALAR_OPS = MappingProxyType({row.name: row for row in _ROWS})


# ---- kinds of nests -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NestKind:
    """One row of the nest kind table: what `out[axes] = kind over red of body` means.

    Four groups. `map`: no `red`; out[axes] = body. Reductions: `red` holds axes that are not in `axes`;
    out[axes] folds body over all of `red`. Scans: `red` is exactly one axis, which IS ALSO in `axes` (the scanned
    dimension of `out`); the body is the element at `axes`; out[.., a, ..] folds body at (.., 0, ..) .. (.., a, ..).
    So an emitter runs a scan as: for the other axes: acc = identity; for a ascending: acc = fold(acc, body); out = acc.
    A scanned axis is never one of a kernel's rows. Scatters: the body is `scatter(initial, value, place...)`, the one
    place where that stands; `initial` is over `axes`, `value` and the i64 places (one a dimension of `out`) over `red`,
    which may be empty: out = initial; then, for each point of `red`: out[place] = fold(out[place], value). Folds of one
    element happen in row-major order of `red`, where an emitter keeps an order. A scatter is a kernel of its own,
    without rows.

    Args:
        name: Spelling in IR text, in `Nest.kind`.
        types: Element types that the body may have.
        out_type: Element type of `out`; None: the body's.
        scan: Whether it is a scan.
        needs_elements: Whether an empty range is an error (there is no neutral element).
        doc: What it computes.
        reference: (values, number of trailing reduced dimensions) -> result; for scans (values, dimension); for
            scatters (flat output, flat places, flat values) -> flat output.
        scatter: Whether it is a scatter.
    """

    name: str
    types: frozenset[str]
    out_type: str | None
    scan: bool
    needs_elements: bool
    doc: str
    reference: Callable[..., torch.Tensor]
    scatter: bool = False


def identity_of(kind: str, dtype: str) -> bool | int | float:
    """Return the neutral element that a fold of this kind starts from.

    Raises:
        KeyError: The kind has none (map, argmax, argmin).

    Example:
        >>> identity_of("max", "f32"), identity_of("min", "i8")
        (-inf, 127)
    """
    if kind in ("sum", "cumsum"):
        return 0.0 if dtype in FLOATS else 0
    if kind in ("prod", "cumprod"):
        return 1.0 if dtype in FLOATS else 1
    if kind in ("any", "all"):
        return kind == "all"
    if kind not in ("max", "min"):
        raise KeyError(kind)
    if dtype in FLOATS:
        return float("-inf") if kind == "max" else float("inf")
    info = torch.iinfo(dtype_from_name(dtype))
    return info.min if kind == "max" else info.max


def _fold(function: Callable[..., Any]) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """Fold over the last n dimensions as one, in the element type of the values."""

    def reference(values: torch.Tensor, n: int) -> torch.Tensor:
        flat = values.flatten(values.dim() - n)
        result: torch.Tensor = function(flat)
        return result

    return reference


def _sum(flat: torch.Tensor) -> torch.Tensor:
    return flat.sum(-1, dtype=flat.dtype)


def _prod(flat: torch.Tensor) -> torch.Tensor:
    return flat.prod(-1, dtype=flat.dtype)


def _max(flat: torch.Tensor) -> torch.Tensor:
    return flat.amax(-1)


def _min(flat: torch.Tensor) -> torch.Tensor:
    return flat.amin(-1)


def _first(best: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """Position of the first element that is the best; NaN, if there is one, is."""
    is_best = torch.where(best.isnan().unsqueeze(-1), flat.isnan(), flat == best.unsqueeze(-1))
    positions = torch.arange(flat.shape[-1]).expand(flat.shape)
    return torch.where(is_best, positions, flat.shape[-1]).amin(-1)


def _argmax(flat: torch.Tensor) -> torch.Tensor:
    return _first(flat.amax(-1), flat)


def _argmin(flat: torch.Tensor) -> torch.Tensor:
    return _first(flat.amin(-1), flat)


def _map(values: torch.Tensor, n: int) -> torch.Tensor:
    return values


def _cumsum(values: torch.Tensor, dim: int) -> torch.Tensor:
    return values.cumsum(dim, dtype=values.dtype)


def _cumprod(values: torch.Tensor, dim: int) -> torch.Tensor:
    return values.cumprod(dim, dtype=values.dtype)


def _scatter_sum(out: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return out.index_add(0, places, values)


def _scatter_max(out: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return out.scatter_reduce(0, places, values, "amax")


def _scatter_min(out: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return out.scatter_reduce(0, places, values, "amin")


_BOOL = frozenset({"b8"})
_KINDS: tuple[NestKind, ...] = (
    NestKind("map", ALL_TYPES, None, False, False, "out[axes] = body.", _map),
    NestKind("sum", NUMBERS, None, False, False, "Sum, accumulated in the body's type; integers wrap.", _fold(_sum)),
    NestKind("prod", NUMBERS, None, False, False, "Product, in the body's type; integers wrap.", _fold(_prod)),
    NestKind("max", NUMBERS, None, False, False, "Largest; NaN when any is NaN. Empty: the least value.", _fold(_max)),
    NestKind(
        "min", NUMBERS, None, False, False, "Smallest; NaN when any is NaN. Empty: the greatest value.", _fold(_min)
    ),
    NestKind("any", _BOOL, None, False, False, "Whether some body is true.", _fold(lambda flat: flat.any(-1))),
    NestKind("all", _BOOL, None, False, False, "Whether every body is true.", _fold(lambda flat: flat.all(-1))),
    NestKind(
        "argmax",
        NUMBERS,
        "i64",
        False,
        True,
        "Position of the largest body, as a row-major number over `red`; the first of equals; the first NaN wins.",
        _fold(_argmax),
    ),
    NestKind(
        "argmin",
        NUMBERS,
        "i64",
        False,
        True,
        "Position of the smallest body, as a row-major number over `red`; the first of equals; the first NaN wins.",
        _fold(_argmin),
    ),
    NestKind("cumsum", NUMBERS, None, True, False, "Running sum along the scanned axis, in the body's type.", _cumsum),
    NestKind("cumprod", NUMBERS, None, True, False, "Running product along the scanned axis.", _cumprod),
    NestKind(
        "scatter_sum",
        NUMBERS,
        None,
        False,
        False,
        "Sum of the initial value and of what has this place; integers wrap.",
        _scatter_sum,
        True,
    ),
    NestKind(
        "scatter_max",
        NUMBERS,
        None,
        False,
        False,
        "Largest of them; NaN when any is NaN.",
        _scatter_max,
        True,
    ),
    NestKind(
        "scatter_min",
        NUMBERS,
        None,
        False,
        False,
        "Smallest of them; NaN when any is NaN.",
        _scatter_min,
        True,
    ),
)

NEST_KINDS = MappingProxyType({row.name: row for row in _KINDS})
