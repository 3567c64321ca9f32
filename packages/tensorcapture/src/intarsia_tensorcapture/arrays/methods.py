"""What methods of arrays, and of scalars that only the graph knows, do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.sequences import Items
from intarsia_tensorcapture.arrays import joining, making, shaping
from intarsia_tensorcapture.arrays.calls import ROWS
from intarsia_tensorcapture.arrays.elementwise import apply_ufunc
from intarsia_tensorcapture.arrays.indexing import set_item_of_array
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.operands import array_in
from intarsia_tensorcapture.arrays.recording import known, made
from intarsia_tensorcapture.arrays.values import ArrayValue, OfTensor, ScalarValue
from intarsia_tensorcapture.tensor import number_in

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["METHODS", "OWN"]


#: Methods of arrays that are the functions of the same name.
METHODS = frozenset(
    [*("sum", "prod", "mean", "std", "var", "max", "min", "ptp", "argmax", "argmin", "argsort", "all", "any")]
    + [*("cumsum", "cumprod", "round", "squeeze", "ravel", "swapaxes", "repeat")]
)


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


#: Methods that are no function, or take other arguments.
OWN: Mapping[str, Callable[..., Value]] = MappingProxyType(
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
