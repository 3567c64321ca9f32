"""Tensor subclasses in FX(torch): the node that makes one of its inner tensors.

A graph takes and gives plain tensors only. Where a program has a wrapper subclass (`__tensor_flatten__`,
`__tensor_unflatten__`), a node makes it of its inner tensors, operations on it are nodes like others, and `getattr`
takes an inner tensor out again. Running the graph runs the subclass's own `__torch_dispatch__`, so that a recorder
below sees its inner tensors alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

__all__ = ["Applied", "Wrap", "is_wrapper"]


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
        others: Attributes among those that it gives which hold no tensors, such as a device mesh.

    Example:
        >>> from torch.testing._internal.two_tensor import TwoTensor
        >>> wrap = Wrap(TwoTensor, ("a", "b"), None)
        >>> wrap((2,), (1,), torch.zeros(2), torch.ones(2)).b
        tensor([1., 1.])
    """

    def __init__(self, cls: Any, names: Sequence[str], context: Any, others: Mapping[str, Any] | None = None) -> None:
        self.cls, self.names, self.context, self.others = cls, tuple(names), context, dict(others or {})
        # the layout of the `DTensor` made last: to make an equal one takes longer than the tensor, as does its hash
        self._last: tuple[tuple[Any, Any], Any] | None = None
        self.__name__ = self.__qualname__ = f"wrap_{cls.__name__}"
        self.__module__ = cls.__module__

    @property
    def communicates(self) -> bool:
        """Tell whether operations on the tensor may exchange data with other processes."""
        return "device_mesh" in self.others or _is_dtensor(self.cls)  # up to torch 2.12 the mesh is in its layout

    @classmethod
    def of(cls, whole: Any) -> Wrap:
        """Return what makes a tensor of its inner tensors; that it requires grad is left out, where a class says so."""
        if whole.requires_grad:
            detached = whole.detach()
            whole = detached if type(detached) is type(whole) else whole
        names, context = whole.__tensor_flatten__()
        parts = {name: getattr(whole, name) for name in names}
        inner = [name for name, value in parts.items() if isinstance(value, torch.Tensor)]
        return cls(type(whole), inner, context, {n: value for n, value in parts.items() if n not in inner})

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
        last = self._last  # read once: another thread may make one of other sizes meanwhile
        if last is not None and last[0] == (size, stride):
            return self.cls(inner[0], last[1], requires_grad=False)
        parts = self.others | dict(zip(self.names, inner, strict=True))
        whole = self.cls.__tensor_unflatten__(parts, self.context, torch.Size(size), tuple(stride))
        if _is_laid_out(whole) and all(type(number) is int for number in (*size, *stride)):
            self._last = (size, stride), whole._spec
        return whole


def _is_laid_out(whole: Any) -> bool:
    """Tell whether a tensor is a `DTensor` that needs no gradient."""
    return _is_dtensor(type(whole)) and not whole.requires_grad


def _is_dtensor(cls: type) -> bool:
    """Tell whether a class is `DTensor`, which nothing here imports: programs without one go without its modules."""
    return cls.__name__ == "DTensor" and cls.__module__.startswith("torch.distributed.tensor")


class Applied:
    """Calls a function or method that tensors of a subclass have, with arguments that no graph holds.

    Args:
        name: What it is called in a graph.
        function: A function.
        arrange: Makes its arguments and keywords of the tensors that the node is given.
        communicates: Whether it may exchange data with other processes.
    """

    def __init__(self, name: str, function: Any, arrange: Any, *, communicates: bool = False) -> None:
        self.function, self.arrange, self.communicates = function, arrange, communicates
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__

    def __call__(self, *tensors: torch.Tensor) -> Any:
        """Return what the function gives."""
        args, keywords = self.arrange(tensors)
        return self.function(*args, **keywords)
