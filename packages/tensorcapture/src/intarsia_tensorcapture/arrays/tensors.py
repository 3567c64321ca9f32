"""Tensors that are made of arrays and of scalars of numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const, is_none
from intarsia_pyeval.values.sequences import Items
from intarsia_pyeval.values.signatures import arity
from intarsia_tensorcapture.arrays.recording import made
from intarsia_tensorcapture.arrays.types import torch_type
from intarsia_tensorcapture.arrays.values import ArrayValue, NumpyNumber, OfTensor, ScalarValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer
    from intarsia_tensorcapture.tensor import Recording

__all__ = ["from_numpy", "of_data"]

Handler = Callable[["Recording", "Tracer", Sequence[Value], Keywords], Value]


def from_numpy(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `torch.from_numpy`: the tensor on the memory of an array."""
    (array,) = arity("from_numpy", args, keywords, 1)
    if not isinstance(array, ArrayValue):
        raise Break("tracer.operation_raised", f"torch.from_numpy is given {array.describe()}")
    return made(tx, "detach", array.tensor)


def of_data(function: Any, other: Handler) -> Handler:
    """Return the handler of `torch.tensor` or `torch.as_tensor`: of arrays and scalars of numpy, else `other`."""

    def handler(plugin: Recording, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        data = args[0] if args else keywords.get("data")
        if isinstance(data, OfTensor):
            return _of_array(plugin, function, data, args[1:], keywords)
        kind = _kind_of_scalars(data) if data is not None else None
        if kind is not None and (len(args) > 1 or is_none(keywords.get("dtype", Const(None)))):
            if len(args) > 1:
                raise Break(
                    "tracer.tensor_op", f"torch.{function.__name__} of scalars of numpy, with a type by its place"
                )
            keywords = {**keywords, "dtype": Const(kind)}
        return other(plugin, tx, args, keywords)

    return handler


def _of_array(plugin: Recording, function: Any, data: OfTensor, rest: Sequence[Value], keywords: Keywords) -> Value:
    """Copy an array into a tensor, or share its memory, where the type stays the same."""
    named = {name: value for name, value in keywords.items() if name != "data"}
    dtype, device = named.pop("dtype", Const(None)), named.pop("device", Const(None))
    place = plugin.state.devices[-1:] if is_none(device) else [torch.device(device.as_python())]
    if rest or named or any(device.type != "cpu" for device in place):
        raise Break("tracer.tensor_op", f"torch.{function.__name__} of an array with more arguments, or on a GPU")
    wanted = data.tensor.fake.dtype if is_none(dtype) else dtype.as_python()
    if wanted != data.tensor.fake.dtype:
        return made(plugin.tx, "to", data.tensor, wanted)
    copies = function is torch.tensor or isinstance(data, ScalarValue)
    return made(plugin.tx, "clone" if copies else "detach", data.tensor)


def _kind_of_scalars(data: Value) -> torch.dtype | None:
    """Return the type of a tensor that is made of a scalar of numpy, or of a list of such; None: there are none.

    Raises:
        Break: There are others beside them.
    """
    if isinstance(data, NumpyNumber):
        return torch_type(data.value.dtype)
    if not isinstance(data, Items):
        return None
    kinds = {_kind_of_scalars(item) for item in data.items}
    if kinds <= {None}:
        if any(isinstance(item, OfTensor) for item in data.items):
            raise Break("tracer.tensor_op", "a tensor is made of a list of arrays")
        return None
    if len(kinds) > 1:
        raise Break("tracer.tensor_op", "a tensor is made of scalars of numpy of several types, and others")
    return kinds.pop()
