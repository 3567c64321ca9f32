"""Operands of numpy's functions: arrays, scalars and numbers, with the types that decide that of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.numbers import OpenNumber
from intarsia_pyeval.values.sequences import Items
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.recording import CPU, cast, constant_array, made, shared_by
from intarsia_tensorcapture.arrays.types import TORCH_TYPES, raising, torch_type
from intarsia_tensorcapture.arrays.values import ArrayValue, BackwardView, NumpyNumber, OfTensor
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["Operand", "array_in", "flipped", "holds_tensor", "operand", "stored", "tensor_in", "tensor_of"]


class Operand(NamedTuple):
    """One operand.

    Args:
        dtype: Its type, numpy's; `int` or `float` for numbers of Python, which take that of the other operand.
        tensor: The tensor of an array or scalar; None for a number.
        number: A number that is known, or the model of one that isn't.
    """

    dtype: Any
    tensor: TensorValue | None = None
    number: Any = None


def operand(tx: Tracer, value: Value) -> Operand:
    """Take a value as an operand, as numpy's functions convert their arguments."""
    if isinstance(value, OfTensor):
        return Operand(value.dtype, value.tensor)
    if isinstance(value, BackwardView):
        return Operand(value.array.dtype, flipped(tx, value).tensor)
    if isinstance(value, NumpyNumber):
        torch_type(value.value.dtype)
        return Operand(value.value.dtype, None, value.value)
    if isinstance(value, Const) and type(value.value) is bool:
        return Operand(np.dtype(bool), None, value.value)
    if isinstance(value, Const) and type(value.value) in (int, float):
        return Operand(type(value.value), None, value.value)
    if isinstance(value, (SymbolicNumber, OpenNumber)) and value.type() in (int, float):
        return Operand(value.type(), None, value)
    if isinstance(value, Items):
        made_of = array_in(tx, value)
        return Operand(made_of.dtype, made_of.tensor)
    raise Break("tracer.numpy", f"numpy computes with {value.describe()}")


def flipped(tx: Tracer, view: BackwardView) -> ArrayValue:
    """Return a new array of what a view that goes backwards shows now."""
    return ArrayValue(made(tx, "flip", view.array.tensor, list(view.axes)))


def array_in(tx: Tracer, value: Value, dtype: Any = None) -> ArrayValue:
    """Return the array that `numpy.asarray` gives: that of a tensor, or a new one of numbers in lists."""
    if isinstance(value, ArrayValue):
        return value
    if isinstance(value, TensorValue):
        return shared_by(tx, value)
    if isinstance(value, OfTensor):
        return ArrayValue(made(tx, "clone", value.tensor))
    if isinstance(value, Items) and holds_tensor(value):
        return _stacked(tx, value)
    plain = value.as_python()
    return constant_array(tx, raising(lambda: np.asarray(plain, dtype), "asarray"))


def _stacked(tx: Tracer, value: Items) -> ArrayValue:
    """Make an array of a sequence of arrays or scalars, all of one shape."""
    if any(isinstance(item, TensorValue) for item in value.items):
        raise Break("tracer.numpy", "an array is made of a list of tensors")
    parts = [_part(tx, item) for item in value.items]
    dtype = raising(lambda: np.result_type(*[part.dtype for part in parts]), "array")
    tensors = [cast(tx, part.tensor, dtype) for part in parts]
    if any(tuple(tensor.fake.shape) != tuple(tensors[0].fake.shape) for tensor in tensors):
        raise Break("tracer.operation_raised", "an array is made of a list of arrays of several shapes")
    torch_type(dtype)
    return ArrayValue(made(tx, torch.stack, tensors))


def _part(tx: Tracer, item: Value) -> OfTensor:
    return item if isinstance(item, OfTensor) else array_in(tx, item)


def holds_tensor(value: Value) -> bool:
    """Tell whether something is, or has in its lists, an array, a scalar of the graph or a tensor."""
    if isinstance(value, Items):
        return any(map(holds_tensor, value.items))
    return isinstance(value, (OfTensor, TensorValue))


def tensor_of(tx: Tracer, given: Operand, dtype: Any) -> TensorValue:
    """Return an operand as a tensor of numpy's type `dtype`; a number has no dimension."""
    if given.tensor is not None:
        return cast(tx, given.tensor, dtype)
    number = given.number if isinstance(given.number, Value) else stored(given.number, dtype)
    return made(tx, torch.full, (), number, dtype=TORCH_TYPES[dtype], device=CPU)


def tensor_in(tx: Tracer, value: Value, dtype: Any = None) -> TensorValue:
    """Return the tensor of an argument that is an array, or is made one, of its own type or of another."""
    array = array_in(tx, value) if not isinstance(value, OfTensor) else value
    return array.tensor if dtype is None else cast(tx, array.tensor, dtype)


def stored(number: Any, dtype: Any, casting: bool = False) -> Any:
    """Return a number as one of Python, as it is in an array of numpy's type `dtype`.

    Args:
        number: One of Python or numpy.
        dtype: The type.
        casting: Whether it is stored in an array: then parts of it may be lost.

    Raises:
        Break: numpy raises, or warns of what is lost.
    """

    def convert() -> Any:
        with np.errstate(all="raise"):
            if not casting:
                return np.asarray(number, dtype)
            place = np.zeros((), dtype)
            place[()] = number
            return place

    try:
        found = raising(convert, "asarray")
    except FloatingPointError as error:
        raise Break("tracer.array_warning", f"numpy may warn of {error}") from None
    if dtype.kind == "f" and np.isinf(found) and not np.isinf(number):
        raise Break("tracer.array_warning", f"{number!r} is too large for {dtype}")
    return found.item()
