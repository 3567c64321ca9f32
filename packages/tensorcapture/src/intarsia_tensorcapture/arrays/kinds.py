"""What can be done with arrays, scalars, types and functions of numpy: the rules of their models."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding, iteration
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import Const, boolean
from intarsia_pyeval.values.numbers import COMPARISONS, ChangingNumber
from intarsia_pyeval.values.sequences import Items, Tuple
from intarsia_tensorcapture.arrays import joining, making, shaping
from intarsia_tensorcapture.arrays.calls import ROWS, bound, call_numpy
from intarsia_tensorcapture.arrays.elementwise import apply_ufunc, written_into
from intarsia_tensorcapture.arrays.indexing import index_of_tensor, item_of_array, set_item_of_array
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.operands import array_in
from intarsia_tensorcapture.arrays.products import matmul
from intarsia_tensorcapture.arrays.recording import folded, known, made, shared_by
from intarsia_tensorcapture.arrays.values import (
    ArrayValue,
    NumpyFunction,
    NumpyNumber,
    NumpyType,
    OfTensor,
    ProductOfSizes,
    ScalarValue,
)
from intarsia_tensorcapture.tensor import TensorValue, array_on, as_operand, item_key, number_in

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["METHODS", "call_numpy"]


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
_OPERATORS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": operator.truediv,
        "//": operator.floordiv,
        "%": operator.mod,
        "**": operator.pow,
        "&": operator.and_,
        "|": operator.or_,
        "^": operator.xor,
        "<<": operator.lshift,
        ">>": operator.rshift,
        "@": operator.matmul,
    }
)
_NEGATING: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"-": operator.neg, "+": operator.pos, "~": operator.invert}
)
#: Methods of arrays that are the functions of the same name.
METHODS = frozenset(
    [*("sum", "prod", "mean", "std", "var", "max", "min", "ptp", "argmax", "argmin", "all", "any")]
    + [*("cumsum", "cumprod", "round", "squeeze", "ravel", "swapaxes", "repeat")]
)


# -- arrays, and scalars that only the graph knows ---------------------------------------------------------------


def _meets(tx: Tracer, x: OfTensor, other: Value) -> bool:
    """Tell whether numpy computes with another value; what is neither an array nor a number breaks."""
    if isinstance(other, TensorValue):
        if isinstance(x, ScalarValue):
            return False  # the tensor takes it for a number
        raise Break("tracer.numpy", "an operator is between an array and a tensor")
    if isinstance(other, (OfTensor, NumpyNumber, ChangingNumber, Items)):
        return True
    return isinstance(other, Const) and type(other.value) in (bool, int, float)


@do.binary.rule(OfTensor)
def binary(tx: Tracer, x: OfTensor, op: str, other: Value, swapped: bool) -> Value | None:
    """Call the ufunc of an operator."""
    if not _meets(tx, x, other):
        return None
    pair = [other, x] if swapped else [x, other]
    if op == "@":
        return matmul(tx, *pair)
    if op == "*" and isinstance(x, ScalarValue) and isinstance(other, Items):
        raise Break("tracer.numpy", f"{other.describe()} is repeated by a scalar of numpy")
    if op == "**" and x.dtype.kind == "b":
        raise Break("tracer.numpy", "bools are raised to a power")
    if op == "**" and not swapped and isinstance(other, Const) and isinstance(x, ArrayValue):
        found = _fast_power(tx, x, other.value)
        if found is not None:
            return found
    return apply_ufunc(tx, getattr(np, _UFUNCS[op]), pair)


def _fast_power(tx: Tracer, x: ArrayValue, exponent: Any) -> Value | None:
    """Model `array ** number` where numpy's operator calls another function than `power`."""
    if x.dtype.kind != "f":
        return apply_ufunc(tx, np.square, [x]) if type(exponent) is int and exponent == 2 else None
    names = {-1: np.reciprocal, 0.5: np.sqrt, 2: np.square}
    return apply_ufunc(tx, names[exponent], [x]) if exponent in names else None


@do.in_place.rule(ArrayValue)
def in_place(tx: Tracer, x: ArrayValue, op: str, other: Value) -> Value | None:
    """Write the result of the operator into the array."""
    if op == "@":
        raise Break("tracer.numpy", "an array is multiplied by a matrix in place")
    found = do.binary(tx, x, op, other, False)
    if found is None:
        raise Break("tracer.numpy", f"{other.describe()} is operated into an array")
    written_into(tx, x, found)
    return x


@do.compare.rule(OfTensor)
def compare(tx: Tracer, x: OfTensor, op: str, other: Value) -> Value | None:
    """Call the ufunc of a comparison."""
    if not _meets(tx, x, other):
        if isinstance(other, TensorValue):
            return None
        raise Break("tracer.numpy", f"{x.describe()} is compared with {other.describe()}")
    return apply_ufunc(tx, getattr(np, _UFUNCS[op]), [x, other])


@do.unary.rule(OfTensor)
def unary(tx: Tracer, x: OfTensor, op: str) -> Value:
    """Call the ufunc of an operator."""
    return apply_ufunc(tx, getattr(np, _UNARY[op]), [x])


@do.truth.rule(OfTensor)
def truth(tx: Tracer, x: OfTensor) -> bool:
    """Branching needs the data."""
    several = any(type(size) is int and size != 1 for size in x.shape)
    code = "tracer.operation_raised" if several else "tracer.tensor_branch"
    raise Break(code, f"the truth of {x.describe()} is asked for")


@do.branch.rule(ScalarValue)
def branch(tx: Tracer, x: ScalarValue, expected: Callable[[], bool | None]) -> bool:
    """Go on where the other way raises, as on a tensor."""
    return do.branch(tx, x.tensor, expected)


@do.convert.rule(OfTensor)
def convert(tx: Tracer, x: OfTensor, cls: Any) -> Value | None:
    """Leave the number open until the graph ran."""
    found = number_in(tx, x.tensor, cls.__name__) if x.tensor.fake.dim() == 0 else None
    if found is None:
        raise Break("tracer.tensor_value", f"{x.describe()} becomes a Python {cls.__name__}")
    return found


@do.length.rule(ArrayValue)
def length(tx: Tracer, x: ArrayValue) -> int:
    """Return the first size."""
    if not x.shape:
        tx.raising.error(TypeError, "len() of unsized object")
    return int(x.shape[0])


@do.iterate.rule(ArrayValue)
def iterate(tx: Tracer, x: ArrayValue) -> Value:
    """Iterate over the views of the first axis."""
    if len(x.shape) < 2:
        raise Break("tracer.numpy", f"{x.describe()} is iterated over")
    rows = [item_of_array(tx, x, Const(row)) for row in range(int(x.shape[0]))]
    return iteration.iterator_over(tx, Tuple(rows))


@do.get_item.rule(ArrayValue)
def get_item(tx: Tracer, x: ArrayValue, key: Value) -> Value:
    """Record indexing."""
    return item_of_array(tx, x, key)


@do.set_item.rule(ArrayValue)
def set_item(tx: Tracer, x: ArrayValue, key: Value, value: Value) -> None:
    """Record an indexed write."""
    set_item_of_array(tx, x, key, value)


@do.contains.rule(ArrayValue)
def contains(tx: Tracer, x: ArrayValue, item: Value) -> bool:
    """Membership needs the data."""
    raise Break("tracer.tensor_branch", f"membership in {x.describe()} is asked for")


@do.hash_key.rule(ArrayValue)
def hash_key(tx: Tracer, x: ArrayValue) -> Hashable:
    """Arrays have no hash."""
    tx.raising.error(TypeError, "unhashable type: 'numpy.ndarray'")


@do.hash_key.rule(ScalarValue)
def hash_key_of_scalar(tx: Tracer, x: ScalarValue) -> Hashable:
    """The hash needs the data."""
    raise Break("tracer.tensor_value", f"{x.describe()} is a key")


@do.get_attribute.rule(OfTensor)
def get_attribute(tx: Tracer, x: OfTensor, name: str) -> Value:
    """Read a fact, a view, or bind a method."""
    fake = x.tensor.fake
    if name == "shape":
        return Tuple([tx.live.from_python(size) for size in x.shape])
    if name == "dtype":
        return NumpyType(x.dtype)
    if name in ("ndim", "itemsize"):
        return Const(fake.dim() if name == "ndim" else x.dtype.itemsize)
    if name in ("size", "nbytes"):
        return tx.live.from_python(fake.numel() * (1 if name == "size" else x.dtype.itemsize))
    if name == "T":
        return shaping.transposed(tx, x, None)
    if name == "__class__":
        return tx.live.class_value(x.type())
    if not hasattr(x.type(), name):
        tx.raising.error(
            AttributeError, f"{x.type().__module__}.{x.type().__name__!r} object has no attribute {name!r}"
        )
    if not callable(getattr(x.type(), name)):
        raise Break("tracer.numpy", f"attribute {name!r} of {x.describe()} isn't modelled")
    return BoundBuiltin(x, name)


@do.set_attribute.rule(OfTensor)
def set_attribute(tx: Tracer, x: OfTensor, name: str, value: Value) -> None:
    """An array's shape or type is changed in place."""
    raise Break("tracer.numpy", f"{name!r} of {x.describe()} is set")


@do.call_method.rule(OfTensor)
def call_method(tx: Tracer, x: OfTensor, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method: as the function of its name, or by a row of its own."""
    own = _OWN.get(name)
    if own is not None:
        return bound(tx, own, name, [x, *args], keywords)
    if name in METHODS:
        found = bound(tx, ROWS[name], name, [x, *args], keywords)
        return found
    raise Break("tracer.numpy", f"method {name!r} of {x.describe()} has no torch form")


def _item(tx: Tracer, x: Value) -> Value:
    assert isinstance(x, OfTensor)
    found = number_in(tx, x.tensor, "item") if all(size == 1 for size in x.shape) else None
    if found is None:
        raise Break("tracer.tensor_value", f"item() of {x.describe()} is called")
    return found


def _tolist(tx: Tracer, x: Value) -> Value:
    assert isinstance(x, OfTensor)
    found = number_in(tx, x.tensor, "tolist")
    if found is None:
        raise Break("tracer.tensor_value", f"tolist() of {x.describe()} is called")
    return found


def _copy(tx: Tracer, x: Value, order: Any = "C") -> Value:
    assert isinstance(x, OfTensor)
    if known(order) != "C":
        raise Break("tracer.numpy", f"an array is copied in the order {known(order)!r}")
    copied = made(tx, "clone", x.tensor, memory_format=torch.contiguous_format)
    return ScalarValue(copied) if isinstance(x, ScalarValue) else ArrayValue(copied)


def _fill(tx: Tracer, x: Value, value: Value) -> Value:
    if not isinstance(x, ArrayValue) or isinstance(value, Items) or (isinstance(value, OfTensor) and value.shape):
        raise Break("tracer.numpy", f"fill() of {x.describe()} is called with {value.describe()}")
    set_item_of_array(tx, x, Const(...), value)
    return tx.live.from_python(None)


def _reshape(tx: Tracer, x: Value, *shape: Value, order: Any = "C") -> Value:
    assert isinstance(x, OfTensor)
    if known(order) != "C":
        raise Break("tracer.numpy", f"an array is reshaped in the order {known(order)!r}")
    sizes = shaping.sizes_in(tx, shape[0]) if len(shape) == 1 else list(shape)
    return shaping.reshaped(tx, x, sizes)


def _transpose(tx: Tracer, x: Value, *axes: Value) -> Value:
    assert isinstance(x, OfTensor)
    given = [known(axis) for axis in axes]
    if len(given) == 1 and (given[0] is None or isinstance(given[0], (tuple, list))):
        given = [None] if given[0] is None else list(given[0])
    if given in ([], [None]):
        return shaping.transposed(tx, x, None)
    rank = x.tensor.fake.dim()
    return shaping.transposed(tx, x, [shaping.axis_of(axis, rank, "transpose") for axis in given])


def _dot(tx: Tracer, x: Value, b: Value) -> Value:
    return ROWS["dot"](tx, x, b)


def _absolute(tx: Tracer, x: Value) -> Value:
    return apply_ufunc(tx, np.absolute, [x])


def _as_array(tx: Tracer, x: Value) -> Value:
    return array_in(tx, x)


def _length(tx: Tracer, x: Value) -> Value:
    return Const(do.length(tx, x))


def _get_item(tx: Tracer, x: Value, key: Value) -> Value:
    return do.get_item(tx, x, key)


def _set_item(tx: Tracer, x: Value, key: Value, value: Value) -> Value:
    do.set_item(tx, x, key, value)
    return tx.live.from_python(None)


_OWN: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {
        "item": _item,
        "tolist": _tolist,
        "copy": _copy,
        "fill": _fill,
        "reshape": _reshape,
        "transpose": _transpose,
        "clip": joining.clipped,
        "flatten": ROWS["ndarray.flatten"],
        "astype": making.ROWS["astype"],
        "dot": _dot,
        "__abs__": _absolute,
        "__array__": _as_array,
        "__len__": _length,
        "__getitem__": _get_item,
        "__setitem__": _set_item,
    }
)


@codegen.reconstruct.rule(ArrayValue)
def reconstruct(out: Builder, x: ArrayValue) -> None:
    """Take the array on the memory of the tensor that the graph gives."""
    out.load(x.tensor)
    out.call_method("numpy", [])


@codegen.reconstruct.rule(ScalarValue)
def reconstruct_scalar(out: Builder, x: ScalarValue) -> None:
    """Take the element of the tensor that the graph gives."""
    out.load(x.tensor)
    out.call_method("numpy", [])
    out.emit("LOAD_CONST", ())
    out.emit("BINARY_SUBSCR")


# -- scalars that are known --------------------------------------------------------------------------------------


def _beside(other: Value) -> Any:
    """Return the number beside a scalar; None: the other operand is asked."""
    if isinstance(other, (TensorValue, OfTensor)):
        return None
    if isinstance(other, (NumpyNumber, ChangingNumber)) or (
        isinstance(other, Const) and isinstance(other.value, (int, float, complex))
    ):
        return other.as_python()
    raise Break("tracer.numpy", f"a scalar of numpy meets {other.describe()}")


@do.binary.rule(NumpyNumber)
def binary_number(tx: Tracer, x: NumpyNumber, op: str, other: Value, swapped: bool) -> Value | None:
    """Compute with another number."""
    number = _beside(other)
    if number is None:
        return None
    return folded(tx, _OPERATORS[op], *((number, x.value) if swapped else (x.value, number)))


@do.compare.rule(NumpyNumber)
def compare_number(tx: Tracer, x: NumpyNumber, op: str, other: Value) -> Value | None:
    """Compare with another number."""
    number = _beside(other)
    return None if number is None else folded(tx, COMPARISONS[op], x.value, number)


@do.unary.rule(NumpyNumber)
def unary_number(tx: Tracer, x: NumpyNumber, op: str) -> Value:
    """Apply the operator."""
    return folded(tx, _NEGATING[op], x.value)


@do.truth.rule(NumpyNumber)
def truth_of_number(tx: Tracer, x: NumpyNumber) -> bool:
    """Tell whether it isn't zero."""
    return bool(x.value)


@do.hash_key.rule(NumpyNumber)
def hash_key_of_number(tx: Tracer, x: NumpyNumber) -> Hashable:
    """It is the key that an equal number of Python is."""
    if x.is_nan():
        raise Break("tracer.hashing", "a NaN is a key, which only its own object finds")
    key: Hashable = x.value
    return key


@do.convert.rule(ProductOfSizes)
def convert_product(tx: Tracer, x: ProductOfSizes, cls: Any) -> Value | None:
    """Keep `int(product)` open."""
    return x.number if cls is int else tx.live.from_python(folding.real(tx, cls, x.value))


@as_operand.rule(ProductOfSizes)
def product_as_operand(tx: Tracer, x: ProductOfSizes) -> Value:
    """Tensors take it for the number."""
    return x.number


@do.convert.rule(NumpyNumber)
def convert_number(tx: Tracer, x: NumpyNumber, cls: Any) -> Value | None:
    """Convert to a number of Python."""
    return tx.live.from_python(folding.real(tx, cls, x.value))


@do.get_attribute.rule(NumpyNumber)
def get_attribute_of_number(tx: Tracer, x: NumpyNumber, name: str) -> Value:
    """Read a fact, or bind a method."""
    found = folding.real(tx, getattr, x.value, name)
    if name == "__class__":
        return tx.live.class_value(x.type())
    if callable(found):
        return BoundBuiltin(x, name)
    if not isinstance(found, (np.generic, np.dtype, int, float, tuple)):
        raise Break("tracer.numpy", f"attribute {name!r} of a scalar of numpy")
    return tx.live.from_python(found)


@do.call_method.rule(NumpyNumber)
def call_method_of_number(tx: Tracer, x: NumpyNumber, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Run a method."""
    try:
        given = [a.as_python() for a in args]
        named = {k: v.as_python() for k, v in keywords.items()}
    except NotConstantError as unknown:
        raise Break("tracer.numpy", f"{name} of a scalar of numpy is called with {unknown}") from None
    return folded(tx, getattr(x.value, name), *given, **named)


@codegen.reconstruct.rule(NumpyNumber)
def reconstruct_number(out: Builder, x: NumpyNumber) -> None:
    """Push the scalar, which nothing changes."""
    out.emit("LOAD_CONST", x.value)


# -- types and functions -----------------------------------------------------------------------------------------


@do.compare.rule(NumpyType)
def compare_types(tx: Tracer, x: NumpyType, op: str, other: Value) -> Value | None:
    """Types are equal to what names them."""
    if op not in ("==", "!="):
        return None
    return boolean(bool(folding.real(tx, COMPARISONS[op], x.value, other.as_python())))


@do.hash_key.rule(NumpyType)
def hash_key_of_type(tx: Tracer, x: NumpyType) -> Hashable:
    """Types are equal by value."""
    key: Hashable = x.value
    return key


@do.get_attribute.rule(NumpyType)
def get_attribute_of_type(tx: Tracer, x: NumpyType, name: str) -> Value:
    """Read a fact."""
    found = folding.real(tx, getattr, x.value, name)
    if not isinstance(found, (str, int, type, np.dtype)) or name.startswith("__"):
        raise Break("tracer.numpy", f"attribute {name!r} of a type of numpy")
    return tx.live.from_python(found)


@do.call.rule(NumpyFunction)
def call(tx: Tracer, x: NumpyFunction, args: Sequence[Value], keywords: Keywords) -> Value:
    """Look the call up in the tables."""
    found = call_numpy(tx, x.value, args, keywords)
    assert found is not None
    return found


# -- tensors -----------------------------------------------------------------------------------------------------


@array_on.rule(TensorValue)
def array_on_tensor(tx: Tracer, x: TensorValue, name: str, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Model `tensor.numpy()` and `tensor.__array__()`: the array on the memory of the tensor."""
    forced = keywords.get("force", args[0] if args and name == "numpy" else None)
    if np is None or len(args) > (name == "numpy") or keywords.keys() - {"force"}:
        return None
    if forced is not None and known(forced):
        x = made(tx, "detach", x) if x.fake.device.type == "cpu" else x
    return shared_by(tx, x)


@as_operand.rule(NumpyNumber)
def number_as_operand(tx: Tracer, x: NumpyNumber) -> Value:
    """Tensors take scalars of numpy for numbers of Python."""
    return Const(x.value.item())


@as_operand.rule(ScalarValue)
def scalar_as_operand(tx: Tracer, x: ScalarValue) -> Value:
    """As before, of one that only the graph knows."""
    found = number_in(tx, x.tensor, "item")
    if found is None:
        raise Break("tracer.tensor_value", f"{x.describe()} is the operand of a tensor")
    return found


@item_key.rule(ArrayValue)
@item_key.rule(Tuple)
def key_with_arrays(tx: Tracer, key: Value) -> Value:
    """Take arrays in a tensor's key for the tensors on their memory."""
    found: Value = index_of_tensor(key)
    return found
