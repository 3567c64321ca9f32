"""Tensor subclasses in FX(torch): the node that makes one of its inner tensors.

A graph takes and gives plain tensors only. Where a program has a wrapper subclass (`__tensor_flatten__`,
`__tensor_unflatten__`), a node makes it of its inner tensors, operations on it are nodes like others, and `getattr`
takes an inner tensor out again. Running the graph runs the subclass's own `__torch_dispatch__`, so that a recorder
below sees its inner tensors alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

__all__ = ["Wrap", "is_wrapper"]


def is_wrapper(value: object) -> bool:
    """Tell whether a value is a tensor of a subclass that says of which tensors it is made.

    Args:
        value: Anything. A fake tensor is none, and neither is a nested tensor, whose sizes aren't numbers.
    """
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        return False
    return is_traceable_wrapper_subclass(value) and value.layout is torch.strided


class Wrap:
    """Makes a tensor of a wrapper subclass; what a node calls, under a name that a graph can print.

    Args:
        cls: The subclass.
        names: Attributes that hold the inner tensors, as `__tensor_flatten__` gives them.
        context: What else `__tensor_flatten__` gives.

    Example:
        >>> from torch.testing._internal.two_tensor import TwoTensor
        >>> wrap = Wrap(TwoTensor, ("a", "b"), None)
        >>> wrap((2,), (1,), torch.zeros(2), torch.ones(2)).b
        tensor([1., 1.])
    """

    def __init__(self, cls: Any, names: Sequence[str], context: Any) -> None:
        self.cls, self.names, self.context = cls, tuple(names), context
        self.__name__ = self.__qualname__ = f"wrap_{cls.__name__}"
        self.__module__ = cls.__module__

    def parts_of(self, whole: Any) -> tuple[torch.Tensor, ...]:
        """Return the inner tensors of one that it could have made."""
        return tuple([getattr(whole, name) for name in self.names])

    def __call__(self, size: Sequence[Any], stride: Sequence[Any], *inner: torch.Tensor) -> Any:
        """Return the tensor.

        Args:
            size: Its sizes, in elements.
            stride: Its strides, in elements.
            inner: Its inner tensors, in the order of `names`.
        """
        parts = dict(zip(self.names, inner, strict=True))
        return self.cls.__tensor_unflatten__(parts, self.context, torch.Size(size), tuple(stride))
