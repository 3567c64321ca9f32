"""Functions of numpy that make an array of several, of parts, or of the elements in another order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import iteration
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const, is_none
from intarsia_pyeval.values.sequences import Items, Tuple
from intarsia_tensorcapture.arrays.elementwise import apply_ufunc
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.operands import array_in, operand, stored, tensor_in, tensor_of
from intarsia_tensorcapture.arrays.recording import cast, expect_all, known, made, result_of, whole
from intarsia_tensorcapture.arrays.shaping import axis_of
from intarsia_tensorcapture.arrays.types import raising, torch_type
from intarsia_tensorcapture.arrays.values import ArrayValue, OfTensor
from intarsia_tensorcapture.tensor import TensorValue, recording_of

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["ROWS", "clipped"]


def _parts(tx: Tracer, arrays: Value, name: str) -> list[TensorValue]:
    """Return the arrays of a sequence as tensors of the type that numpy gives the result."""
    if isinstance(arrays, ArrayValue):
        raise Break("tracer.numpy", f"numpy.{name} is given one array, whose rows it joins")
    given = [a if isinstance(a, OfTensor) else array_in(tx, a) for a in iteration.unpack(tx, arrays)]
    if not given:
        raise Break("tracer.operation_raised", f"numpy.{name} of nothing")
    dtype = raising(lambda: np.result_type(*[a.dtype for a in given]), name)
    torch_type(dtype)
    return [cast(tx, a.tensor, dtype) for a in given]


def _concatenate(tx: Tracer, arrays: Value, axis: Any = 0) -> Value:
    return _joined(tx, _parts(tx, arrays, "concatenate"), axis, "concatenate")


def _joined(tx: Tracer, parts: Sequence[TensorValue], axis: Any, name: str) -> Value:
    if known(axis) is None:
        parts, axis = [made(tx, "reshape", part, (-1,)) for part in parts], 0
    ranks = {part.fake.dim() for part in parts}
    if ranks == {0} or len(ranks) > 1:  # torch takes any empty vector along
        raise Break("tracer.operation_raised", f"numpy.{name} joins arrays of {sorted(ranks)} axes")
    return ArrayValue(made(tx, torch.cat, list(parts), axis_of(axis, parts[0].fake.dim(), name)))


def _stack(tx: Tracer, arrays: Value, axis: Any = 0) -> Value:
    parts = _parts(tx, arrays, "stack")
    return ArrayValue(made(tx, torch.stack, parts, axis_of(axis, parts[0].fake.dim() + 1, "stack")))


def _vstack(tx: Tracer, tup: Value) -> Value:
    parts = _parts(tx, tup, "vstack")
    return _joined(tx, [made(tx, torch.atleast_2d, part) for part in parts], 0, "vstack")


def _hstack(tx: Tracer, tup: Value) -> Value:
    parts = [made(tx, torch.atleast_1d, part) for part in _parts(tx, tup, "hstack")]
    return _joined(tx, parts, 0 if parts[0].fake.dim() == 1 else 1, "hstack")


def _column_stack(tx: Tracer, tup: Value) -> Value:
    parts = _parts(tx, tup, "column_stack")
    if any(part.fake.dim() == 0 for part in parts):
        raise Break("tracer.numpy", "numpy.column_stack of scalars")
    return _joined(tx, [made(tx, "unsqueeze", p, 1) if p.fake.dim() == 1 else p for p in parts], 1, "column_stack")


def _where(tx: Tracer, condition: Value, x: Value | None = None, y: Value | None = None) -> Value:
    if x is None or y is None:
        raise Break("tracer.data_dependent", "numpy.where of a condition alone gives as many places as are true")
    chosen = tensor_in(tx, condition)
    chosen = chosen if chosen.fake.dtype is torch.bool else made(tx, torch.ne, chosen, 0)
    given = [operand(tx, value) if not _is_tensor(value) else operand(tx, array_in(tx, value)) for value in (x, y)]
    dtype = raising(lambda: np.result_type(*[_kind_of(g.dtype) for g in given]), "where")
    torch_type(dtype)
    return ArrayValue(made(tx, torch.where, chosen, *[tensor_of(tx, g, dtype) for g in given]))


def _is_tensor(value: Value) -> bool:
    return issubclass(value.type(), torch.Tensor)


def _kind_of(dtype: Any) -> Any:
    """Return what stands for a number of Python where types are promoted."""
    return {int: 0, float: 0.0}.get(dtype, dtype)


def _clip(tx: Tracer, a: Value, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Value:
    given = [limit is not None for limit in (a_min, a_max)]
    if not any(given):
        return clipped(tx, a, min, max)
    if not all(given) or min is not None or max is not None:
        raise Break("tracer.operation_raised", "numpy.clip is given one limit by its place, or one twice")
    return clipped(tx, a, a_min, a_max)


def clipped(tx: Tracer, array: Value, min: Any = None, max: Any = None) -> Value:
    """Model `a.clip(min, max)`."""
    ends = [None if not isinstance(end, Value) or is_none(end) else end for end in (min, max)]
    if ends == [None, None]:
        raise Break("tracer.numpy", "numpy.clip is given no limit")
    values = [array, *[end for end in ends if end is not None]]
    if len(values) == 2:
        return apply_ufunc(tx, np.minimum if ends[0] is None else np.maximum, values)
    given = [operand(tx, value) for value in values]
    dtype = raising(lambda: np.result_type(*[_kind_of(g.dtype) for g in given]), "clip")
    torch_type(dtype)
    x, above, below = (tensor_of(tx, g, dtype) for g in given)
    return result_of(made(tx, torch.minimum, made(tx, torch.maximum, x, above), below))


def _tile(tx: Tracer, array: Value, reps: Value) -> Value:
    given = known(reps)
    return ArrayValue(
        made(tx, torch.tile, tensor_in(tx, array), tuple(whole(times, "tile") for times in _sequence(given)))
    )


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def _repeat(tx: Tracer, a: Value, repeats: Value, axis: Any = None) -> Value:
    if not isinstance(known(repeats), (int, np.integer)):
        raise Break("tracer.numpy", "numpy.repeat by another number for each element")
    x, at = tensor_in(tx, a), known(axis)
    if at is None:
        x, at = made(tx, "reshape", x, (-1,)), 0
    return ArrayValue(made(tx, torch.repeat_interleave, x, int(known(repeats)), axis_of(at, x.fake.dim(), "repeat")))


def _roll(tx: Tracer, a: Value, shift: Value, axis: Any = None) -> Value:
    x, at, by = tensor_in(tx, a), known(axis), known(shift)
    if isinstance(by, tuple) or isinstance(at, tuple) or x.fake.dim() == 0:
        raise Break("tracer.numpy", "numpy.roll along several axes")
    if at is None:
        return ArrayValue(made(tx, torch.roll, x, int(by)))
    return ArrayValue(made(tx, torch.roll, x, int(by), axis_of(at, x.fake.dim(), "roll")))


def _pad(tx: Tracer, array: Value, pad_width: Value, mode: Any = "constant", *, constant_values: Any = 0) -> Value:
    x, fill = array_in(tx, array), known(constant_values)
    if known(mode) != "constant" or isinstance(fill, (tuple, list)):
        raise Break("tracer.numpy", f"numpy.pad with the mode {known(mode)!r}")
    widths = raising(lambda: np.broadcast_to(known(pad_width), (x.tensor.fake.dim(), 2)), "pad")
    if widths.dtype.kind not in "iu":
        raise Break("tracer.operation_raised", f"numpy.pad by widths of type {widths.dtype}")
    if widths.min(initial=0) < 0:
        raise Break("tracer.operation_raised", "numpy.pad by a negative width")
    flat = [int(n) for pair in reversed(widths.tolist()) for n in pair]
    number = stored(fill, x.dtype, casting=True)
    return ArrayValue(made(tx, torch.nn.functional.pad, x.tensor, flat, "constant", number))


def _triangle(name: str) -> Callable[..., Value]:
    target = {"tril": torch.tril, "triu": torch.triu}[name]

    def handler(tx: Tracer, m: Value, k: Any = 0) -> Value:
        x = tensor_in(tx, m)
        if x.fake.dim() < 2:
            raise Break("tracer.numpy", f"numpy.{name} of an array of {x.fake.dim()} axes")
        return ArrayValue(made(tx, target, x, whole(k, name)))

    return handler


def _sort(tx: Tracer, a: Value, axis: Any = -1, kind: Any = None) -> Value:
    x = tensor_in(tx, a)
    if known(axis) is None:
        x, axis = made(tx, "reshape", x, (-1,)), 0
    found = made_first(tx, torch.sort, x, axis_of(axis, x.fake.dim(), "sort"))
    return ArrayValue(found)


def _argsort(tx: Tracer, a: Value, axis: Any = -1, kind: Any = None, *, stable: Any = None) -> Value:
    """Sort with the places of the elements; where two are equal only a stable order is the same everywhere."""
    x = tensor_in(tx, a)
    if known(axis) is None:
        x, axis = made(tx, "reshape", x, (-1,)), 0
    dim = axis_of(axis, x.fake.dim(), "argsort")
    if known(kind) in ("stable", "mergesort") or known(stable):
        return ArrayValue(made(tx, torch.argsort, x, dim=dim, stable=True))
    if x.fake.dtype is torch.bool:
        raise Break("tracer.numpy", "numpy.argsort of truths, most of which are equal, in no stable order")
    size = x.fake.shape[dim]
    if type(size) is not int:
        raise Break("tracer.numpy", "numpy.argsort along an axis whose size changes, in no stable order")
    if size > 1:
        ordered = made_first(tx, torch.sort, x, dim)
        lower, upper = (made(tx, "narrow", ordered, dim, start, size - 1) for start in (0, 1))
        expect_all(tx, made(tx, torch.lt, lower, upper), "numpy puts equal elements in an order of its own")
    return ArrayValue(made(tx, torch.argsort, x, dim=dim))


def made_first(tx: Tracer, target: Any, tensor: TensorValue, dim: int) -> TensorValue:
    """Record an operation that gives several tensors, and return the first one."""
    found = recording_of(tx).record(tx, "call_function", target, [tensor, Const(dim)], {})
    assert isinstance(found, Items) and isinstance(found.items[0], TensorValue)
    return found.items[0]


def _round(tx: Tracer, a: Value, decimals: Any = 0) -> Value:
    digits = known(decimals)
    x = a if isinstance(a, OfTensor) else array_in(tx, a)
    if digits == 0 and x.dtype.kind == "f":
        return apply_ufunc(tx, np.rint, [x])
    if digits >= 0 and x.dtype.kind in "iu":
        if isinstance(a, ArrayValue) and _rounds_in_place():
            return a
        return result_of(made(tx, "clone", x.tensor))
    if x.dtype.kind != "f" or not 0 < digits < 20:
        raise Break("tracer.numpy", f"numpy.round of {x.dtype} to {digits} digits")
    scale = Const(10.0**digits)
    raised = apply_ufunc(tx, np.multiply, [x, scale])
    return apply_ufunc(tx, np.divide, [apply_ufunc(tx, np.rint, [raised]), scale])


@functools.cache
def _rounds_in_place() -> bool:
    """Whether this numpy gives an array of integers itself back, as those before 2.4 do."""
    integers = np.zeros(1, "int64")
    return bool(np.round(integers) is integers)


def _nan_to_num(
    tx: Tracer, x: Value, copy: Any = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Value:
    array = x if isinstance(x, OfTensor) else array_in(tx, x)
    if not known(copy) or array.dtype.kind != "f":
        raise Break("tracer.numpy", f"numpy.nan_to_num of {array.describe()}, or in place")
    fills = [None if known(v) is None else float(known(v)) for v in (nan, posinf, neginf)]
    return result_of(made(tx, torch.nan_to_num, array.tensor, *fills))


def _meshgrid(tx: Tracer, *xi: Value, indexing: Any = "xy", copy: Any = True, sparse: Any = False) -> Value:
    if not known(copy) or known(sparse):
        raise Break("tracer.numpy", "numpy.meshgrid without copies, or sparse")
    parts = [made(tx, "reshape", tensor_in(tx, x), (-1,)) for x in xi]
    order = known(indexing)
    swap = order == "xy" and len(parts) > 1
    rank = len(parts)
    shape = [part.fake.shape[0] for part in parts]
    found = []
    for place, part in enumerate(parts):
        view = made(tx, "reshape", part, tuple(-1 if d == place else 1 for d in range(rank)))
        grid = made(tx, "expand", view, tuple(shape))
        grid = made(tx, "transpose", grid, 0, 1) if swap else grid
        found.append(ArrayValue(made(tx, "clone", grid, memory_format=torch.contiguous_format)))
    return Tuple(found)


#: Name of a function of numpy -> what it does; the names of its arguments are numpy's.
ROWS: MappingProxyType[str, Callable[..., Value]] = MappingProxyType(
    {
        "concatenate": _concatenate,
        "concat": _concatenate,
        "stack": _stack,
        "vstack": _vstack,
        "hstack": _hstack,
        "column_stack": _column_stack,
        "where": _where,
        "clip": _clip,
        "tile": _tile,
        "repeat": _repeat,
        "roll": _roll,
        "pad": _pad,
        "tril": _triangle("tril"),
        "triu": _triangle("triu"),
        "sort": _sort,
        "argsort": _argsort,
        "round": _round,
        "around": _round,
        "nan_to_num": _nan_to_num,
        "meshgrid": _meshgrid,
    }
)
