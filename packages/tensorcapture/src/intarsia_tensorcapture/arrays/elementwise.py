"""Functions of numpy that compute element by element: each ufunc's torch form, in the type that numpy computes in."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from intarsia_ir import meta
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Value
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.operands import Operand, operand, stored, tensor_of
from intarsia_tensorcapture.arrays.recording import cast, expect_all, expect_quiet, known, made, result_of
from intarsia_tensorcapture.arrays.types import TORCH_TYPES, loop_of, raising, torch_type
from intarsia_tensorcapture.arrays.values import ArrayValue, OfTensor
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["FORMS", "Form", "apply", "apply_ufunc", "refuse_saved", "write", "written_into"]


class Form(NamedTuple):
    """How torch computes what a ufunc does.

    Args:
        target: The function, of tensors of one type.
        numbers: Whether an operand may be a number.
        warns: Whether numpy may warn of the result: of infinities, and of NaNs, that weren't there before.
        on_bools: The function for bools, where it is another.
        check: Looks at the operands and the type before; breaks where torch does something else.
    """

    target: Any
    numbers: bool = False
    warns: bool = False
    on_bools: Any = None
    check: Callable[[Sequence[Operand], Any], None] | None = None


def _divisor(given: Sequence[Operand], dtype: Any) -> None:
    """Integers are divided by a number that is neither 0, of which numpy warns, nor -1, which may overflow."""
    if dtype.kind in "iu" and (given[1].tensor is not None or isinstance(given[1].number, Value)):
        raise Break("tracer.array_warning", "integers are divided by ones that only the graph knows")
    if dtype.kind in "iu" and given[1].number in (0, -1):
        raise Break("tracer.array_warning", f"integers are divided by {given[1].number}")


def _of_floats(given: Sequence[Operand], dtype: Any) -> None:
    """Of integers, numpy warns where one is 0."""
    if dtype.kind != "f":
        raise Break("tracer.array_warning", f"reciprocals of {dtype} are taken")


def _exponent(given: Sequence[Operand], dtype: Any) -> None:
    """Integers have powers to a number that isn't negative."""
    number = given[1].number
    if dtype.kind not in "iu":
        return
    if given[1].tensor is not None or isinstance(number, Value):
        raise Break("tracer.numpy", "the exponent of a power of integers isn't known")
    if number < 0:
        raise Break("tracer.operation_raised", "integers have no powers to negative ones")


def _distance(given: Sequence[Operand], dtype: Any) -> None:
    """Bits are shifted by a number that is less than there are."""
    number = given[1].number
    if given[1].tensor is not None or isinstance(number, Value) or not 0 <= number < dtype.itemsize * 8:
        raise Break("tracer.numpy", "bits are shifted by what isn't known, or by more bits than there are")


_RISKY = """
    sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh arctanh:atanh arcsin:asin arccos:acos arccosh:acosh
    square degrees:rad2deg rad2deg
"""
_CALM = """
    negative:neg positive:clone absolute:abs fabs:abs floor ceil trunc rint:round tanh arctan:atan arcsinh:asinh isnan
    isinf isfinite signbit logical_not conjugate:clone deg2rad radians:deg2rad invert:bitwise_not
    logical_and logical_or logical_xor fmax fmin maximum minimum bitwise_and bitwise_or bitwise_xor arctan2:atan2
    copysign gcd lcm nextafter
"""
_COMPARISONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def _named(rows: str, warns: bool) -> dict[str, Form]:
    pairs = [row.partition(":") for row in rows.split()]
    return {name: Form(getattr(torch, other or name), warns=warns) for name, _, other in pairs}


#: Name of a ufunc -> its form.
FORMS: dict[str, Form] = {
    **_named(_RISKY, True),
    **_named(_CALM, False),
    **{name: Form(function, numbers=True) for name, function in _COMPARISONS.items()},
    "add": Form(operator.add, numbers=True, warns=True, on_bools=torch.logical_or),
    "subtract": Form(operator.sub, numbers=True, warns=True),
    "multiply": Form(operator.mul, numbers=True, warns=True, on_bools=torch.logical_and),
    "divide": Form(operator.truediv, numbers=True, warns=True),
    "floor_divide": Form(torch.floor_divide, warns=True, check=_divisor),
    "remainder": Form(torch.remainder, warns=True, check=_divisor),
    "fmod": Form(torch.fmod, warns=True, check=_divisor),
    "power": Form(torch.pow, numbers=True, warns=True, check=_exponent),
    "float_power": Form(torch.pow, numbers=True, warns=True),
    "reciprocal": Form(torch.reciprocal, warns=True, check=_of_floats),
    "hypot": Form(torch.hypot, warns=True),
    "logaddexp": Form(torch.logaddexp, warns=True),
    "left_shift": Form(operator.lshift, numbers=True, check=_distance),
    "right_shift": Form(operator.rshift, numbers=True, check=_distance),
}


def apply_ufunc(tx: Tracer, ufunc: Any, args: Sequence[Value], dtype: Any = None) -> Value:
    """Model a call of a ufunc on its operands, with a result of numpy's type `dtype` if one is named."""
    form = FORMS.get(ufunc.__name__)
    if form is None or len(args) != ufunc.nin:
        raise Break("tracer.numpy", f"numpy.{ufunc.__name__} has no torch form")
    given = [operand(tx, arg) for arg in args]
    loop = loop_of(ufunc, [g.dtype for g in given], dtype)
    return apply(tx, form, ufunc.__name__, given, loop)


def apply(tx: Tracer, form: Form, name: str, given: Sequence[Operand], loop: tuple[Any, ...]) -> Value:
    """Compute a form in the types of numpy's loop."""
    for each in loop:
        torch_type(each)
    if form.check is not None:
        form.check(given, loop[0])
    parts = [_part(tx, form, g, dtype) for g, dtype in zip(given, loop, strict=False)]
    target = form.on_bools if form.on_bools is not None and loop[0].kind == "b" else form.target
    found = _sign_of(tx, parts[0]) if name == "sign" else made(tx, target, *parts)
    if found.fake.dtype != TORCH_TYPES[loop[-1]]:
        found = made(tx, "to", found, TORCH_TYPES[loop[-1]])
    if form.warns:
        _rely_on_quiet(tx, name, found, [part for part in parts if isinstance(part, TensorValue)], parts)
    return result_of(found)


def _part(tx: Tracer, form: Form, given: Operand, dtype: Any) -> Any:
    """Return an operand for the function: a tensor of the loop's type, or a number that is exact in it."""
    if given.tensor is not None or not form.numbers:
        return tensor_of(tx, given, dtype)
    if isinstance(given.number, Value):
        wide = dtype in (np.dtype("int64"), np.dtype("float64"), np.dtype("float32"))
        return given.number if wide else stored(known(given.number), dtype)
    return stored(given.number, dtype)


def _sign_of(tx: Tracer, tensor: TensorValue) -> TensorValue:
    """The sign of a NaN is a NaN, which torch takes for 0."""
    sign = made(tx, torch.sign, tensor)
    return (
        made(tx, torch.where, made(tx, torch.isnan, tensor), tensor, sign) if tensor.fake.is_floating_point() else sign
    )


FORMS["sign"] = Form(torch.sign)


def _rely_on_quiet(tx: Tracer, name: str, found: TensorValue, given: list[TensorValue], parts: Sequence[Any]) -> None:
    """Rely on numpy not warning; of integers, it warns where scalars overflow."""
    if found.fake.dtype.is_floating_point:
        expect_quiet(tx, found, given)
    elif found.fake.dim() == 0 and found.fake.dtype is not torch.bool and name in _OVERFLOWING:
        wide = [made(tx, "to", part, torch.float64) if isinstance(part, TensorValue) else part for part in parts]
        exact = made(tx, FORMS[name].target, *wide)
        limits = torch.iinfo(found.fake.dtype)
        # sums of float64 are rounded: nothing near the limits passes
        low = float(limits.min) * 0.999 if limits.min else -0.5
        above = made(tx, torch.ge, exact, low)
        expect_all(tx, made(tx, torch.logical_and, above, made(tx, torch.le, exact, float(limits.max) * 0.999)))


_OVERFLOWING = frozenset({"add", "subtract", "multiply", "square", "power"})


def written_into(tx: Tracer, array: ArrayValue, found: Value) -> None:
    """Write a result into an array, as `out=` and in-place operators do."""
    assert isinstance(found, OfTensor)
    if not np.can_cast(found.dtype, array.dtype, "same_kind"):
        raise Break("tracer.operation_raised", f"{found.describe()} is stored in {array.describe()}")
    shapes = tuple(found.shape), tuple(array.shape)
    if raising(lambda: np.broadcast_shapes(*shapes), "broadcast_shapes") != shapes[1]:
        raise Break("tracer.operation_raised", f"{found.describe()} is stored in {array.describe()}")
    write(tx, array, cast(tx, found.tensor, array.dtype))


def write(tx: Tracer, array: ArrayValue, tensor: TensorValue) -> None:
    """Write all elements of an array."""
    refuse_saved(tx, array)
    made(tx, "copy_", array.tensor, tensor)


def refuse_saved(tx: Tracer, array: ArrayValue) -> None:
    """Break before memory is written behind the back of autograd, which a graph would count as a write."""
    if torch.is_grad_enabled():
        for node in array.tensor.plugin.graph.nodes:
            value = meta.value(node)
            if isinstance(value, torch.Tensor) and value.requires_grad:
                raise Break(
                    "tracer.numpy", "an array is written where gradients are recorded, which autograd doesn't see"
                )
