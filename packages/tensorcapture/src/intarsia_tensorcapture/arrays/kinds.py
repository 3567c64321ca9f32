"""What can be done with arrays, scalars, types and functions of numpy: the rules of their models.

Those of scalars that are known are in `known_scalars`, what methods do in `methods`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding, iteration
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import Const, boolean
from intarsia_pyeval.values.numbers import COMPARISONS, ChangingNumber
from intarsia_pyeval.values.sequences import Items, Tuple
from intarsia_tensorcapture.arrays import known_scalars, shaping
from intarsia_tensorcapture.arrays.backward import item_or_backward
from intarsia_tensorcapture.arrays.calls import ROWS, bound, call_numpy
from intarsia_tensorcapture.arrays.elementwise import apply_ufunc, written_into
from intarsia_tensorcapture.arrays.indexing import index_of_tensor, item_of_array, set_item_of_array
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.methods import METHODS, OWN
from intarsia_tensorcapture.arrays.products import matmul
from intarsia_tensorcapture.arrays.recording import known, made, shared_by
from intarsia_tensorcapture.arrays.values import (
    ArrayValue,
    BackwardView,
    NumpyFunction,
    NumpyNumber,
    NumpyType,
    OfTensor,
    ScalarValue,
)
from intarsia_tensorcapture.tensor import TensorValue, array_on, as_operand, item_key, number_in

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["call_numpy", "known_scalars"]


_UFUNCS = MappingProxyType(
    {
        "+": "add",
        "-": "subtract",
        "*": "multiply",
        "/": "divide",
        "//": "floor_divide",
        "%": "remainder",
        "**": "power",
        "&": "bitwise_and",
        "|": "bitwise_or",
        "^": "bitwise_xor",
        "<<": "left_shift",
        ">>": "right_shift",
        "==": "equal",
        "!=": "not_equal",
        "<": "less",
        "<=": "less_equal",
        ">": "greater",
        ">=": "greater_equal",
    }
)
_UNARY = MappingProxyType({"-": "negative", "+": "positive", "~": "invert"})
# -- arrays, and scalars that only the graph knows ---------------------------------------------------------------


def _meets(tx: Tracer, array: OfTensor, other: Value) -> bool:
    """Tell whether numpy computes with another value; what is neither an array nor a number breaks."""
    if isinstance(other, TensorValue):
        if isinstance(array, ScalarValue):
            return False  # the tensor takes it for a number
        raise Break("tracer.numpy", "an operator is between an array and a tensor")
    if isinstance(other, (OfTensor, BackwardView, NumpyNumber, ChangingNumber, Items)):
        return True
    return isinstance(other, Const) and type(other.value) in (bool, int, float)


@do.binary.rule(OfTensor)
def binary(tx: Tracer, array: OfTensor, op: str, other: Value, swapped: bool) -> Value | None:
    """Call the ufunc of an operator."""
    if not _meets(tx, array, other):
        return None
    pair = [other, array] if swapped else [array, other]
    if op == "@":
        return matmul(tx, *pair)
    if op == "*" and isinstance(array, ScalarValue) and isinstance(other, Items):
        raise Break("tracer.numpy", f"{other.describe()} is repeated by a scalar of numpy")
    if op == "**" and array.dtype.kind == "b":
        raise Break("tracer.numpy", "bools are raised to a power")
    if op == "**" and not swapped and isinstance(other, Const) and isinstance(array, ArrayValue):
        found = _fast_power(tx, array, other.value)
        if found is not None:
            return found
    return apply_ufunc(tx, getattr(np, _UFUNCS[op]), pair)


def _fast_power(tx: Tracer, array: ArrayValue, exponent: Any) -> Value | None:
    """Model `array ** number` where numpy's operator calls another function than `power`."""
    if array.dtype.kind != "f":
        return apply_ufunc(tx, np.square, [array]) if type(exponent) is int and exponent == 2 else None
    names = {-1: np.reciprocal, 0.5: np.sqrt, 2: np.square}
    return apply_ufunc(tx, names[exponent], [array]) if exponent in names else None


@do.in_place.rule(ArrayValue)
def in_place(tx: Tracer, array: ArrayValue, op: str, other: Value) -> Value | None:
    """Write the result of the operator into the array."""
    if op == "@":
        raise Break("tracer.numpy", "an array is multiplied by a matrix in place")
    found = do.binary(tx, array, op, other, False)
    if found is None:
        raise Break("tracer.numpy", f"{other.describe()} is operated into an array")
    written_into(tx, array, found)
    return array


@do.compare.rule(OfTensor)
def compare(tx: Tracer, array: OfTensor, op: str, other: Value) -> Value | None:
    """Call the ufunc of a comparison."""
    if not _meets(tx, array, other):
        if isinstance(other, TensorValue):
            return None
        raise Break("tracer.numpy", f"{array.describe()} is compared with {other.describe()}")
    return apply_ufunc(tx, getattr(np, _UFUNCS[op]), [array, other])


@do.unary.rule(OfTensor)
def unary(tx: Tracer, array: OfTensor, op: str) -> Value:
    """Call the ufunc of an operator."""
    return apply_ufunc(tx, getattr(np, _UNARY[op]), [array])


@do.truth.rule(OfTensor)
def truth(tx: Tracer, array: OfTensor) -> bool:
    """Branching needs the data."""
    several = any(type(size) is int and size != 1 for size in array.shape)
    code = "tracer.operation_raised" if several else "tracer.tensor_branch"
    raise Break(code, f"the truth of {array.describe()} is asked for")


@do.branch.rule(ScalarValue)
def branch(tx: Tracer, scalar: ScalarValue, expected: Callable[[], bool | None]) -> bool:
    """Go on where the other way raises, as on a tensor."""
    return do.branch(tx, scalar.tensor, expected)


@do.convert.rule(OfTensor)
def convert(tx: Tracer, array: OfTensor, cls: Any) -> Value | None:
    """Leave the number open until the graph ran."""
    found = number_in(tx, array.tensor, cls.__name__) if array.tensor.fake.dim() == 0 else None
    if found is None:
        raise Break("tracer.tensor_value", f"{array.describe()} becomes a Python {cls.__name__}")
    return found


@do.length.rule(ArrayValue)
def length(tx: Tracer, array: ArrayValue) -> int:
    """Return the first size."""
    if not array.shape:
        tx.raising.error(TypeError, "len() of unsized object")
    return int(array.shape[0])


@do.iterate.rule(ArrayValue)
def iterate(tx: Tracer, array: ArrayValue) -> Value:
    """Iterate over the views of the first axis."""
    if len(array.shape) < 2:
        raise Break("tracer.numpy", f"{array.describe()} is iterated over")
    rows = [item_of_array(tx, array, Const(row)) for row in range(int(array.shape[0]))]
    return iteration.iterator_over(tx, Tuple(rows))


@do.get_item.rule(ArrayValue)
def get_item(tx: Tracer, array: ArrayValue, key: Value) -> Value:
    """Record indexing."""
    return item_or_backward(tx, array, key)


@do.set_item.rule(ArrayValue)
def set_item(tx: Tracer, array: ArrayValue, key: Value, value: Value) -> None:
    """Record an indexed write."""
    set_item_of_array(tx, array, key, value)


@do.contains.rule(ArrayValue)
def contains(tx: Tracer, array: ArrayValue, item: Value) -> bool:
    """Membership needs the data."""
    raise Break("tracer.tensor_branch", f"membership in {array.describe()} is asked for")


@do.hash_key.rule(ArrayValue)
def hash_key(tx: Tracer, array: ArrayValue) -> Hashable:
    """Arrays have no hash."""
    tx.raising.error(TypeError, "unhashable type: 'numpy.ndarray'")


@do.hash_key.rule(ScalarValue)
def hash_key_of_scalar(tx: Tracer, scalar: ScalarValue) -> Hashable:
    """The hash needs the data."""
    raise Break("tracer.tensor_value", f"{scalar.describe()} is a key")


@do.get_attribute.rule(OfTensor)
def get_attribute(tx: Tracer, array: OfTensor, name: str) -> Value:
    """Read a fact, a view, or bind a method."""
    fake = array.tensor.fake
    if name == "shape":
        return Tuple([tx.live.from_python(size) for size in array.shape])
    if name == "dtype":
        return NumpyType(array.dtype)
    if name in ("ndim", "itemsize"):
        return Const(fake.dim() if name == "ndim" else array.dtype.itemsize)
    if name in ("size", "nbytes"):
        return tx.live.from_python(fake.numel() * (1 if name == "size" else array.dtype.itemsize))
    if name == "T":
        return shaping.transposed(tx, array, None)
    if name == "__class__":
        return tx.live.class_value(array.type())
    if not hasattr(array.type(), name):
        tx.raising.error(
            AttributeError, f"{array.type().__module__}.{array.type().__name__!r} object has no attribute {name!r}"
        )
    if not callable(getattr(array.type(), name)):
        raise Break("tracer.numpy", f"attribute {name!r} of {array.describe()} isn't modelled")
    return BoundBuiltin(array, name)


@do.set_attribute.rule(OfTensor)
def set_attribute(tx: Tracer, array: OfTensor, name: str, value: Value) -> None:
    """An array's shape or type is changed in place."""
    raise Break("tracer.numpy", f"{name!r} of {array.describe()} is set")


@do.call_method.rule(OfTensor)
def call_method(tx: Tracer, array: OfTensor, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method by its row."""
    row = OWN.get(name) or (ROWS[name] if name in METHODS else None)
    if row is None:
        raise Break("tracer.numpy", f"method {name!r} of {array.describe()} has no torch form")
    return bound(tx, row, name, [array, *args], keywords)


@codegen.reconstruct.rule(ArrayValue)
def reconstruct(out: Builder, array: ArrayValue) -> None:
    """Take the array on the memory of the tensor that the graph gives."""
    out.load(array.tensor)
    out.call_method("numpy", [])


@codegen.reconstruct.rule(ScalarValue)
def reconstruct_scalar(out: Builder, scalar: ScalarValue) -> None:
    """Take the element of the tensor that the graph gives."""
    out.load(scalar.tensor)
    out.call_method("numpy", [])
    out.emit("LOAD_CONST", ())
    out.emit("BINARY_SUBSCR")


# -- types and functions -----------------------------------------------------------------------------------------


@do.compare.rule(NumpyType)
def compare_types(tx: Tracer, dtype: NumpyType, op: str, other: Value) -> Value | None:
    """Types are equal to what names them."""
    if op not in ("==", "!="):
        return None
    return boolean(bool(folding.real(tx, COMPARISONS[op], dtype.value, other.as_python())))


@do.hash_key.rule(NumpyType)
def hash_key_of_type(tx: Tracer, dtype: NumpyType) -> Hashable:
    """Types are equal by value."""
    key: Hashable = dtype.value
    return key


@do.get_attribute.rule(NumpyType)
def get_attribute_of_type(tx: Tracer, dtype: NumpyType, name: str) -> Value:
    """Read a fact."""
    found = folding.real(tx, getattr, dtype.value, name)
    if not isinstance(found, (str, int, type, np.dtype)) or name.startswith("__"):
        raise Break("tracer.numpy", f"attribute {name!r} of a type of numpy")
    return tx.live.from_python(found)


@do.call.rule(NumpyFunction)
def call(tx: Tracer, function: NumpyFunction, args: Sequence[Value], keywords: Keywords) -> Value:
    """Look the call up in the tables."""
    found = call_numpy(tx, function.value, args, keywords)
    assert found is not None
    return found


# -- tensors -----------------------------------------------------------------------------------------------------


@array_on.rule(TensorValue)
def array_on_tensor(
    tx: Tracer, tensor: TensorValue, name: str, args: Sequence[Value], keywords: Keywords
) -> Value | None:
    """Model `tensor.numpy()` and `tensor.__array__()`: the array on the memory of the tensor."""
    forced = keywords.get("force", args[0] if args and name == "numpy" else None)
    if np is None or len(args) > (name == "numpy") or keywords.keys() - {"force"}:
        return None
    if forced is not None and known(forced):
        tensor = made(tx, "detach", tensor) if tensor.fake.device.type == "cpu" else tensor
    return shared_by(tx, tensor)


@as_operand.rule(ScalarValue)
def scalar_as_operand(tx: Tracer, scalar: ScalarValue) -> Value:
    """As before, of one that only the graph knows."""
    found = number_in(tx, scalar.tensor, "item")
    if found is None:
        raise Break("tracer.tensor_value", f"{scalar.describe()} is the operand of a tensor")
    return found


@item_key.rule(ArrayValue)
@item_key.rule(Tuple)
def key_with_arrays(tx: Tracer, key: Value) -> Value:
    """Take arrays in a tensor's key for the tensors on their memory."""
    found: Value = index_of_tensor(key)
    return found
