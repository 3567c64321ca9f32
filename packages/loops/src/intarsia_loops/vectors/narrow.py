"""Integer arithmetic on positions in 32 bits where it can't overflow: twice as many vector lanes.

before: lt(index(i1), add(index(i0), 1)): i64 operands        after: the same with i32 operands
Side condition: every value in between lies in the range of i32, by the bounds of the index expressions. Law: integers
that fit are equal, ordered and converted alike in both widths.

before: lt(index(i1), index(s0)), for any size s0            after: lt(index(i1 - s0), 0) with i32 operands
An index in i32 whose bounds don't fit is emitted saturated. Law: saturating keeps the sign, and what is 0.
"""

from __future__ import annotations

from dataclasses import replace

from intarsia_loops.index import IndexExpr, lift
from intarsia_loops.program import Kernel, Nest, Val, cast, const, index_value, val
from intarsia_loops.rewrites import operands, postorder

__all__ = ["is_saturated", "narrowed"]

LEAST, MOST = -(1 << 31), (1 << 31) - 1
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
Narrow = tuple[Val, int, int]  # the i32 value, its least and its largest number


def narrowed(kernel: Kernel) -> Kernel:
    """Return the kernel with position arithmetic in i32 where possible; values and results are the same."""
    steps = tuple(_narrowed_nest(s) for s in kernel.steps)
    return kernel if steps == kernel.steps else replace(kernel, steps=steps)


def is_saturated(expr: IndexExpr, dtype: str) -> bool:
    """Tell whether an index of this type is emitted saturated, because its numbers may not fit."""
    return dtype == "i32" and (expr.lo < LEAST or expr.hi > MOST)


def _narrowed_nest(nest: Nest) -> Nest:
    values = list(postorder(nest.body))
    if not any(v.op == "index" for v in values):
        return nest
    small: dict[Val, Narrow] = {}
    new: dict[Val, Val] = {}
    for v in values:
        new[v] = _rebuilt(v, new, small)
        found = _narrow(v, new, small) if v.dtype == "i64" else None
        if found is not None and found[1] >= LEAST and found[2] <= MOST:
            small[v] = found
    return replace(nest, body=new[nest.body])


def _rebuilt(v: Val, new: dict[Val, Val], small: dict[Val, Narrow]) -> Val:
    """The value itself, with comparisons and conversions of narrow operands done on those."""
    args = operands(v)
    if v.op in COMPARISONS and all(a in small for a in args):
        return val(v.op, *(small[a][0] for a in args), dtype="b8")
    if v.op in COMPARISONS and all(a.op in ("index", "const") and a.dtype == "i64" for a in args):
        first, second = (lift(a.args[0]) for a in args)
        return val(v.op, index_value(first - second, "i32"), const(0, "i32"), dtype="b8")
    if v.op == "cast" and args[0].op == "index" and v.dtype in ("f32", "f64") and not args[0].args[0].axes():
        return index_value(args[0].args[0], v.dtype)  # a size: one number for all lanes, converted once
    if v.op == "cast" and args[0] in small and v.dtype != "i64":
        return cast(small[args[0]][0], v.dtype)
    if v.op == "gather":
        entries = tuple(new[i] if type(i) is Val else i for i in v.args[1])
        return val("gather", v.args[0], entries, dtype=v.dtype)
    return val(v.op, *(new[a] for a in args), dtype=v.dtype) if args else v


def _narrow(v: Val, new: dict[Val, Val], small: dict[Val, Narrow]) -> Narrow | None:
    """The value in i32 with its bounds, or None where that isn't known to be possible."""
    args = operands(v)
    if v.op == "index":
        (expr,) = v.args
        return index_value(expr, "i32"), expr.lo, expr.hi
    if v.op == "const":
        return const(v.args[0], "i32"), int(v.args[0]), int(v.args[0])
    if v.op == "cast" and args[0].dtype in ("b8", "i8", "i16", "i32", "u8"):
        bits = {"b8": 1, "u8": 8, "i8": 7, "i16": 15, "i32": 31}[args[0].dtype]
        return cast(new[args[0]], "i32"), 0 if args[0].dtype in ("b8", "u8") else -(1 << bits), (1 << bits) - 1
    if v.op == "where" and args[1] in small and args[2] in small:
        (a, a_low, a_high), (b, b_low, b_high) = small[args[1]], small[args[2]]
        return val("where", new[args[0]], a, b, dtype="i32"), min(a_low, b_low), max(a_high, b_high)
    if not all(a in small for a in args):
        return None
    return _narrow_arithmetic(v.op, [small[a] for a in args])


def _narrow_arithmetic(op: str, args: list[Narrow]) -> Narrow | None:
    values, bounds = [a[0] for a in args], [a[1:] for a in args]
    if op == "neg":
        return val("neg", *values, dtype="i32"), -bounds[0][1], -bounds[0][0]
    if len(args) != 2:
        return None
    (a, b), (c, d) = bounds
    corners = {
        "add": (a + c, b + d),
        "sub": (a - d, b - c),
        "mul": (min(a * c, a * d, b * c, b * d), max(a * c, a * d, b * c, b * d)),
        "max": (max(a, c), max(b, d)),
        "min": (min(a, c), min(b, d)),
    }
    if op not in corners:
        return None
    return val(op, *values, dtype="i32"), *corners[op]
