"""Lowerings of elementwise ops: one map each, in the type that ATen computes in.

Types. `common_type` is ATen's promotion of the operands; arithmetic happens in `compute_type` of it (float32 for the
half types), and the result is converted to the type that the recorded value has. Operands are rounded to the promoted
type first, as ATen's CPU kernels do, but for numbers and 0-dim tensors that elements are multiplied with or divided by.

Integer division stays an extern call unless the divisor is a number other than 0 and -1: eager raises for a zero
divisor, and native code would trap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from intarsia_ir.eager import Rounded
from intarsia_loops.index import IndexExpr, row_major
from intarsia_loops.ops import ALL_TYPES, FLOATS, HALVES, INTEGERS
from intarsia_loops.program import Val, val
from intarsia_lowering import _math as m
from intarsia_lowering._builder import Builder, rounded_type
from intarsia_lowering._table import DECLINED, Table
from intarsia_lowering._values import Tensor, common_type, compute_type, constant, fits, operand, promoted, rounded

__all__ = ["TABLE"]

aten: Any = torch.ops.aten
TABLE = Table("pointwise")
Number = bool | int | float


# ---- helpers ------------------------------------------------------------------------------------------------


def _is_number(x: Any) -> bool:
    return isinstance(x, (bool, int, float))


def _known(x: Any) -> bool:
    return isinstance(x, (Tensor, IndexExpr, Val)) or _is_number(x)


def _shared(*operands: Any) -> str | None:
    """The promoted type of the operands when bodies can compute with it and every number fits it."""
    if not all(_known(x) for x in operands):
        return None
    common = common_type(operands)
    return common if common in ALL_TYPES and all(fits(x, common) for x in operands) else None


def _in_common(b: Builder, function: Callable[..., Val], *operands: Any) -> Any:
    """Map over the operands in their promoted type."""
    common = _shared(*operands)
    return DECLINED if common is None else _rounded_map(b, function, *operands, common=common)


def _rounded_map(b: Builder, function: Callable[..., Val], *operands: Any, common: str) -> Tensor:
    """Map over the operands, each converted to `common`, which half types round, then to the type computed in."""
    return b.map(lambda p: function(*[promoted(x, p, common) for x in operands]))


def _scaled(b: Builder, op: str, x: Any, scale: Any, common: str) -> Tensor:
    """Multiply or divide; a second operand that is a number, or has no dimensions, keeps all its digits in ATen."""
    compute = compute_type(common)

    def body(p: Any) -> Val:
        exact = not isinstance(scale, Tensor) or not scale.shape
        return m.binary(op, promoted(x, p, common), operand(scale, p, compute) if exact else promoted(scale, p, common))

    return b.map(body)


def _float_type(b: Builder) -> str:
    """The type that a function with a float result computes in."""
    return compute_type(b.spec().dtype)


# ---- functions of one operand with a float result -----------------------------------------------------------


def _float_function(formula: Callable[[Val], Val]) -> Callable[..., Any]:
    def lowering(b: Builder, self: Tensor) -> Tensor:
        return b.pointwise(formula, self, compute=_float_type(b))

    return lowering


def _op(name: str) -> Callable[[Val], Val]:
    return lambda a: m.unary(name, a)


for _name in [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
]:
    TABLE.put([getattr(aten, _name).default], _float_function(_op(_name)))
TABLE.put([aten.sigmoid.default], _float_function(m.sigmoid))
TABLE.put([aten.reciprocal.default], _float_function(lambda a: m.binary("div", m.number(1.0, a), a)))
TABLE.put(
    [aten.silu.default],
    _float_function(lambda a: m.binary("div", a, m.binary("add", m.unary("exp", m.negative(a)), 1.0))),
)
TABLE.put([aten.mish.default], _float_function(lambda a: m.binary("mul", a, m.unary("tanh", m.log1p_exp(a)))))
TABLE.put(
    [aten.hardsigmoid.default],
    _float_function(lambda a: m.binary("div", m.clamped(m.binary("add", a, 3.0), 0.0, 6.0), 6.0)),
)
TABLE.put(
    [aten.hardswish.default],
    _float_function(lambda a: m.binary("div", m.binary("mul", a, m.clamped(m.binary("add", a, 3.0), 0.0, 6.0)), 6.0)),
)
TABLE.put([aten.deg2rad.default], _float_function(lambda a: m.binary("mul", a, math.pi / 180)))
TABLE.put([aten.rad2deg.default], _float_function(lambda a: m.binary("mul", a, 180 / math.pi)))


@TABLE.add(aten.gelu.default)
def _gelu(b: Builder, self: Tensor, *, approximate: str = "none") -> Tensor:
    spec = b.spec()
    known_to_be_one = all(n.const() == 1 for n in self.shape)
    dense = self.strides is not None and self.strides == row_major(self.shape) and not known_to_be_one
    is_nan = dense and spec.device == "cpu" and spec.dtype in b.nan_gelu
    return b.pointwise(lambda a: m.gelu(a, approximate, nan_at_infinity=is_nan), self, compute=_float_type(b))


@TABLE.add(aten.leaky_relu.default)
def _leaky_relu(b: Builder, self: Tensor, negative_slope: Number = 0.01) -> Tensor:
    return b.pointwise(
        lambda a: m.select(m.compare("gt", a, 0.0), a, m.binary("mul", a, negative_slope)), self, compute=_float_type(b)
    )


@TABLE.add(aten.elu.default)
def _elu(b: Builder, self: Tensor, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Tensor:
    def formula(a: Val) -> Val:
        curve = m.binary("mul", m.unary("expm1", m.binary("mul", a, float(input_scale))), float(alpha) * float(scale))
        return m.select(m.compare("le", a, 0.0), curve, m.binary("mul", a, float(scale)))

    return b.pointwise(formula, self, compute=_float_type(b))


@TABLE.add(aten.softplus.default)
def _softplus(b: Builder, self: Tensor, beta: Number = 1, threshold: Number = 20) -> Tensor:
    def formula(a: Val) -> Val:
        scaled = m.binary("mul", a, float(beta))
        curve = m.binary("div", m.log1p_exp(scaled), float(beta))
        return m.select(m.compare("gt", scaled, float(threshold)), a, curve)

    return b.pointwise(formula, self, compute=_float_type(b))


@TABLE.add(aten.log_sigmoid_forward.default)
def _log_sigmoid_forward(b: Builder, self: Tensor) -> Any:
    result, buffer = b.spec(0), b.spec(1)
    if buffer.shape != result.shape:
        return DECLINED  # devices other than the CPU have an empty second result
    compute = compute_type(result.dtype)

    def tail(a: Val) -> Val:
        return m.unary("exp", m.negative(m.unary("abs", a)))

    def formula(a: Val) -> Val:
        return m.binary("sub", m.binary("min", a, 0.0), m.unary("log1p", tail(a)))

    out = b.pointwise(formula, self, compute=compute, spec=result)
    return out, b.pointwise(tail, self, compute=compute, spec=buffer, role="buffer")


# ---- functions of one operand that keep its type ------------------------------------------------------------


def _same_type(formula: Callable[[Val], Val], *, floats_only: bool = False) -> Callable[..., Any]:
    """Lowering of a function whose result has the operand's type; on other types floats_only functions do nothing."""

    def lowering(b: Builder, self: Tensor) -> Tensor | None:
        compute = compute_type(self.dtype)
        if compute == "b8":
            return DECLINED  # eager raises
        if floats_only and compute not in FLOATS:
            return b.map(self.at)
        return b.pointwise(formula, self, compute=compute)

    return lowering


TABLE.put([aten.neg.default], _same_type(m.negative))
TABLE.put([aten.abs.default], _same_type(_op("abs")))
for _name in ("floor", "ceil", "trunc", "round"):
    TABLE.put([getattr(aten, _name).default], _same_type(_op(_name), floats_only=True))


@TABLE.add(aten.frac.default)
def _frac(b: Builder, self: Tensor) -> Any:
    if compute_type(self.dtype) not in FLOATS:
        return DECLINED  # eager raises
    return b.pointwise(lambda a: m.binary("sub", a, m.unary("trunc", a)), self, compute=_float_type(b))


@TABLE.add(aten.sign.default, aten.sgn.default)
def _sign(b: Builder, self: Tensor) -> Tensor:
    compute = compute_type(self.dtype)
    if compute == "b8":
        return b.map(self.at)

    def formula(a: Val) -> Val:
        zero = constant(0, compute)
        # u8 has no values below 0, and can't hold -1
        below = zero if compute == "u8" else m.select(m.compare("lt", a, 0), constant(-1, compute), zero)
        return m.select(m.compare("gt", a, 0), constant(1, compute), below)

    return b.pointwise(formula, self, compute=compute)


@TABLE.add(aten.relu.default)
def _relu(b: Builder, self: Tensor) -> Tensor | None:
    if self.dtype == "b8":
        return DECLINED
    return b.pointwise(lambda a: m.binary("max", a, 0), self, compute=compute_type(self.dtype))


@TABLE.add(aten.nan_to_num.default)
def _nan_to_num(
    b: Builder, self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    compute = compute_type(self.dtype)
    if compute not in FLOATS:
        return b.map(self.at)
    spec = b.spec()
    info = torch.finfo(
        {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16}.get(spec.dtype, torch.bfloat16)
    )
    high = info.max if posinf is None else posinf
    low = info.min if neginf is None else neginf

    def formula(a: Val) -> Val:
        finite = m.select(m.compare("eq", a, math.inf), m.number(high, a), a)
        finite = m.select(m.compare("eq", a, -math.inf), m.number(low, a), finite)
        return m.select(val("isnan", a, dtype="b8"), m.number(nan or 0.0, a), finite)

    return b.pointwise(formula, self, compute=compute)


# ---- arithmetic of two operands -----------------------------------------------------------------------------


def _sum_like(op: str) -> Callable[..., Any]:
    """self + alpha * other, or the difference."""

    def lowering(b: Builder, self: Any, other: Any, alpha: Number = 1) -> Any:
        common = _shared(self, other)
        if common is None or not fits(alpha, common):
            return DECLINED
        if common == "b8":
            return (
                b.pointwise(lambda x, y: m.binary("or", x, y), self, other, compute="b8")
                if op == "add" and alpha == 1
                else DECLINED
            )

        def formula(x: Val, y: Val) -> Val:
            return m.binary(op, x, y if alpha == 1 else m.binary("mul", y, promoted(alpha, (), common)))

        return _rounded_map(b, formula, self, other, common=common)

    return lowering


_add, _sub = _sum_like("add"), _sum_like("sub")
TABLE.put([aten.add.Tensor, aten.add.Scalar], _add)
TABLE.put([aten.sub.Tensor, aten.sub.Scalar], _sub)


@TABLE.add(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(b: Builder, self: Any, other: Any, alpha: Number = 1) -> Any:
    return _sub(b, other, self, alpha)


@TABLE.add(aten.mul.Tensor, aten.mul.Scalar)
def _mul(b: Builder, self: Any, other: Any) -> Any:
    common = _shared(self, other)
    if common is None:
        return DECLINED
    return _scaled(b, "and" if common == "b8" else "mul", self, other, common)


@TABLE.add(aten.div.Tensor, aten.div.Scalar)
def _div(b: Builder, self: Any, other: Any) -> Any:
    if not (_known(self) and _known(other)):
        return DECLINED
    common = common_type((self, other))
    if common in HALVES:
        return _scaled(b, "div", self, other, common)
    return b.pointwise(lambda x, y: m.binary("div", x, y), self, other, compute=_float_type(b))


def _divides_safely(other: Any, common: str) -> bool:
    """Whether dividing elements of type `common` by `other` can't fault."""
    return common in FLOATS or common in ("f16", "bf16") or (_is_number(other) and other not in (0, -1))


@TABLE.add(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _div_mode(b: Builder, self: Any, other: Any, *, rounding_mode: str | None) -> Any:
    if rounding_mode is None:
        return _div(b, self, other)
    return _division(b, "floordiv" if rounding_mode == "floor" else "truncdiv", self, other)


def _division(b: Builder, op: str, self: Any, other: Any) -> Any:
    common = _shared(self, other)
    if common is None or common == "b8" or not _divides_safely(other, common):
        return DECLINED
    if op in ("mod", "fmod"):
        return _rounded_map(b, lambda x, y: m.binary(op, x, y), self, other, common=common)
    half = rounded_type(b, "floor_divide", Rounded.TENSOR_STEPS, common)
    if op == "floordiv" and half is not None and isinstance(other, Tensor) and other.shape:
        return _rounded_map(b, lambda x, y: _floordiv_stepwise(x, y, half), self, other, common=common)
    return _scaled(b, op, self, other, common)


def _floordiv_stepwise(x: Val, y: Val, half: str) -> Val:
    """Floor division as ATen's CPU kernel writes it for tensors of a half type, which rounds each step."""

    def step(op: str, p: Val, q: Val | float) -> Val:
        return m.rounded_to(m.binary(op, p, q), half)

    rest, exact = m.binary("fmod", x, y), step("div", x, y)
    whole = step("div", step("sub", x, rest), y)
    opposite = val("xor", m.compare("lt", y, 0.0), m.compare("lt", rest, 0.0), dtype="b8")
    whole = m.select(m.and_(m.compare("ne", rest, 0.0), opposite), step("sub", whole, 1.0), whole)
    floor = m.unary("floor", whole)
    above = m.compare("gt", step("sub", whole, floor), 0.5)
    floor = m.select(above, m.binary("add", floor, 1.0), floor)
    signed = m.select(m.compare("ne", whole, 0.0), floor, m.binary("copysign", m.number(0.0, x), exact))
    return m.select(m.compare("eq", y, 0.0), exact, signed)


def _division_by(op: str) -> Callable[..., Any]:
    return lambda b, self, other: _division(b, op, self, other)


TABLE.put([aten.floor_divide.default, aten.floor_divide.Scalar], _division_by("floordiv"))
TABLE.put([aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor], _division_by("mod"))
TABLE.put([aten.fmod.Tensor, aten.fmod.Scalar], _division_by("fmod"))


def _of_two(op: str, *, no_bool: bool = True, bool_op: str = "") -> Callable[..., Any]:
    """One scalar op on operands of the promoted type; `bool_op` is what it is on b8."""

    def lowering(b: Builder, self: Any, other: Any) -> Any:
        is_bool = _shared(self, other) == "b8"
        if is_bool and no_bool and not bool_op:
            return DECLINED
        name = bool_op if is_bool and bool_op else op
        return _in_common(b, lambda x, y: m.binary(name, x, y), self, other)

    return lowering


TABLE.put([aten.maximum.default], _of_two("max", bool_op="or"))
TABLE.put([aten.minimum.default], _of_two("min", bool_op="and"))
TABLE.put(
    [aten.bitwise_and.Tensor, aten.bitwise_and.Scalar, aten.bitwise_and.Scalar_Tensor], _of_two("and", no_bool=False)
)
TABLE.put([aten.bitwise_or.Tensor, aten.bitwise_or.Scalar, aten.bitwise_or.Scalar_Tensor], _of_two("or", no_bool=False))
TABLE.put(
    [aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar, aten.bitwise_xor.Scalar_Tensor], _of_two("xor", no_bool=False)
)
TABLE.put([aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar], _of_two("shl"))
TABLE.put([aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar], _of_two("shr"))


@TABLE.add(aten.bitwise_not.default)
def _bitwise_not(b: Builder, self: Tensor) -> Tensor:
    return b.pointwise(lambda a: m.unary("not", a), self, compute=self.dtype)


def _float_of_two(formula: Callable[[Val, Val], Val]) -> Callable[..., Any]:
    def lowering(b: Builder, self: Any, other: Any) -> Any:
        if not (_known(self) and _known(other)):
            return DECLINED
        common = common_type((self, other))
        if common in HALVES:
            return _rounded_map(b, formula, self, other, common=common)
        return b.pointwise(formula, self, other, compute=_float_type(b))

    return lowering


TABLE.put([aten.atan2.default], _float_of_two(lambda x, y: m.binary("atan2", x, y)))
TABLE.put([aten.hypot.default], _float_of_two(lambda x, y: m.binary("hypot", x, y)))
TABLE.put([aten.copysign.Tensor, aten.copysign.Scalar], _float_of_two(lambda x, y: m.binary("copysign", x, y)))


def _ignoring_nan(op: str) -> Callable[..., Any]:
    """fmax and fmin: the other operand where one is NaN."""

    def formula(x: Val, y: Val) -> Val:
        best = m.binary(op, x, y)
        if x.dtype not in FLOATS:
            return best
        return m.select(val("isnan", x, dtype="b8"), y, m.select(val("isnan", y, dtype="b8"), x, best))

    def lowering(b: Builder, self: Any, other: Any) -> Any:
        return DECLINED if _shared(self, other) == "b8" else _in_common(b, formula, self, other)

    return lowering


TABLE.put([aten.fmax.default], _ignoring_nan("max"))
TABLE.put([aten.fmin.default], _ignoring_nan("min"))


def _logaddexp_formula(x: Val, y: Val) -> Val:
    spread = m.unary("exp", m.negative(m.unary("abs", m.binary("sub", x, y))))
    usual = m.binary("add", m.binary("max", x, y), m.unary("log1p", spread))
    both_infinite = m.and_(val("isinf", x, dtype="b8"), m.compare("eq", x, y))
    return m.select(both_infinite, x, usual)


def _xlogy_formula(x: Val, y: Val, half: str | None = None) -> Val:
    """x * log(y), 0 where x is; `half`: the type that ATen's kernel computes in, so that it rounds the logarithm."""
    log = m.unary("log", y)
    product = m.binary("mul", x, log if half is None else m.rounded_to(log, half))
    vanishes = m.and_(m.compare("eq", x, 0.0), m.not_(val("isnan", y, dtype="b8")))
    return m.select(vanishes, m.number(0.0, x), product)


TABLE.put([aten.logaddexp.default], _float_of_two(_logaddexp_formula))


@TABLE.add(aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other)
def _xlogy(b: Builder, self: Any, other: Any) -> Any:
    common = common_type((self, other)) if _known(self) and _known(other) else None
    half = None if common is None else rounded_type(b, "xlogy", Rounded.LOGARITHM, common)
    return _float_of_two(lambda x, y: _xlogy_formula(x, y, half))(b, self, other)


# ---- powers -------------------------------------------------------------------------------------------------


def _power(x: Val, exponent: Number, squares: str | None, *, roots: bool) -> Val:
    """x ** number, with the exponents that ATen treats apart, roots or not; `squares`: what it rounds squares to."""
    square = m.square(x) if squares is None else m.rounded_to(m.square(x), squares)
    if exponent == 2:
        return square
    if exponent == 3:
        return m.binary("mul", square, x)
    if x.dtype not in FLOATS or (abs(exponent) == 0.5 and not roots):
        return m.binary("pow", x, exponent)
    if exponent == -2:
        return m.binary("div", m.number(1.0, x), square)
    if exponent == 0.5:
        return m.unary("sqrt", x)
    if exponent == -0.5:
        return m.unary("rsqrt", x)
    if exponent == -1:
        return m.binary("div", m.number(1.0, x), x)
    return m.binary("pow", x, exponent)


@TABLE.add(aten.pow.Tensor_Scalar)
def _pow_number(b: Builder, self: Tensor, exponent: Number) -> Any:
    common = _shared(self, exponent)
    if common is None or common == "b8" or (common in INTEGERS and exponent < 0):
        return DECLINED  # eager raises for negative powers of integers
    spec = b.spec()
    if exponent == 0:
        return b.map(lambda _: constant(1, compute_type(spec.dtype)))
    if exponent == 1:
        return b.map(self.at)
    exponent = rounded(exponent, common)
    squares = rounded_type(b, "pow.Tensor_Scalar", Rounded.SQUARE, common)
    roots = common != "f16" or spec.device != "cpu"  # of whole exponents alone a CPU's kernel treats these apart
    return b.pointwise(lambda x: _power(x, exponent, squares, roots=roots), self, compute=compute_type(common))


@TABLE.add(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def _pow(b: Builder, self: Any, exponent: Any) -> Any:
    common = _shared(self, exponent)
    if common is None or common == "b8":
        return DECLINED
    return _rounded_map(b, lambda x, y: m.binary("pow", x, y), self, exponent, common=common)


# ---- comparisons, predicates, logic -------------------------------------------------------------------------


def _comparison(op: str, on_bool: Callable[[Val, Val], Val]) -> Callable[..., Any]:
    def lowering(b: Builder, self: Any, other: Any) -> Any:
        common = _shared(self, other)
        if common is None:
            return DECLINED
        if common == "b8":
            return b.pointwise(on_bool, self, other, compute="b8")
        return _rounded_map(b, lambda p, q: m.compare(op, p, q), self, other, common=common)

    return lowering


for _name, _on_bool in {
    "eq": lambda x, y: m.not_(m.binary("xor", x, y)),
    "ne": lambda x, y: m.binary("xor", x, y),
    "lt": lambda x, y: m.binary("and", m.not_(x), y),
    "le": lambda x, y: m.binary("or", m.not_(x), y),
    "gt": lambda x, y: m.binary("and", x, m.not_(y)),
    "ge": lambda x, y: m.binary("or", x, m.not_(y)),
}.items():
    _packet = getattr(aten, _name)
    TABLE.put([_packet.Tensor, _packet.Scalar], _comparison(_name, _on_bool))


def _predicate(op: str) -> Callable[..., Any]:
    """A property that only floats can have."""

    def lowering(b: Builder, self: Tensor) -> Tensor:
        compute = compute_type(self.dtype)
        if compute not in FLOATS:
            return b.map(lambda _: constant(False, "b8"))
        return b.pointwise(lambda a: val(op, a, dtype="b8"), self, compute=compute)

    return lowering


TABLE.put([aten.isnan.default], _predicate("isnan"))
TABLE.put([aten.isinf.default], _predicate("isinf"))


@TABLE.add(aten.signbit.default)
def _signbit(b: Builder, self: Tensor) -> Tensor:
    compute = compute_type(self.dtype)
    if compute == "b8":
        return b.map(lambda _: constant(False, "b8"))
    if compute not in FLOATS:
        return b.pointwise(lambda a: m.compare("lt", a, 0), self, compute=compute)
    return b.pointwise(lambda a: m.compare("lt", m.binary("copysign", m.number(1.0, a), a), 0.0), self, compute=compute)


for _name in ("and", "or", "xor"):
    TABLE.put(
        [getattr(aten, f"logical_{_name}").default],
        (lambda op: lambda b, self, other: b.pointwise(lambda x, y: m.binary(op, x, y), self, other, compute="b8"))(
            _name
        ),
    )


@TABLE.add(aten.logical_not.default)
def _logical_not(b: Builder, self: Tensor) -> Tensor:
    return b.pointwise(m.not_, self, compute="b8")


# ---- choosing -----------------------------------------------------------------------------------------------


@TABLE.add(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def _where(b: Builder, condition: Tensor, self: Any, other: Any) -> Any:
    common = _shared(self, other)
    if common is None:
        return DECLINED
    compute = compute_type(common)
    return b.map(lambda p: m.select(operand(condition, p, "b8"), operand(self, p, compute), operand(other, p, compute)))


@TABLE.add(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(b: Builder, self: Tensor, mask: Tensor, value: Any) -> Any:
    if not (_known(value) and fits(value, self.dtype)):
        return DECLINED
    compute = compute_type(self.dtype)
    return b.map(lambda p: m.select(operand(mask, p, "b8"), operand(value, p, compute), operand(self, p, compute)))


@TABLE.add(aten.clamp.default, aten.clamp.Tensor)
def _clamp(b: Builder, self: Tensor, min: Any = None, max: Any = None) -> Any:
    bounds = [x for x in (min, max) if x is not None]
    common = _shared(self, *bounds)
    if common is None or common == "b8":
        return DECLINED
    low, high = (rounded(v, common) if _is_number(v) else v for v in (min, max))
    compute = compute_type(common)

    def body(p: Any) -> Val:
        a = operand(self, p, compute)
        a = a if low is None else m.binary("max", a, operand(low, p, compute))
        return a if high is None else m.binary("min", a, operand(high, p, compute))

    return b.map(body)


@TABLE.add(aten.clamp_min.default, aten.clamp_min.Tensor)
def _clamp_min(b: Builder, self: Tensor, min: Any) -> Any:
    return _clamp(b, self, min, None)


@TABLE.add(aten.clamp_max.default, aten.clamp_max.Tensor)
def _clamp_max(b: Builder, self: Tensor, max: Any) -> Any:
    return _clamp(b, self, None, max)


@TABLE.add(aten.hardtanh.default)
def _hardtanh(b: Builder, self: Tensor, min_val: Number = -1, max_val: Number = 1) -> Any:
    if not (fits(min_val, self.dtype) and fits(max_val, self.dtype)):
        return DECLINED
    return _clamp(b, self, min_val, max_val)


@TABLE.add(aten.threshold.default)
def _threshold(b: Builder, self: Tensor, threshold: Number, value: Number) -> Any:
    if self.dtype == "b8" or not (fits(threshold, self.dtype) and fits(value, self.dtype)):
        return DECLINED
    compute = compute_type(self.dtype)
    other = constant(rounded(value, self.dtype), compute)
    return b.pointwise(lambda a: m.select(m.compare("le", a, threshold), other, a), self, compute=compute)


# ---- mixes of three -----------------------------------------------------------------------------------------


@TABLE.add(aten.lerp.Scalar, aten.lerp.Tensor)
def _lerp(b: Builder, self: Tensor, end: Tensor, weight: Any) -> Tensor:
    def formula(x: Val, y: Val, w: Val) -> Val:
        span = m.binary("sub", y, x)
        near_start = m.binary("add", x, m.binary("mul", w, span))
        near_end = m.binary("sub", y, m.binary("mul", span, m.binary("sub", m.number(1.0, w), w)))
        return m.select(m.compare("lt", m.unary("abs", w), 0.5), near_start, near_end)

    return b.pointwise(formula, self, end, weight, compute=_float_type(b))


def _added(op: str) -> Callable[..., Any]:
    """self + value * tensor1 (* or /) tensor2."""

    def lowering(b: Builder, self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Any:
        common = _shared(self, tensor1, tensor2)
        if common is None or common == "b8" or not fits(value, common) or (op == "div" and common in INTEGERS):
            return DECLINED

        def formula(x: Val, y: Val, z: Val) -> Val:
            scaled = y if value == 1 else m.binary("mul", y, value)
            return m.binary("add", x, m.binary(op, scaled, z))

        return b.pointwise(formula, self, tensor1, tensor2, compute=compute_type(common))

    return lowering


TABLE.put([aten.addcmul.default], _added("mul"))
TABLE.put([aten.addcdiv.default], _added("div"))


# ---- copies and conversions ---------------------------------------------------------------------------------


@TABLE.add(aten.clone.default)
def _clone(b: Builder, self: Tensor, *, memory_format: Any = None) -> Tensor:
    return b.map(self.at)


@TABLE.add(aten.lift_fresh_copy.default)
def _lift_fresh_copy(b: Builder, self: Tensor) -> Tensor:
    return b.map(self.at)


@TABLE.add(aten._to_copy.default)
def _to_copy(b: Builder, self: Tensor, **_: Any) -> Any:
    if b.buffers[self.buffer].device != b.spec().device:
        return DECLINED
    return b.map(self.at)


@TABLE.add(aten.copy.default)
def _copy(b: Builder, self: Tensor, src: Tensor, non_blocking: bool = False) -> Any:
    if b.buffers[src.buffer].device != b.spec().device:
        return DECLINED
    spec = b.spec()
    return b.map(lambda p: operand(src, p, spec.dtype))


@TABLE.add(aten.fill.Scalar, aten.fill.Tensor)
def _fill(b: Builder, self: Tensor, value: Any) -> Any:
    if not (_known(value) and fits(value, self.dtype)):
        return DECLINED
    compute = compute_type(self.dtype)
    return b.map(lambda p: operand(value, p, compute))
