"""What checks of an op's operands share: their form, and what they ask about ops and tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["Check", "by_name", "device_of", "is_empty", "op_name"]

Check = Callable[[FakeTensorMode, Sequence[Any], Mapping[str, Any]], None]
"""Takes a mode, the positional and the keyword arguments of a call; raises where eager does."""


def op_name(op: OpOverload) -> str:
    """Return the name of an op without its library and its overload.

    Example:
        >>> op_name(torch.ops.aten.add_.Tensor)
        'add_'
    """
    return op._schema.name.partition("::")[2]


def by_name(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their names; those that it leaves out aren't among them.

    Example:
        >>> by_name(torch.ops.aten.select.int, (1, 0), {"index": 2})
        {'self': 1, 'dim': 0, 'index': 2}
    """
    names = (argument.name for argument in op._schema.arguments)
    return {**dict(zip(names, args, strict=False)), **kwargs}


def is_empty(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has no elements, as far as its size is known."""
    return any(type(n) is int and n == 0 for n in tensor.shape)


def device_of(tensor: torch.Tensor) -> str:
    """Return the type of the device that a tensor is on, or that a fake one stands for."""
    return (tensor.fake_device if isinstance(tensor, FakeTensor) else tensor.device).type
