"""Element types: numpy's and torch's, and those that numpy chooses for the results of its functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import torch

from intarsia_pyeval.breaks import Break
from intarsia_tensorcapture.arrays.installed import np

__all__ = ["NAMES", "NUMPY_TYPES", "TORCH_TYPES", "loop_of", "numpy_type", "torch_type"]


_NAMES = "bool uint8 int8 int16 int32 int64 float16 float32 float64"
#: Names of the types whose arrays are modelled: torch has few operations on the others.
NAMES = tuple(_NAMES.split()) if np is not None else ()
#: numpy's type -> torch's.
TORCH_TYPES = MappingProxyType({np.dtype(name): getattr(torch, name) for name in NAMES})
#: torch's type -> numpy's.
NUMPY_TYPES = MappingProxyType({ours: theirs for theirs, ours in TORCH_TYPES.items()})


def torch_type(dtype: Any) -> torch.dtype:
    """Return torch's type for one of numpy's; others break."""
    found: torch.dtype | None = TORCH_TYPES.get(dtype)
    if found is None:
        raise Break("tracer.array_input", f"an array has the type {dtype}")
    return found


def numpy_type(dtype: torch.dtype) -> Any:
    """Return numpy's type for one of torch's; others break: numpy has none, or arrays of it aren't modelled."""
    found = NUMPY_TYPES.get(dtype)
    if found is None:
        raise Break("tracer.array_input", f"an array would have the type {dtype}")
    return found


def loop_of(function: Any, operands: Sequence[Any], dtype: Any = None) -> tuple[Any, ...]:
    """Return the types in which a ufunc computes: of its operands, then of its result.

    Args:
        function: The ufunc.
        operands: A type of numpy for each operand; `int` or `float` for a number of Python.
        dtype: That of the result, where the program names one.

    Raises:
        Break: numpy has no such loop, and raises.
    """
    outputs = (None,) * function.nout
    named = (*(None,) * function.nin, *(dtype,) * function.nout)
    found = raising(lambda: function.resolve_dtypes((*operands, *outputs), signature=named), function.__name__)
    return tuple(found)


def raising(function: Callable[[], Any], name: str) -> Any:
    """Return what a function gives; where it raises, the program does, at the break."""
    try:
        return function()
    except (TypeError, ValueError, ArithmeticError, IndexError) as error:
        raise Break("tracer.operation_raised", f"numpy.{name} raises {type(error).__name__}: {error}") from None
