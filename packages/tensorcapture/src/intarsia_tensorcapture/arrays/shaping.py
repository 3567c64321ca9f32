"""Functions of numpy that give the same elements in another shape: views where numpy gives views."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import iteration
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.sequences import Items, List
from intarsia_tensorcapture.arrays.operands import array_in, tensor_in
from intarsia_tensorcapture.arrays.recording import known, made, whole
from intarsia_tensorcapture.arrays.values import ArrayValue, OfTensor, ScalarValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import TensorValue

__all__ = ["ROWS", "axis_of", "reshaped", "transposed"]


def axis_of(axis: Any, rank: int, name: str) -> int:
    """Return an axis counted from the front."""
    found = whole(axis, name)
    if not -rank <= found < rank:
        raise Break("tracer.operation_raised", f"numpy.{name} is given the axis {found} of {rank}")
    return found % rank


def _axes_of(axes: Any, rank: int, name: str) -> tuple[int, ...]:
    """Return one axis or several, counted from the front."""
    given = known(axes)
    found = tuple(axis_of(a, rank, name) for a in (given if isinstance(given, (tuple, list)) else (given,)))
    if len(set(found)) != len(found):
        raise Break("tracer.operation_raised", f"numpy.{name} is given an axis twice")
    return found


def sizes_in(tx: Tracer, shape: Value) -> list[Value]:
    """Return the sizes of an argument that is one, or a sequence."""
    return list(iteration.unpack(tx, shape)) if isinstance(shape, Items) else [shape]


def _alike(a: Value, view: TensorValue) -> OfTensor:
    """Return what a method gives that keeps the elements: of a scalar, another one where there is no axis."""
    return ScalarValue(view) if isinstance(a, ScalarValue) and view.fake.dim() == 0 else ArrayValue(view)


def reshaped(tx: Tracer, array: Value, sizes: Sequence[Value]) -> OfTensor:
    """Give an array another shape, in C's order: a view if there can be one."""
    return _alike(array, made(tx, "reshape", tensor_in(tx, array), tuple(sizes)))


def transposed(tx: Tracer, array: Value, axes: Sequence[int] | None) -> OfTensor:
    """Put the axes in another order; None: the reverse one."""
    x = tensor_in(tx, array)
    order = tuple(reversed(range(x.fake.dim()))) if axes is None else tuple(axes)
    if sorted(order) != list(range(x.fake.dim())):
        raise Break("tracer.operation_raised", f"numpy.transpose is given the axes {order} of {x.fake.dim()}")
    return _alike(array, made(tx, "permute", x, order))


def _in_c_order(order: Any, name: str) -> None:
    if known(order) != "C":
        raise Break("tracer.numpy", f"numpy.{name} in the order {known(order)!r}")


def _reshape(tx: Tracer, a: Value, shape: Value, order: Any = "C") -> Value:
    _in_c_order(order, "reshape")
    return reshaped(tx, a, sizes_in(tx, shape))


def _ravel(tx: Tracer, a: Value, order: Any = "C") -> Value:
    _in_c_order(order, "ravel")
    x = tensor_in(tx, a)
    flat = made(tx, "reshape", x, (-1,))
    if x.fake.is_contiguous():
        return ArrayValue(flat)
    return ArrayValue(made(tx, "clone", flat, memory_format=torch.contiguous_format))  # even if there is a view


def _flatten(tx: Tracer, a: Value, order: Any = "C") -> Value:
    _in_c_order(order, "flatten")
    flat = made(tx, "reshape", tensor_in(tx, a), (-1,))
    return ArrayValue(made(tx, "clone", flat, memory_format=torch.contiguous_format))


def _transpose(tx: Tracer, a: Value, axes: Any = None) -> Value:
    rank = tensor_in(tx, a).fake.dim()
    return transposed(tx, a, None if known(axes) is None else _axes_of(axes, rank, "transpose"))


def _swapaxes(tx: Tracer, a: Value, axis1: Value, axis2: Value) -> Value:
    x = tensor_in(tx, a)
    first, second = (axis_of(axis, x.fake.dim(), "swapaxes") for axis in (axis1, axis2))
    return ArrayValue(made(tx, "transpose", x, first, second))


def _moveaxis(tx: Tracer, a: Value, source: Value, destination: Value) -> Value:
    x = tensor_in(tx, a)
    places = [_axes_of(axes, x.fake.dim(), "moveaxis") for axes in (source, destination)]
    return ArrayValue(made(tx, torch.movedim, x, *places))


def _squeeze(tx: Tracer, a: Value, axis: Any = None) -> Value:
    x = tensor_in(tx, a)
    ones = [d for d, size in enumerate(x.fake.shape) if size == 1]
    axes = ones if known(axis) is None else _axes_of(axis, x.fake.dim(), "squeeze")
    if any(d not in ones for d in axes):
        raise Break("tracer.operation_raised", "numpy.squeeze removes an axis that has several elements")
    return _alike(a, made(tx, "squeeze", x, tuple(axes)) if axes else made(tx, "view_as", x, x))


def _expand_dims(tx: Tracer, a: Value, axis: Value) -> Value:
    x = tensor_in(tx, a)
    given = known(axis)
    count = len(given) if isinstance(given, (tuple, list)) else 1
    for place in sorted(_axes_of(axis, x.fake.dim() + count, "expand_dims")):
        x = made(tx, "unsqueeze", x, place)
    return ArrayValue(x)


def _at_least(rank: int) -> Callable[..., Value]:
    def handler(tx: Tracer, a: Value) -> Value:
        array = array_in(tx, a)
        if array.tensor.fake.dim() >= rank:
            return array
        if rank == 3 and array.tensor.fake.dim():
            raise Break("tracer.numpy", "numpy.atleast_3d of an array of one or two axes")
        for _ in range(rank - array.tensor.fake.dim()):
            array = ArrayValue(made(tx, "unsqueeze", array.tensor, 0))
        return array

    return handler


def _split(name: str, fixed: int | None = None) -> Callable[..., Value]:
    def along(tx: Tracer, tensor: TensorValue, parts: Value, axis: int) -> Value:
        places, size = known(parts), tensor.fake.shape[axis]
        if isinstance(places, (list, tuple)):
            if any(not 0 <= p <= size for p in places) or list(places) != sorted(places):
                raise Break("tracer.numpy", f"numpy.{name} at {places!r} of an axis of {size}")
            bounds = [0, *map(int, places), size]
            sizes = [b - a for a, b in itertools.pairwise(bounds)]
        else:
            count = int(places)
            if count < 1 or (name != "array_split" and size % count != 0):
                raise Break("tracer.operation_raised", f"numpy.{name} of {size} elements into {count} parts")
            sizes = [size // count + (part < size % count) for part in range(count)]
        starts = [sum(sizes[:part]) for part in range(len(sizes))]
        views = [made(tx, "narrow", tensor, axis, start, size) for start, size in zip(starts, sizes, strict=True)]
        return List([ArrayValue(view) for view in views])

    def handler(tx: Tracer, ary: Value, indices_or_sections: Value, axis: Any = 0) -> Value:
        x = tensor_in(tx, ary)
        at = axis_of(axis, x.fake.dim(), name) if fixed is None else fixed
        if fixed is not None and x.fake.dim() < 2:
            raise Break("tracer.numpy", f"numpy.{name} of an array of {x.fake.dim()} axes")
        return along(tx, x, indices_or_sections, at)

    return handler


#: Name of a function of numpy -> what it does; the names of its arguments are numpy's.
ROWS: MappingProxyType[str, Callable[..., Value]] = MappingProxyType(
    {
        "reshape": _reshape,
        "ravel": _ravel,
        "ndarray.flatten": _flatten,
        "transpose": _transpose,
        "permute_dims": _transpose,
        "swapaxes": _swapaxes,
        "moveaxis": _moveaxis,
        "squeeze": _squeeze,
        "expand_dims": _expand_dims,
        "atleast_1d": _at_least(1),
        "atleast_2d": _at_least(2),
        "atleast_3d": _at_least(3),
        "split": _split("split"),
        "array_split": _split("array_split"),
        "vsplit": _split("vsplit", 0),
    }
)
