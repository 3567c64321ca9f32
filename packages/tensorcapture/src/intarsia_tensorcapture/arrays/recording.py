"""Recording torch operations for numpy: by plain Python arguments; what is known is computed by numpy itself."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.sequences import List, Tuple
from intarsia_tensorcapture.arrays.installed import np
from intarsia_tensorcapture.arrays.types import TORCH_TYPES
from intarsia_tensorcapture.arrays.values import ArrayValue, ScalarValue
from intarsia_tensorcapture.tensor import TensorValue, recording_of

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = [
    "cast",
    "constant_array",
    "expect_all",
    "expect_quiet",
    "folded",
    "known",
    "made",
    "result_of",
    "shared_by",
    "whole",
]


CPU = torch.device("cpu")
_MOST = 4096  # elements of an array that a graph spells


def made(tx: Tracer, target: Any, *args: Any, **keywords: Any) -> TensorValue:
    """Record an operation that gives a tensor: a function, or a method by its name.

    Args:
        tx: The capture.
        target: What a node calls.
        args: Models, plain Python values, or lists and tuples of both.
        keywords: As before.
    """
    if torch.is_autocast_enabled("cpu"):
        raise Break("tracer.numpy", "numpy computes where autocast is on, which it doesn't follow")
    kind = "call_method" if isinstance(target, str) else "call_function"
    models = [_model(tx, arg) for arg in args]
    named = {name: _model(tx, arg) for name, arg in keywords.items()}
    found = recording_of(tx).record(tx, kind, target, models, named)
    assert isinstance(found, TensorValue)
    return found


def _model(tx: Tracer, value: Any) -> Value:
    if isinstance(value, Value):
        return value
    if isinstance(value, (list, tuple)):
        items = [_model(tx, item) for item in value]
        return List(items) if isinstance(value, list) else Tuple(items)
    if isinstance(value, float) and not math.isfinite(value):
        recording_of(tx).infinite = True
    return tx.live.from_python(value)


def result_of(tensor: TensorValue) -> Value:
    """Return what most functions of numpy give: a scalar for what has no dimension, else an array."""
    return ScalarValue(tensor) if tensor.fake.dim() == 0 else ArrayValue(tensor)


def known(value: Any) -> Any:
    """Return an argument that must be known, or a default, as a Python object."""
    return value.as_python() if isinstance(value, Value) else value


def whole(value: Any, name: str) -> int:
    """Return an argument of a function of numpy that must be a whole number, and known."""
    found = known(value)
    try:
        return operator.index(found)
    except TypeError:
        raise Break("tracer.numpy", f"numpy.{name} is given {found!r}, which is no integer") from None


def cast(tx: Tracer, tensor: TensorValue, dtype: Any) -> TensorValue:
    """Convert a tensor to numpy's type `dtype`, where numpy wouldn't warn; the tensor itself where it is of that."""
    wanted, has = TORCH_TYPES[dtype], tensor.fake.dtype
    if wanted == has:
        return tensor
    if has.is_floating_point and not wanted.is_floating_point and wanted is not torch.bool:
        limits = torch.iinfo(wanted)
        above = made(tx, torch.gt, tensor, float(limits.min) - 1)
        below = made(tx, torch.lt, tensor, float(limits.max) + 1)
        expect_all(tx, made(tx, torch.logical_and, above, below))
    found = made(tx, "to", tensor, wanted)
    if wanted.is_floating_point and torch.finfo(wanted).max < _largest(has):
        expect_quiet(tx, found, [tensor])
    return found


def _largest(dtype: torch.dtype) -> float:
    if dtype is torch.bool:
        return 1
    return torch.finfo(dtype).max if dtype.is_floating_point else torch.iinfo(dtype).max


def expect_quiet(tx: Tracer, found: TensorValue, given: list[TensorValue], dims: Any = None) -> None:
    """Rely on numpy not warning of what it computes: infinities and NaNs come from ones that were there before.

    Where the program itself puts none there, all results are to be finite: a check that takes half the time.

    Args:
        tx: The capture.
        found: The result, of floats.
        given: The operands, as they were computed with.
        dims: What a reduction was over, of operands that are reduced; they keep no dimension of size 1.
    """
    if not found.fake.dtype.is_floating_point:
        return
    fine = made(tx, torch.isfinite, found)
    for x in given if recording_of(tx).infinite else ():
        if x.fake.dtype.is_floating_point:
            infinite, absent = made(tx, torch.isinf, x), made(tx, torch.isnan, x)
            if dims is not None:
                infinite, absent = (made(tx, torch.any, part, *dims) for part in (infinite, absent))
            infinite = made(tx, torch.logical_and, infinite, made(tx, torch.isinf, found))
            fine = made(tx, torch.logical_or, fine, made(tx, torch.logical_or, infinite, absent))
    expect_all(tx, fine)


def expect_all(
    tx: Tracer, fine: TensorValue, otherwise: str = "numpy warns of infinities, NaNs or overflow here"
) -> None:
    """Check that all elements of a tensor of bools are true: where one isn't, numpy runs, and warns or raises itself.

    The check is an operation of the graph, which writes nothing that exists where one fails: the frame runs anew.
    """
    fine = made(tx, torch.all, fine) if fine.fake.dim() else fine
    recording_of(tx).record(tx, "call_function", torch._assert_async, [fine, Const(otherwise)], {})


def folded(tx: Tracer, function: Callable[..., Any], *args: Any, **keywords: Any) -> Value:
    """Call a function of numpy on what is known."""

    def run() -> Any:
        try:
            with np.errstate(all="raise"):
                return function(*args, **keywords)
        except FloatingPointError as error:
            raise Break("tracer.array_warning", f"numpy may warn of {error}") from None

    found = folding.real(tx, run)
    return constant_array(tx, found) if type(found) is np.ndarray else tx.live.from_python(found)


def constant_array(tx: Tracer, array: Any) -> ArrayValue:
    """Model a new array with elements that are known."""
    dtype = TORCH_TYPES.get(array.dtype)
    if dtype is None or array.size > _MOST:
        raise Break("tracer.numpy", f"an array of {array.size} elements of type {array.dtype} is made from numbers")
    tensor = made(tx, torch.tensor, array.ravel().tolist(), dtype=dtype, device=CPU)
    return ArrayValue(tensor if array.ndim == 1 else made(tx, "reshape", tensor, tuple(array.shape)))


def shared_by(tx: Tracer, tensor: TensorValue) -> ArrayValue:
    """Model the array on the memory of a tensor; what torch refuses, breaks."""
    fake = tensor.fake
    if fake.requires_grad or fake.device.type != "cpu" or fake.is_conj() or fake.is_neg():
        raise Break(
            "tracer.operation_raised", f"{tensor.describe()} that requires grad, or isn't on the CPU, is an array"
        )
    if fake.dtype not in TORCH_TYPES.values():
        raise Break("tracer.array_input", f"{tensor.describe()} becomes an array")
    return ArrayValue(made(tx, "detach", tensor))
