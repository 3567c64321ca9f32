"""Reading and writing parts of arrays: by ints, slices, masks and arrays of places, where torch reads the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const, is_none
from intarsia_pyeval.values.sequences import Items, Slice, Tuple
from intarsia_tensorcapture.arrays.elementwise import refuse_saved
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.operands import array_in, holds_tensor, operand, stored
from intarsia_tensorcapture.arrays.recording import cast, made
from intarsia_tensorcapture.arrays.values import ArrayValue, NumpyNumber, OfTensor, ScalarValue
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.tensor import TensorValue, recording_of

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["index_of_tensor", "is_ellipsis", "is_int", "item_of_array", "set_item_of_array"]


def item_of_array(tx: Tracer, array: ArrayValue, key: Value) -> Value:
    """Model `array[key]`: a view of a part, a copy of the places that arrays name, or one element as a scalar."""
    parts, advanced = _parts(tx, array, key)
    found = recording_of(tx).item(tx, array.tensor, parts[0] if len(parts) == 1 else Tuple(parts))
    assert isinstance(found, TensorValue)
    if advanced:
        # numpy's copy may be laid out in another order; torch gives the mask's elements, where their number is known
        return ArrayValue(found)
    if found.fake.dim() == 0 and not any(map(is_ellipsis, parts)):
        return ScalarValue(made(tx, "clone", found))
    return ArrayValue(found)


def set_item_of_array(tx: Tracer, array: ArrayValue, key: Value, value: Value) -> None:
    """Model `array[key] = value`."""
    parts, advanced = _parts(tx, array, key)
    refuse_saved(tx, array)
    where = parts[0] if len(parts) == 1 else Tuple(parts)
    stored_value = _to_store(tx, array, value)
    masked = any(isinstance(part, TensorValue) and part.fake.dtype is torch.bool for part in parts)
    if masked and isinstance(stored_value, TensorValue) and stored_value.fake.dim():
        raise Break("tracer.data_dependent", "an array is stored where a mask is true: as many elements as are")
    if not advanced and isinstance(stored_value, TensorValue):
        _refuse_deeper(array, parts, stored_value, isinstance(value, Items))
    recording_of(tx).set_item(tx, array.tensor, where, stored_value)


def _refuse_deeper(array: ArrayValue, parts: Sequence[Value], stored_value: TensorValue, is_list: bool) -> None:
    """Break where numpy refuses to store a sequence as one element, or a list that nests deeper than the place."""
    rank = array.tensor.fake.dim() - sum(map(is_int, parts)) + sum(map(is_none, parts))
    depth = stored_value.fake.dim()
    if depth > rank and (is_list or rank == 0):
        raise Break("tracer.operation_raised", f"a sequence of {depth} axes is stored in a place of {rank}")


def _to_store(tx: Tracer, array: ArrayValue, value: Value) -> Value:
    """Return what is stored as a tensor of the array's type, or a number in it."""
    if isinstance(value, Items):
        value = array_in(tx, value)
    if isinstance(value, OfTensor):
        found = cast(tx, value.tensor, array.dtype)
        # numpy reads all before it writes, where both are on the same memory
        return made(tx, "clone", found) if found is value.tensor else found
    if isinstance(value, TensorValue):
        raise Break("tracer.numpy", "a tensor is stored in an array")
    given = operand(tx, value)
    number = given.number.as_python() if isinstance(given.number, Value) else given.number
    return Const(stored(number, array.dtype, casting=True))


def _parts(tx: Tracer, array: ArrayValue, key: Value) -> tuple[list[Value], bool]:
    """Return the parts of a key as torch takes them, and whether there are arrays of places or masks among them."""
    given: Sequence[Value] = key.items if isinstance(key, Tuple) and key.cls is tuple else [key]
    parts = [_part(tx, part) for part in given]
    if sum(map(is_ellipsis, parts)) > 1:
        raise Break("tracer.operation_raised", "an array is indexed by two ellipses")
    advanced = [isinstance(part, TensorValue) for part in parts]
    if any(advanced):
        _refuse_apart(parts)
    return parts, any(advanced)


def _part(tx: Tracer, part: Value) -> Value:
    """Return one part of a key as torch takes it."""
    if is_none(part) or is_ellipsis(part) or is_int(part):
        return part
    if isinstance(part, NumpyNumber) and part.value.dtype.kind in "iu":
        return Const(int(part.value))
    if isinstance(part, Slice):
        return Slice([_end(end) for end in part.parts], part.source)
    if isinstance(part, ScalarValue) and part.dtype.kind in "iu":
        raise Break("tracer.data_dependent", f"an array is indexed by {part.describe()}")
    if isinstance(part, (ArrayValue, Items)) and not isinstance(part, Tuple):
        return _places(tx, part)
    raise Break("tracer.numpy", f"an array is indexed by {part.describe()}")


def _end(end: Value) -> Value:
    """Return an end of a slice, or its step: torch has none that is negative."""
    if isinstance(end, NumpyNumber):
        end = Const(end.value.item())
    if not (is_none(end) or is_int(end)):
        raise Break("tracer.numpy", f"an array is indexed by a slice with {end.describe()}")
    return end


def _places(tx: Tracer, part: Value) -> TensorValue:
    """Return an array of places or a mask."""
    if isinstance(part, Items) and holds_tensor(part):
        raise Break("tracer.numpy", "an array is indexed by a list of arrays or scalars")
    index = array_in(tx, part)
    if index.dtype.kind not in "iub" or index.tensor.fake.dim() == 0:
        raise Break("tracer.numpy", f"an array is indexed by {index.describe()}")
    return index.tensor if index.dtype.kind == "b" else cast(tx, index.tensor, np.dtype("int64"))


def _refuse_apart(parts: Sequence[Value]) -> None:
    """Break where ints and arrays are apart: numpy takes the ints for arrays too, and puts what they give first."""
    if any(isinstance(part, Slice) and not is_none(part.parts[2]) for part in parts if len(part_steps(part)) > 2):
        raise Break("tracer.numpy", "an array is indexed by places, and by a slice with a step")
    marks = [isinstance(part, TensorValue) or is_int(part) for part in parts]
    if any(map(is_int, parts)):
        inside = marks[marks.index(True) : len(marks) - marks[::-1].index(True)]
        if not all(inside):
            raise Break("tracer.numpy", "an array is indexed by ints and places that are apart")


def part_steps(part: Value) -> Sequence[Value]:
    """Return start, end and step of a slice; nothing for others."""
    return part.parts if isinstance(part, Slice) else ()


def is_int(part: Value) -> bool:
    """Tell whether a part of a key is an int."""
    if isinstance(part, SymbolicNumber):
        return part.type() is int
    return isinstance(part, Const) and type(part.value) is int


def is_ellipsis(part: Value) -> bool:
    """Tell whether a part of a key is `...`."""
    return isinstance(part, Const) and part.value is ...


def index_of_tensor(key: Any) -> Any:
    """Return the key of a tensor with the arrays in it as tensors, which torch makes of them."""
    if isinstance(key, ArrayValue) and key.tensor.fake.dtype in (torch.int64, torch.bool) and key.tensor.fake.dim():
        return key.tensor
    if isinstance(key, Tuple) and key.cls is tuple and any(isinstance(part, ArrayValue) for part in key.items):
        return Tuple([index_of_tensor(part) for part in key.items])
    return key
