"""Functions of numpy that make arrays: of numbers, of nothing, of what is there."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import is_none
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.operands import array_in, holds_tensor, operand, stored, tensor_of
from intarsia_tensorcapture.arrays.recording import CPU, cast, expect_all, known, made, whole
from intarsia_tensorcapture.arrays.shaping import sizes_in
from intarsia_tensorcapture.arrays.types import TORCH_TYPES, raising, torch_type
from intarsia_tensorcapture.arrays.values import ArrayValue, OfTensor, ScalarValue
from intarsia_tensorcapture.numbers import SymbolicNumber
from intarsia_tensorcapture.tensor import TensorValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["ROWS", "converted", "type_given"]


def type_given(dtype: Any, default: Any = None) -> Any:
    """Return the type that an argument names; None, and what isn't given, is `default`."""
    given = known(dtype)
    if given is None:
        return default
    found = raising(lambda: np.dtype(given), "dtype")
    torch_type(found)
    return found


def _is_of(wanted: Any, dtype: Any) -> bool:
    """Tell whether no other type is wanted: types of numpy are equal to None where that stands for float64."""
    return wanted is None or bool(wanted == dtype)


def converted(tx: Tracer, tensor: TensorValue, dtype: Any) -> TensorValue:
    """Return a new tensor of a type, in memory of its own."""
    if TORCH_TYPES[dtype] == tensor.fake.dtype:
        return made(tx, "clone", tensor)
    return cast(tx, tensor, dtype)


def _array(tx: Tracer, object: Value, dtype: Any = None, *, copy: Any = True, ndmin: Any = 0) -> Value:
    if known(copy) is not True or known(ndmin) != 0:
        raise Break("tracer.numpy", "numpy.array with copy or ndmin")
    if isinstance(object, TensorValue):  # numpy warns that torch has no copy= yet
        raise Break("tracer.numpy", "numpy.array of a tensor")
    wanted = type_given(dtype)
    if isinstance(object, OfTensor):
        return ArrayValue(converted(tx, object.tensor, object.dtype if wanted is None else wanted))
    return _of_numbers(tx, object, wanted)


def _of_numbers(tx: Tracer, data: Value, wanted: Any) -> ArrayValue:
    """Make an array of numbers and lists of them."""
    if isinstance(data, SymbolicNumber) and data.type() is int and _is_of(wanted, np.dtype("int64")):
        return ArrayValue(made(tx, torch.full, (), data, dtype=torch.int64, device=CPU))
    if not holds_tensor(data):
        return array_in(tx, data, wanted)
    array = array_in(tx, data)
    return array if wanted is None else ArrayValue(cast(tx, array.tensor, wanted))


def _asarray(tx: Tracer, a: Value, dtype: Any = None, order: Any = None) -> Value:
    wanted = type_given(dtype)
    if known(order) not in (None, "K", "C"):
        raise Break("tracer.numpy", f"numpy.asarray in the order {known(order)!r}")
    if known(order) == "C" and isinstance(a, (OfTensor, TensorValue)):
        return _contiguous(tx, a, dtype)
    if not isinstance(a, (OfTensor, TensorValue)):
        return _of_numbers(tx, a, wanted)
    array = array_in(tx, a)
    return array if _is_of(wanted, array.dtype) else ArrayValue(cast(tx, array.tensor, wanted))


def _contiguous(tx: Tracer, a: Value, dtype: Any = None) -> Value:
    array = _asarray(tx, a, dtype)
    assert isinstance(array, ArrayValue)
    if array.tensor.fake.dim() == 0:
        raise Break("tracer.numpy", "numpy.ascontiguousarray of an array without axes")
    if array.tensor.fake.is_contiguous():
        return array
    return ArrayValue(made(tx, "clone", array.tensor, memory_format=torch.contiguous_format))


def _copy(tx: Tracer, a: Value) -> Value:
    array = array_in(tx, a)
    return ArrayValue(made(tx, "clone", array.tensor, memory_format=torch.contiguous_format))


def _filled(number: float) -> Callable[..., Value]:
    def handler(tx: Tracer, shape: Value, dtype: Any = None, order: Any = "C") -> Value:
        wanted = type_given(dtype, np.dtype("float64"))
        if known(order) != "C":
            raise Break("tracer.numpy", f"numpy makes an array in the order {known(order)!r}")
        return _full_of(tx, shape, stored(number, wanted), wanted)

    return handler


def _full_of(tx: Tracer, shape: Value, number: Any, dtype: Any) -> ArrayValue:
    sizes = tuple(sizes_in(tx, shape))
    return ArrayValue(made(tx, torch.full, sizes, number, dtype=TORCH_TYPES[dtype], device=CPU))


def _full(tx: Tracer, shape: Value, fill_value: Value, dtype: Any = None) -> Value:
    given = operand(tx, fill_value)
    if given.tensor is not None or isinstance(given.number, Value):
        raise Break("tracer.numpy", f"numpy.full of {fill_value.describe()}")
    wanted = type_given(dtype, np.asarray(given.number).dtype)
    return _full_of(tx, shape, stored(given.number, wanted, casting=True), wanted)


def _like(number: float) -> Callable[..., Value]:
    def handler(tx: Tracer, a: Value, dtype: Any = None) -> Value:
        array = a if isinstance(a, OfTensor) else array_in(tx, a)
        wanted = type_given(dtype, array.dtype)
        filled = made(tx, torch.full_like, array.tensor, stored(number, wanted), dtype=TORCH_TYPES[wanted])
        return ArrayValue(filled)

    return handler


def _full_like(tx: Tracer, a: Value, fill_value: Value, dtype: Any = None) -> Value:
    array, given = array_in(tx, a), operand(tx, fill_value)
    if given.tensor is not None or isinstance(given.number, Value):
        raise Break("tracer.numpy", f"numpy.full_like of {fill_value.describe()}")
    wanted = type_given(dtype, array.dtype)
    number = stored(given.number, wanted, casting=True)
    return ArrayValue(made(tx, torch.full_like, array.tensor, number, dtype=TORCH_TYPES[wanted]))


def _empty_like(tx: Tracer, prototype: Value, dtype: Any = None) -> Value:
    return _like(0)(tx, prototype, dtype)  # whatever was there: zeros, for one


def _eye(tx: Tracer, n: Value, m: Any = None, k: Any = 0, dtype: Any = None) -> Value:
    wanted = type_given(dtype, np.dtype("float64"))
    if known(k) != 0:
        raise Break("tracer.numpy", "numpy.eye off the diagonal")
    columns = n if m is None or is_none(m) else m
    return ArrayValue(made(tx, torch.eye, n, columns, dtype=TORCH_TYPES[wanted], device=CPU))


def _identity(tx: Tracer, n: Value, dtype: Any = None) -> Value:
    return _eye(tx, n, None, 0, dtype)


def _arange(tx: Tracer, *args: Value, dtype: Any = None) -> Value:
    given = list(args)
    if len(given) == 4:
        dtype = given.pop()
    if not 1 <= len(given) <= 3:
        raise Break("tracer.operation_raised", f"numpy.arange is given {len(given)} numbers")
    wanted = type_given(dtype)
    whole = all(isinstance(a, SymbolicNumber) or type(known(a)) is int for a in given)
    if whole and _is_of(wanted, np.dtype("int64")):
        return ArrayValue(made(tx, torch.arange, *given, dtype=torch.int64, device=CPU))
    numbers = [known(a) for a in given]
    found = raising(lambda: np.arange(*numbers, dtype=wanted), "arange")
    torch_type(found.dtype)
    if found.size < 2 or found.dtype.kind == "b":
        return array_in(tx, tx.live.from_python(found.tolist()), found.dtype)
    return _from(tx, found.size, found[0], found[1] - found[0], found.dtype)


def _from(tx: Tracer, count: int, first: Any, step: Any, dtype: Any) -> ArrayValue:
    """Make `first + i * step`, as numpy computes it."""
    if dtype.kind not in "iu" and dtype != np.dtype("float64"):
        raise Break("tracer.numpy", f"numpy.arange of type {dtype}")
    ours = TORCH_TYPES[dtype]
    places = made(tx, torch.arange, count, dtype=ours, device=CPU)
    scaled = made(tx, torch.mul, places, step.item())
    return ArrayValue(made(tx, torch.add, scaled, first.item()))


def _linspace(
    tx: Tracer, start: Value, stop: Value, num: Any = 50, endpoint: Any = True, retstep: Any = False, dtype: Any = None
) -> Value:
    numbers = [known(start), known(stop), whole(num, "linspace"), known(endpoint)]
    if known(retstep) or any(not np.isscalar(n) for n in numbers):
        raise Break("tracer.numpy", "numpy.linspace of arrays, or with its step")
    first, last, count, closed = numbers
    computed = raising(lambda: np.linspace(first, last, 1).dtype, "linspace")
    wanted = type_given(dtype, computed)
    parts = count - 1 if closed else count
    if parts < 1 or first == last or wanted.kind != "f" or computed != np.dtype("float64"):
        exact = raising(lambda: np.linspace(*numbers, dtype=wanted), "linspace")
        return array_in(tx, tx.live.from_python(exact.tolist()), exact.dtype)
    step = (float(last) - float(first)) / parts
    places = made(tx, torch.arange, count, dtype=torch.float64, device=CPU)
    found = made(tx, torch.add, made(tx, torch.mul, places, step), float(first))
    if closed:
        end = made(tx, torch.full, (1,), float(last), dtype=torch.float64, device=CPU)
        found = made(tx, torch.cat, [made(tx, "narrow", found, 0, 0, parts), end])
    return ArrayValue(cast(tx, found, wanted))


def _astype(tx: Tracer, x: Value, dtype: Value, *, copy: Any = True) -> Value:
    assert isinstance(x, OfTensor)
    wanted = type_given(dtype, np.dtype("float64"))
    if known(copy) is not True:
        raise Break("tracer.numpy", "astype without a copy")
    found = converted(tx, x.tensor, wanted)
    return ScalarValue(found) if isinstance(x, ScalarValue) else ArrayValue(found)


def scalar(cls: Any) -> Callable[..., Value]:
    """Return what a class of scalars makes of its argument: of arrays and tensors; of numbers numpy itself."""

    def handler(tx: Tracer, x: Any = None) -> Value:
        dtype = np.dtype(cls)
        torch_type(dtype)
        tensor = x.tensor if isinstance(x, OfTensor) else x
        assert isinstance(tensor, TensorValue)
        if isinstance(x, TensorValue):
            raise Break("tracer.tensor_value", f"numpy.{dtype} of a tensor")
        found = converted(tx, tensor, dtype)
        return ScalarValue(found) if found.fake.dim() == 0 else ArrayValue(found)

    return handler


def _isclose(tx: Tracer, a: Value, b: Value, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: Any = False) -> Value:
    """|a - b| <= atol + rtol * |b|, and equal infinities; in single or double precision, as numpy computes it."""
    given = [operand(tx, v) for v in (a, b)]
    types = [g.dtype for g in given]
    if known(equal_nan) or any(
        t not in (np.dtype("float32"), np.dtype("float64")) for t in types if t not in (int, float)
    ):
        raise Break("tracer.numpy", f"numpy.isclose of {types}")
    dtype = np.result_type(*[{int: 0, float: 0.0}.get(t, t) for t in types])
    x, y = (tensor_of(tx, g, dtype) for g in given)
    for tensor in (x, y):
        expect_all(tx, made(tx, torch.isfinite, tensor))
    limit = made(tx, torch.add, made(tx, torch.mul, made(tx, torch.abs, y), float(known(rtol))), float(known(atol)))
    near = made(tx, torch.le, made(tx, torch.abs, made(tx, torch.sub, x, y)), limit)
    return ScalarValue(near) if near.fake.dim() == 0 else ArrayValue(near)


#: Name of a function of numpy -> what it does; the names of its arguments are numpy's.
ROWS: MappingProxyType[str, Callable[..., Value]] = MappingProxyType(
    {
        "array": _array,
        "asarray": _asarray,
        "asanyarray": _asarray,
        "ascontiguousarray": _contiguous,
        "copy": _copy,
        "zeros": _filled(0),
        "ones": _filled(1),
        "empty": _filled(0),
        "full": _full,
        "zeros_like": _like(0),
        "ones_like": _like(1),
        "empty_like": _empty_like,
        "full_like": _full_like,
        "eye": _eye,
        "identity": _identity,
        "arange": _arange,
        "linspace": _linspace,
        "astype": _astype,
        "isclose": _isclose,
    }
)
