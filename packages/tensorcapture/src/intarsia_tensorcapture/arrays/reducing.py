"""Functions of numpy that reduce an array over axes, or run along one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Value
from intarsia_tensorcapture.arrays.elementwise import apply_ufunc
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.operands import tensor_in
from intarsia_tensorcapture.arrays.recording import cast, expect_all, expect_quiet, known, made, result_of
from intarsia_tensorcapture.arrays.types import numpy_type, raising, torch_type
from intarsia_tensorcapture.arrays.values import ArrayValue, OfTensor

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import TensorValue

__all__ = ["ROWS"]


def _axes(tx: Tracer, tensor: TensorValue, axis: Any, name: str) -> tuple[int, ...] | None:
    """Return the axes that are reduced, counted from the front; None for all."""
    axis = known(axis)
    if axis is None:
        return None
    given = axis if isinstance(axis, tuple) else (axis,)
    if not given or not all(isinstance(a, (int, np.integer)) and type(a) is not bool for a in given):
        raise Break("tracer.numpy", f"numpy.{name} reduces over {axis!r}")
    rank = tensor.fake.dim()
    found = tuple(int(a) + rank if a < 0 else int(a) for a in given)
    if any(not 0 <= a < rank for a in found) or len(set(found)) != len(found):
        raise Break("tracer.operation_raised", f"numpy.{name} reduces an array of {rank} axes over {axis}")
    return found


def _keeps(keepdims: Any) -> bool:
    """Tell whether reduced axes are kept, of one element."""
    found = known(keepdims)
    if type(found) is not bool:
        raise Break("tracer.numpy", f"keepdims is {found!r}")
    return found


def _result_type(name: str, array: OfTensor, dtype: Any) -> Any:
    """Return the type that numpy gives the result, by asking it about one element."""
    wanted = known(dtype)
    found = raising(lambda: getattr(np, name)(np.ones(1, array.dtype), dtype=wanted).dtype, name)
    torch_type(found)
    return found


def _array(tx: Tracer, a: Value) -> OfTensor:
    return a if isinstance(a, OfTensor) else ArrayValue(tensor_in(tx, a))


def _refuse_empty(tensor: TensorValue, name: str) -> None:
    """Nothing is reduced without an element: numpy raises, or warns."""
    if any(type(size) is int and size == 0 for size in tensor.fake.shape):
        raise Break("tracer.operation_raised", f"numpy.{name} reduces an array without elements")


def _summed(tx: Tracer, name: str, tensor: TensorValue, dims: tuple[int, ...] | None, keepdims: bool) -> TensorValue:
    """Sum or multiply over axes, and rely on numpy not warning."""
    every = tuple(range(tensor.fake.dim())) if dims is None else dims
    if not every:
        return made(tx, "clone", tensor)
    if name == "sum":
        found = made(tx, torch.sum, tensor, every, keepdims, dtype=tensor.fake.dtype)
    else:
        found = tensor
        for axis in sorted(every, reverse=True):
            found = made(tx, torch.prod, found, axis, keepdims, dtype=tensor.fake.dtype)
    expect_quiet(tx, found, [tensor], (every, keepdims))
    return found


def _adding(name: str) -> Callable[..., Value]:
    def handler(tx: Tracer, a: Value, axis: Any = None, dtype: Any = None, *, keepdims: Any = False) -> Value:
        array = _array(tx, a)
        dims = _axes(tx, array.tensor, axis, name)
        x = cast(tx, array.tensor, _result_type(name, array, dtype))
        return result_of(_summed(tx, name, x, dims, _keeps(keepdims)))

    return handler


def _count(tensor: TensorValue, dims: tuple[int, ...] | None) -> Any:
    count: Any = 1
    for axis in range(tensor.fake.dim()) if dims is None else dims:
        count = count * tensor.fake.shape[axis]
    return count


def _mean(tx: Tracer, a: Value, axis: Any = None, dtype: Any = None, *, keepdims: Any = False) -> Value:
    array = _array(tx, a)
    dims = _axes(tx, array.tensor, axis, "mean")
    _refuse_empty(array.tensor, "mean")
    x = cast(tx, array.tensor, _result_type("mean", array, dtype))
    return result_of(_averaged(tx, x, dims, _keeps(keepdims)))


def _averaged(
    tx: Tracer, tensor: TensorValue, dims: tuple[int, ...] | None, keepdims: bool, less: int = 0
) -> TensorValue:
    """Sum over axes and divide by the number of elements, halves in single precision, as numpy does."""
    if not tensor.fake.is_floating_point():
        raise Break("tracer.numpy", f"a mean is computed in {tensor.fake.dtype}")
    half = tensor.fake.dtype is torch.float16
    wide = made(tx, "to", tensor, torch.float32) if half else tensor
    total = _summed(tx, "sum", wide, dims, keepdims)
    found = made(tx, torch.div, total, _count(tensor, dims) - less)
    return cast(tx, found, numpy_type(torch.float16)) if half else found


def _variance(name: str) -> Callable[..., Value]:
    def handler(
        tx: Tracer, a: Value, axis: Any = None, dtype: Any = None, *, ddof: Any = 0, keepdims: Any = False
    ) -> Value:
        array = _array(tx, a)
        dims, less = _axes(tx, array.tensor, axis, name), known(ddof)
        _refuse_empty(array.tensor, name)
        if type(less) is not int or not _count(array.tensor, dims) - less > 0:
            raise Break("tracer.array_warning", f"numpy.{name} has no degree of freedom left, or {less!r} fewer")
        wanted = _result_type(name, array, dtype)
        half = wanted == np.dtype("float16")
        x = cast(tx, array.tensor, np.dtype("float32") if half else wanted)
        found = _spread(tx, x, dims, less, _keeps(keepdims))
        found = made(tx, torch.sqrt, found) if name == "std" else found
        return result_of(cast(tx, found, wanted))

    return handler


def _spread(tx: Tracer, tensor: TensorValue, dims: tuple[int, ...] | None, less: int, keepdims: bool) -> TensorValue:
    """Average the squares of the distances from the mean."""
    centred = made(tx, torch.sub, tensor, _averaged(tx, tensor, dims, True))
    squares = made(tx, torch.mul, centred, centred)
    expect_quiet(tx, squares, [tensor])
    return _averaged(tx, squares, dims, keepdims, less)


def _extreme(name: str) -> Callable[..., Value]:
    target = {"max": torch.amax, "min": torch.amin}[name]

    def handler(tx: Tracer, a: Value, axis: Any = None, *, keepdims: Any = False) -> Value:
        x = _array(tx, a).tensor
        dims = _axes(tx, x, axis, name)
        _refuse_empty(x, name)
        every = tuple(range(x.fake.dim())) if dims is None else dims
        keep = _keeps(keepdims)
        return result_of(made(tx, target, x, every, keep) if every else made(tx, "clone", x))

    return handler


def _peak_to_peak(tx: Tracer, a: Value, axis: Any = None, *, keepdims: Any = False) -> Value:
    high, low = (_extreme(name)(tx, a, axis, keepdims=keepdims) for name in ("max", "min"))
    return apply_ufunc(tx, np.subtract, [high, low])


def _place(name: str) -> Callable[..., Value]:
    target = {"argmax": torch.argmax, "argmin": torch.argmin}[name]

    def handler(tx: Tracer, a: Value, axis: Any = None, *, keepdims: Any = False) -> Value:
        x = _array(tx, a).tensor
        dims = _axes(tx, x, axis, name)
        _refuse_empty(x, name)
        if dims is not None and len(dims) > 1:
            raise Break("tracer.operation_raised", f"numpy.{name} is given several axes")
        x = made(tx, "to", x, torch.uint8) if x.fake.dtype is torch.bool else x
        if dims is None and not _keeps(keepdims):
            return result_of(made(tx, target, made(tx, "reshape", x, (-1,)), 0))
        if dims is None:
            raise Break("tracer.numpy", f"numpy.{name} keeps the dimensions of an array that it flattens")
        return result_of(made(tx, target, x, dims[0], _keeps(keepdims)))

    return handler


def _truth(name: str) -> Callable[..., Value]:
    target = {"all": torch.all, "any": torch.any}[name]

    def handler(tx: Tracer, a: Value, axis: Any = None, *, keepdims: Any = False) -> Value:
        x = _array(tx, a).tensor
        dims = _axes(tx, x, axis, name)
        every = tuple(range(x.fake.dim())) if dims is None else dims
        x = x if x.fake.dtype is torch.bool else made(tx, torch.ne, x, 0)
        keep = _keeps(keepdims)
        return result_of(made(tx, target, x, every, keep) if every else made(tx, "clone", x))

    return handler


def _count_nonzero(tx: Tracer, a: Value, axis: Any = None, *, keepdims: Any = False) -> Value:
    x = _array(tx, a).tensor
    dims = _axes(tx, x, axis, "count_nonzero")
    flags = made(tx, torch.ne, x, 0)
    every = tuple(range(x.fake.dim())) if dims is None else dims
    total = made(tx, torch.sum, flags, every, _keeps(keepdims), dtype=torch.int64)
    if dims is None and not _keeps(keepdims) and _counts_in_python():
        return do.call_method(tx, total, "item", [], {})
    return result_of(total)


@functools.cache
def _counts_in_python() -> bool:
    """Whether this numpy counts a whole array in an int of Python, as those before 2.4 do."""
    return type(np.count_nonzero(np.ones(2))) is int


def _running(name: str) -> Callable[..., Value]:
    target = {"cumsum": torch.cumsum, "cumprod": torch.cumprod}[name]

    def handler(tx: Tracer, a: Value, axis: Any = None, dtype: Any = None) -> Value:
        array = _array(tx, a)
        dims = _axes(tx, array.tensor, axis, name)
        x = cast(tx, array.tensor, _result_type(name, array, dtype))
        if dims is None:
            x, dims = made(tx, "reshape", x, (-1,)), (0,)
        found = made(tx, target, x, dims[0], dtype=x.fake.dtype)
        if found.fake.is_floating_point():
            expect_all(tx, made(tx, torch.isfinite, found))
        return ArrayValue(found)

    return handler


def _difference(tx: Tracer, a: Value, n: Any = 1, axis: Any = -1) -> Value:
    array = _array(tx, a)
    dims = _axes(tx, array.tensor, axis, "diff")
    if known(n) != 1 or dims is None:
        raise Break("tracer.numpy", f"numpy.diff is taken {known(n)} times")
    length = array.tensor.fake.shape[dims[0]] - 1
    if type(length) is int and length < 1:
        raise Break("tracer.numpy", "numpy.diff of at most one element")
    parts = [ArrayValue(made(tx, "narrow", array.tensor, dims[0], start, length)) for start in (1, 0)]
    return apply_ufunc(tx, np.not_equal if array.dtype == np.dtype(bool) else np.subtract, parts)


def _norm(tx: Tracer, x: Value, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Value:
    """The root of the sum of squares, which is what `ord=None` and `ord=2` of vectors mean."""
    array = _array(tx, x)
    dims, order = _axes(tx, array.tensor, axis, "linalg.norm"), known(ord)
    vector = len(dims if dims is not None else array.shape) == 1
    if order is not None and not (order == 2 and vector):
        raise Break("tracer.numpy", f"numpy.linalg.norm of order {order!r}")
    wanted = array.dtype if array.dtype.kind == "f" else np.dtype("float64")
    data = cast(tx, array.tensor, wanted)
    squares = made(tx, torch.mul, data, data)
    expect_quiet(tx, squares, [data])
    return result_of(made(tx, torch.sqrt, _summed(tx, "sum", squares, dims, _keeps(keepdims))))


#: Name of a function of numpy -> what it does; the names of its arguments are numpy's.
ROWS: MappingProxyType[str, Callable[..., Value]] = MappingProxyType(
    {
        "sum": _adding("sum"),
        "prod": _adding("prod"),
        "mean": _mean,
        "std": _variance("std"),
        "var": _variance("var"),
        "max": _extreme("max"),
        "min": _extreme("min"),
        "amax": _extreme("max"),
        "amin": _extreme("min"),
        "ptp": _peak_to_peak,
        "argmax": _place("argmax"),
        "argmin": _place("argmin"),
        "all": _truth("all"),
        "any": _truth("any"),
        "count_nonzero": _count_nonzero,
        "cumsum": _running("cumsum"),
        "cumprod": _running("cumprod"),
        "diff": _difference,
        "linalg.norm": _norm,
    }
)
