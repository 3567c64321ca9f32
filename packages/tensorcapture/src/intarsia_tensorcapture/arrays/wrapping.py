"""Modelling what exists of numpy: arrays by the tensor on their memory, scalars and types by what they are."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from intarsia_ir.guards import ConstantGuard, IdentityGuard, TypeGuard
from intarsia_ir.records import Source
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.objects import Foreign
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.types import TORCH_TYPES
from intarsia_tensorcapture.arrays.values import ArrayValue, NumpyFunction, NumpyNumber, NumpyType
from intarsia_tensorcapture.tensor import TensorValue, recording_of

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["foreign_of_numpy", "wrap_numpy"]


_DISPATCHER: Any = type(np.sum) if np is not None else None


def wrap_numpy(tx: Tracer, value: Any, source: Source | None) -> Value | None:
    """Model an object of numpy; None for others, and for arrays that aren't traced."""
    if np is None:
        return None
    kind = type(value)
    if kind is np.ndarray:
        return _array(tx, value, source) if why_not(value) is None else None
    if issubclass(kind, np.generic):
        return _number(tx, value, source)
    if issubclass(kind, np.dtype):
        if source is not None:
            tx.guards.add(IdentityGuard, source, value)
        return NumpyType(value, source)
    if kind in (np.ufunc, _DISPATCHER) and kind is not types.FunctionType:
        if source is not None:
            tx.guards.add(IdentityGuard, source, value)
        return NumpyFunction(value, source)
    return None


def _array(tx: Tracer, value: Any, source: Source | None) -> Value:
    if source is not None:
        tx.guards.add(TypeGuard, source, np.ndarray)
    place = None if source is None else tx.sources.array(source)
    tensor = TensorValue(recording_of(tx), None, None, torch.from_numpy(value), place)
    return ArrayValue(tensor, value, source)


def _number(tx: Tracer, value: Any, source: Source | None) -> Value | None:
    if value.dtype not in TORCH_TYPES:
        return None
    if source is not None:
        tx.guards.add(ConstantGuard, source, value)
    return NumpyNumber(value)


def why_not(array: Any) -> str | None:
    """Say what keeps an array from being traced, in a few words; None: nothing does."""
    if not array.flags.writeable:
        return "an array that can't be written"
    ours = TORCH_TYPES.get(array.dtype)
    if ours is None or np.dtype(array.dtype.name) is not array.dtype:
        return f"an array of type {array.dtype}"
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        return f"an array with the strides {array.strides}"
    return None


def foreign_of_numpy(value: Any) -> Foreign | None:
    """Say what is special about an array that isn't traced."""
    if np is None or not issubclass(type(value), np.ndarray):
        return None
    kind = type(value)
    what = f"an array of the subclass {kind.__module__}.{kind.__qualname__}" if kind is not np.ndarray else None
    return Foreign("tracer.array_input", what or why_not(value) or "an array")
