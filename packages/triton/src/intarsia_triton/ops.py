"""Scalar ops as Triton text: one row an op, over the table of the loops dialect.

A row's template sees its operands as `{0}`, `{1}`, ... Floats follow IEEE where Triton would approximate (`div_rn`,
`sqrt_rn`), maxima and minima propagate NaN, and what Triton's language lacks comes from libdevice.
"""

from __future__ import annotations

import math

from intarsia_ir.errors import UnsupportedError
from intarsia_loops.ops import FLOATS, HALVES
from intarsia_loops.program import Val

__all__ = ["BY_SUM", "POINTED", "TYPES", "constant", "inverse_name", "operation"]

# cheaper forms, of `intarsia_loops.forms`
_FORMS = {"half_div": "({0} / {1})", "half_gelu": "half_gelu({0})"}
# those that also take the inverse of their second operand
BY_SUM = {"div_by_sum": "quotient({0}, {1}, {2})", "half_div_by_sum": "({0} * {2})"}
TYPES = {
    "f64": "tl.float64",
    "f32": "tl.float32",
    "f16": "tl.float16",
    "bf16": "tl.bfloat16",
    "i64": "tl.int64",
    "i32": "tl.int32",
    "i16": "tl.int16",
    "i8": "tl.int8",
    "u8": "tl.uint8",
    "b8": "tl.int1",
}
# how a kernel's signature spells what a pointer points to
POINTED = {
    "f64": "fp64",
    "f32": "fp32",
    "f16": "fp16",
    "bf16": "bf16",
    "i64": "i64",
    "i32": "i32",
    "i16": "i16",
    "i8": "i8",
    "u8": "u8",
    "b8": "i1",
}
_BITS = {"i64": 64, "i32": 32, "i16": 16, "i8": 8, "u8": 8}
_NAN = "propagate_nan=tl.PropagateNan.ALL"

_ANY_TYPE = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "gt": "({0} > {1})",
    "ge": "({0} >= {1})",
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "xor": "({0} ^ {1})",
    "where": "tl.where({0}, {1}, {2})",
}
_FLOAT = {
    "neg": "({0} * -1)",  # Triton's own is 0 - x, which has the wrong sign for 0
    "abs": "tl.abs({0})",
    "max": f"tl.maximum({{0}}, {{1}}, {_NAN})",
    "min": f"tl.minimum({{0}}, {{1}}, {_NAN})",
    "floordiv": "float_floordiv({0}, {1})",
    "mod": "float_mod({0}, {1})",
    "isnan": "({0} != {0})",
    "isinf": '(tl.abs({0}) == float("inf"))',
    **{name: f"tl.{name}({{0}})" for name in ("exp", "exp2", "log", "log2", "sin", "cos", "erf", "floor", "ceil")},
    **{
        name: f"libdevice.{name}({{0}})"
        for name in (
            "expm1", "log10", "log1p", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
            "atanh", "erfc", "trunc",
        )
    },
    "round": "libdevice.rint({0})",
    **{name: f"libdevice.{name}({{0}}, {{1}})" for name in ("fmod", "pow", "copysign", "atan2", "hypot")},
}  # fmt: skip
_F32 = {
    "div": "tl.div_rn({0}, {1})",
    "truncdiv": "libdevice.trunc(tl.div_rn({0}, {1}))",
    "sqrt": "tl.sqrt_rn({0})",
    "rsqrt": "tl.div_rn(1.0, tl.sqrt_rn({0}))",
}
_F64 = {
    "div": "({0} / {1})",
    "truncdiv": "libdevice.trunc({0} / {1})",
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "(1.0 / tl.sqrt({0}))",
}
_INTEGER = {
    "neg": "(0 - {0})",
    "abs": "tl.where({0} < 0, 0 - {0}, {0})",
    "max": "tl.maximum({0}, {1})",
    "min": "tl.minimum({0}, {1})",
    "truncdiv": "({0} // {1})",
    "fmod": "({0} % {1})",
    "floordiv": "integer_floordiv({0}, {1})",
    "mod": "integer_mod({0}, {1})",
    "pow": "integer_pow({0}, {1})",
    "not": "({0} ^ -1)",
}


def operation(v: Val, operands: list[str]) -> str:
    """Return the text of `v` over the texts of its operands.

    Args:
        v: Any op but a leaf.
        operands: Texts, one per operand.

    Raises:
        UnsupportedError: Triton has no form for this op on this type.
    """
    dtype = v.args[0].dtype if v.op != "where" else v.dtype
    if v.op == "cast":
        return _cast(operands[0], dtype, v.dtype)
    if v.op == "not" and dtype == "b8":
        return f"({operands[0]} == 0)"
    if v.op == "not" and dtype == "u8":
        return f"({operands[0]} ^ 255)"
    if v.op in ("shl", "shr"):
        return _shift(v.op, dtype, operands)
    tables = [_ANY_TYPE, _FORMS]
    tables += [_FLOAT, _F32 if dtype == "f32" else _F64] if dtype in ("f32", "f64") else [_INTEGER]
    for table in tables:
        if v.op in table:
            return table[v.op].format(*operands)
    raise UnsupportedError(f"{v.op} on {dtype} has no Triton form", code="triton.op")


def inverse_name(buffer: str) -> str:
    """Return the name of one over a number of a row."""
    return f"inverse_{buffer}"


def constant(number: bool | int | float, dtype: str) -> str:
    """Return a constant of exactly this type; a bare literal would take the type of its neighbour.

    Example:
        >>> constant(0.5, "f32")
        'tl.full([1, 1], 0.5, tl.float32)'
    """
    if dtype in ("f32", "f64"):
        number = float(number)
        if number == 0 and math.copysign(1, number) < 0:  # `full` makes any zero 0.0
            return f"(tl.full([1, 1], 0.0, {TYPES[dtype]}) * -1)"
        text = repr(number) if math.isfinite(number) else f'float("{number}")'
    else:
        # i8 255 and the like: the table says that constants are rounded to their type, which for integers wraps
        text = repr(_wrapped(int(number), dtype))
    return f"tl.full([1, 1], {text}, {TYPES[dtype]})"


def _wrapped(number: int, dtype: str) -> int:
    if dtype == "b8":
        return int(number != 0)
    bits = _BITS[dtype]
    number &= (1 << bits) - 1
    return number - (1 << bits) if dtype[0] == "i" and number >> (bits - 1) else number


def _cast(text: str, source: str, target: str) -> str:
    if target == "b8":
        return f"({text} != 0)"
    if target in ("f16", "bf16") and source == "f64":
        text = f"{text}.to(tl.float32)"
    if target in ("u8", "i8", "i16") and source in FLOATS | HALVES:
        # short integers wrap, as eager's do, where a GPU's own conversion stops at their limits; so does this one, at
        # those of the type in between
        text = f"{text}.to({'tl.int64' if target == 'u8' else 'tl.int32'})"
    return f"{text}.to({TYPES[target]})"


def _shift(op: str, dtype: str, operands: list[str]) -> str:
    value, amount = operands
    outside = f"(({amount} < 0) | ({amount} >= {_BITS[dtype]}))"
    beyond = f"tl.where({value} < 0, -1, 0)" if op == "shr" and dtype[0] == "i" else "0"
    sign = "<<" if op == "shl" else ">>"
    return f"tl.where({outside}, {beyond}, {value} {sign} tl.where({outside}, 0, {amount})).to({TYPES[dtype]})"
