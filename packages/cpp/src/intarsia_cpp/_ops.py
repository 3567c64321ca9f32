"""How each row of the scalar op table is spelled in C++ on vectors of `lanes` elements.

A value in registers is a `Rep`. Numbers are vectors of their own element type; half types are their 16 bits; b8 is a
mask: a signed integer vector with -1 for true and 0 for false, as wide as what made it (`Rep.ctype`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from intarsia_ir.errors import UnsupportedError
from intarsia_loops.ops import FLOATS, HALVES, INTEGERS

__all__ = ["ELEMENT", "WIDTH", "Rep", "constant", "convert", "element", "expression", "vector"]

ELEMENT = {
    "f32": "f32", "f64": "f64", "f16": "u16", "bf16": "u16", "b8": "u8",
    "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8", "u8": "u8",
}  # fmt: skip
WIDTH = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "b8": 1, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1}

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
         "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}  # fmt: skip
PREDICATES = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf"})


@dataclass(frozen=True, slots=True)
class Rep:
    """A value in registers.

    Args:
        text: C expression without side effects, cheap to repeat.
        dtype: Its element type.
        ctype: C vector type; for b8 the mask type.
    """

    text: str
    dtype: str
    ctype: str


def element(dtype: str) -> str:
    """Return the C type of one element in memory.

    Raises:
        UnsupportedError: No kernel can hold this type (complex numbers, 8-bit floats).
    """
    if dtype not in ELEMENT:
        raise UnsupportedError(
            f"generated C++ has no element type {dtype}",
            code="cpp.dtype",
            hints=("keep operations on this type in eager (an extern call)",),
        )
    return ELEMENT[dtype]


def vector(dtype: str, lanes: int) -> str:
    """Return the C vector type of values of `dtype`; of memory contents for b8 (bytes 0 and 1)."""
    return f"{element(dtype)}x{lanes}"


def mask_type(bits: int, lanes: int) -> str:
    """Return the mask type whose lanes have this many bits."""
    return f"i{bits}x{lanes}"


def constant(number: float, dtype: str, lanes: int) -> Rep:
    """Return a broadcast constant."""
    if dtype == "b8":
        ctype = mask_type(32, lanes)
        return Rep(f"bc<{ctype}>({-1 if number else 0})", "b8", ctype)
    ctype = vector(dtype, lanes)
    return Rep(f"bc<{ctype}>({number_text(number, dtype)})", dtype, ctype)


def number_text(number: float, dtype: str) -> str:
    """Return a Python number as a C expression that converts to `dtype` as torch converts a Python scalar."""
    if dtype in FLOATS:
        x = float(number)
        if math.isnan(x):
            return '__builtin_nan("")'
        if math.isinf(x):
            return "__builtin_inf()" if x > 0 else "-__builtin_inf()"
        return repr(x)
    bits = 8 * WIDTH[dtype]
    n = int(number) % (1 << bits)
    if dtype[0] == "i" and n >> (bits - 1):
        n -= 1 << bits
    return f"({n + 1}LL - 1)" if n == -(1 << 63) else f"{n}LL" if abs(n) >= 1 << 31 else str(n)


def expression(op: str, dtype: str, args: list[Rep], lanes: int) -> Rep:
    """Return the value of one scalar op; operands of masks must have equal mask types already.

    Args:
        op: Row of the scalar op table, no leaf.
        dtype: Element type of the result.
        args: Operands.
        lanes: Vector width in elements.
    """
    texts = [a.text for a in args]
    ctype = args[-1].ctype
    if op == "cast":
        return convert(args[0], dtype, lanes)
    if op in PREDICATES:
        ctype = mask_type(8 * WIDTH[args[0].dtype], lanes)
    if op in INFIX:
        return Rep(f"{texts[0]} {INFIX[op]} {texts[1]}", dtype, ctype)
    match op:
        case "where":
            return Rep(f"{texts[0]} ? {texts[1]} : {texts[2]}", dtype, ctype)
        case "neg":
            return Rep(f"-{texts[0]}", dtype, ctype)
        case "not":
            return Rep(f"~{texts[0]}", dtype, ctype)
        case "isnan":
            return Rep(f"{texts[0]} != {texts[0]}", dtype, ctype)
        case "isinf":
            return Rep(f"vabs({texts[0]}) == bc<{args[0].ctype}>(__builtin_inf())", dtype, ctype)
    prefix = "i" if args[0].dtype in INTEGERS else "v"
    return Rep(f"{prefix}{op}({', '.join(texts)})", dtype, ctype)


def convert(a: Rep, dtype: str, lanes: int) -> Rep:
    """Return `a` converted as ATen's `to` converts."""
    to = vector(dtype, lanes)
    if a.dtype == dtype:
        return a
    if dtype == "b8":
        if a.dtype in HALVES:
            a = convert(a, "f32", lanes)
        return Rep(f"({a.text} != {a.ctype}{{}})", "b8", mask_type(8 * WIDTH[a.dtype], lanes))
    if a.dtype == "b8":
        return _from_mask(a, dtype, lanes)
    if a.dtype in HALVES:
        wide = Rep(f"up_{a.dtype}<f32x{lanes}>({a.text})", "f32", f"f32x{lanes}")
        return wide if dtype == "f32" else convert(wide, dtype, lanes)
    if dtype in HALVES:
        single = convert(a, "f32", lanes)
        return Rep(f"down_{dtype}<{to}>({single.text})", dtype, to)
    if a.dtype in FLOATS and dtype not in FLOATS and not a.text.startswith("hide("):
        return convert(Rep(f"hide({a.text})", a.dtype, a.ctype), dtype, lanes)
    if a.dtype in FLOATS and dtype in ("i16", "i8", "u8"):  # through 32 bits, as C on this hardware does
        return convert(Rep(f"cv<i32x{lanes}>({a.text})", "i32", f"i32x{lanes}"), dtype, lanes)
    return Rep(f"cv<{to}>({a.text})", dtype, to)


def _from_mask(a: Rep, dtype: str, lanes: int) -> Rep:
    to = vector(dtype, lanes)
    if dtype in HALVES:
        return convert(_from_mask(a, "f32", lanes), dtype, lanes)
    mask = widened(a, 8 * WIDTH[dtype], lanes).text
    if dtype in FLOATS:
        return Rep(f"({mask} ? bc<{to}>(1) : {to}{{}})", dtype, to)
    return Rep(f"({to})({mask} & 1)", dtype, to)


def widened(a: Rep, bits: int, lanes: int) -> Rep:
    """Return a mask in lanes of this many bits."""
    ctype = mask_type(bits, lanes)
    return a if a.ctype == ctype else Rep(f"cv<{ctype}>({a.text})", "b8", ctype)


def mask_bits(a: Rep) -> int:
    """Return the width in bits of the lanes of a mask."""
    return int(a.ctype[1:].split("x")[0])
