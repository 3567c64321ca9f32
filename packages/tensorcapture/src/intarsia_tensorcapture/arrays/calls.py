"""Calls of numpy's functions: by the tables, by numpy itself where all is known, or not at all."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import operators
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value
from intarsia_pyeval.values.constants import Const, is_none
from intarsia_pyeval.values.numbers import ChangingNumber
from intarsia_pyeval.values.sequences import Items
from intarsia_tensorcapture.arrays import joining, making, products, reducing, shaping
from intarsia_tensorcapture.arrays.elementwise import apply_ufunc, written_into
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.making import scalar, type_given
from intarsia_tensorcapture.arrays.operands import holds_tensor
from intarsia_tensorcapture.arrays.recording import folded
from intarsia_tensorcapture.arrays.values import ArrayValue, NumpyFunction, NumpyType, OfTensor, ProductOfSizes
from intarsia_tensorcapture.numbers import SymbolicNumber

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["ROWS", "call_numpy", "is_of_numpy", "row_of"]


#: Name of a function of numpy -> what it does. Ufuncs are called by `apply_ufunc`.
ROWS: Mapping[str, Callable[..., Value]] = {
    **making.ROWS,
    **shaping.ROWS,
    **joining.ROWS,
    **reducing.ROWS,
    **products.ROWS,
}
#: Functions that numpy itself computes where all is known: their results depend on nothing else.
_FOLDED = """
    arange array asarray ascontiguousarray can_cast ceil clip concatenate cumsum cumprod dot dtype eye fix floor full
    identity isclose isscalar issubdtype linspace max mean min amax amin ndim ones prod promote_types result_type round
    around shape size stack std sum var where zeros allclose array_equal argmax argmin all any diff median sort unique
    broadcast_shapes outer meshgrid repeat tile triu tril polyval interp hstack vstack ravel_multi_index ediff1d trunc
    linalg.norm transpose reshape flip roll expand_dims squeeze hanning hamming blackman bartlett kaiser sinc nan_to_num
    finfo iinfo argsort count_nonzero
"""


def _named(path: str) -> Any:
    return functools.reduce(lambda owner, name: getattr(owner, name, None), path.split("."), np)


@functools.cache
def _by_function() -> Mapping[Any, str]:
    """Return numpy's functions -> the names of their rows."""
    names = [name for name in ROWS if not name.startswith("ndarray.")]
    return {_named(name): name for name in names if _named(name) is not None}


@functools.cache
def _known() -> frozenset[Any]:
    return frozenset(found for found in map(_named, _FOLDED.split()) if found is not None)


def row_of(function: Any) -> Callable[..., Value] | None:
    """Return the row of a function of numpy, if it has one."""
    name = _by_function().get(function)
    return None if name is None else ROWS[name]


def is_of_numpy(function: Any) -> bool:
    """Tell whether a callable belongs to numpy."""
    module = getattr(function, "__module__", None)
    if isinstance(function, types.BuiltinFunctionType) and module is None:
        module = type(function.__self__).__module__
    return isinstance(module, str) and module.partition(".")[0] == "numpy"


def call_numpy(tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Model a call of a function or class of numpy; None when it isn't numpy's.

    Raises:
        Break: It has no torch form.
    """
    if np is None or not is_of_numpy(function) or isinstance(function, np.errstate):
        return None
    if function in (np.iinfo.min.fget, np.iinfo.max.fget):  # written in Python, on numbers
        return None
    values = [*args, *keywords.values()]
    if not any(map(holds_tensor, values)):
        found = _without_arrays(tx, function, args, keywords)
        if found is not None:
            return found
    elif isinstance(function, type) and issubclass(function, np.generic) and len(values) == 1:
        return scalar(function)(tx, *args)
    if isinstance(function, np.ufunc) and function is not np.matmul:
        return _ufunc(tx, function, args, keywords)
    row = row_of(function)
    if row is None:
        raise Break("tracer.numpy", f"{NumpyFunction(function).describe()} has no torch form")
    return bound(tx, row, function.__name__, args, keywords)


def bound(tx: Tracer, row: Callable[..., Value], name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a row with the arguments of numpy's function."""
    given = {k: v for k, v in keywords.items() if not _is_absent(k, v)}
    out = given.pop("out", None)
    try:
        inspect.signature(row).bind(tx, *args, **given)
    except TypeError as error:
        raise Break("tracer.numpy", f"numpy.{name} is called with what isn't modelled: {error}") from None
    found = row(tx, *args, **given)
    return found if out is None else _stored(tx, out, found, name)


_ABSENT = frozenset({"out", "where", "initial", "like", "order", "subok", "device", "casting", "dtype"})
_NOT_NONE = frozenset({"where", "initial", "subok", "casting"})  # None is a choice of its own


def _is_absent(name: str, value: Value) -> bool:
    """Tell whether an argument is numpy's default, whatever that does."""
    return name in _ABSENT and (value.identity() is np._NoValue or (is_none(value) and name not in _NOT_NONE))


def _stored(tx: Tracer, out: Value, found: Value, name: str) -> Value:
    """Write a result to `out`, which has its type and shape: another type may be computed in, another shape be refused.

    Not of a ufunc, which broadcasts its result to `out`.
    """
    assert isinstance(found, OfTensor)
    if not isinstance(out, ArrayValue):
        raise Break("tracer.numpy", f"numpy writes to {out.describe()}")
    alike = (out.dtype, *out.shape) == (found.dtype, *found.shape)
    if not alike or not out.tensor.fake.is_contiguous():
        raise Break("tracer.numpy", f"numpy.{name} gives {found.describe()} and writes to {out.describe()}")
    written_into(tx, out, found)
    return out


def _ufunc(tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a ufunc: with `out` and `dtype`, or with an array to write as its last argument."""
    named = {k: v for k, v in keywords.items() if not is_none(v)}
    out, dtype = named.pop("out", None), type_given(named.pop("dtype", None))
    if named:
        raise Break("tracer.numpy", f"numpy.{function.__name__} is called with {', '.join(named)}")
    if len(args) == function.nin + 1 and out is None:
        args, out = args[:-1], None if is_none(args[-1]) else args[-1]
    found = apply_ufunc(tx, function, args, dtype)
    if out is None:
        return found
    if not isinstance(out, ArrayValue):
        raise Break("tracer.numpy", f"numpy writes to {out.describe()}")
    written_into(tx, out, found)
    return out


def _without_arrays(tx: Tracer, function: Any, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Model a call on numbers, types and lists of them; None: the tables say what is made."""
    if function is np.prod and len(args) == 1 and not keywords:
        product = _product(tx, args[0])
        if product is not None:
            return product
    made = getattr(function, "__name__", "")
    opened = any(not isinstance(v, (Const, NumpyType)) and _is_open(v) for v in (*args, *keywords.values()))
    if opened and made in making.ROWS:
        return None
    scalars = isinstance(function, type) and issubclass(function, (np.generic, np.dtype))
    if not (scalars or isinstance(function, np.ufunc) or function in _known()):
        return None
    if made in ("zeros", "ones", "full", "eye", "identity", "arange", "linspace", "empty"):
        return None
    try:
        real = [a.as_python() for a in args]
        named = {k: v.as_python() for k, v in keywords.items()}
    except NotConstantError as unknown:
        raise Break("tracer.numpy", f"{NumpyFunction(function).describe()} is called with {unknown}") from None
    return folded(tx, function, *real, **named)


def _product(tx: Tracer, sizes: Value) -> Value | None:
    """Multiply sizes of which one changes; None: they are something else."""
    if not isinstance(sizes, Items) or not any(isinstance(n, SymbolicNumber) for n in sizes.items):
        return None
    if any(n.type() is not int for n in sizes.items):
        return None
    found = functools.reduce(lambda a, b: operators.binary(tx, "*", a, b), sizes.items)
    return ProductOfSizes(found) if isinstance(found, SymbolicNumber) else None


def _is_open(value: Value) -> bool:
    if isinstance(value, Items):
        return any(map(_is_open, value.items))
    return isinstance(value, ChangingNumber)
