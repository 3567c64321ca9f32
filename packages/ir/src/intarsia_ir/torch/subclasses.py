"""Tensor subclasses in FX(torch): the node that makes one of its inner tensors.

A graph takes and gives plain tensors only. Where a program has a wrapper subclass (`__tensor_flatten__`,
`__tensor_unflatten__`), a node makes it of its inner tensors, operations on it are nodes like others, and `getattr`
takes an inner tensor out again. Running the graph runs the subclass's own `__torch_dispatch__`, so that a recorder
below sees its inner tensors alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nested._internal.nested_int import NestedIntNode
from torch.nested._internal.nested_tensor import NestedTensor, _nt_view_dummy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

__all__ = ["Applied", "ViewedAsNested", "Wrap", "is_jagged", "is_wrapper", "name_lengths"]


def is_wrapper(value: object) -> bool:
    """Tell whether a value is a tensor of a subclass that says of which tensors it is made.

    Args:
        value: Anything. A fake tensor is none.
    """
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        return False
    return is_traceable_wrapper_subclass(value) and value.layout in (torch.strided, torch.jagged)


def is_jagged(value: object) -> bool:
    """Tell whether a value is a nested tensor of layout `torch.jagged`: one of its sizes is no number."""
    return is_wrapper(value) and value.layout is torch.jagged  # type: ignore[attr-defined]


_NAMES = itertools.count(1 << 40)  # of lengths of fake tensors, which eager's own never reach


class _Ragged(NestedIntNode):
    """The size that differs from row to row, multiplied with sizes that are known, though they once were symbols."""

    @property
    def expr(self) -> Any:
        """Refuse, as eager does, to be the size that an operation on plain tensors is given."""
        raise RuntimeError("an operation on plain tensors is given a size that differs from row to row")

    def mul(self, other: Any) -> NestedIntNode:
        """Return the product with a number."""
        value = other.maybe_as_int()
        return super().mul(other) if value is None else _Ragged(self.t_id, self.coeff * value)


def name_lengths(lengths: Any, values: Any, ragged: int) -> None:
    """Give a fake tensor of offsets or lengths the size that is named after it: two tensors with it are laid out alike.

    Eager names it where the first nested tensor is made of it. Fake tensors would ask a ShapeEnv for a symbol; a
    nested tensor says what it is laid out by without one. That size knows products with numbers, not with symbols:
    sizes of the values that no row differs in are relied on.

    Args:
        lengths: Offsets or lengths.
        values: The values that it divides.
        ragged: The dimension that differs from row to row, of the nested tensor.
    """
    if not isinstance(lengths, FakeTensor):
        return
    if lengths.nested_int_memo is None:
        lengths.nested_int_memo = torch.SymInt(_Ragged(next(_NAMES), 1))
    for dim, size in enumerate(values.shape):
        if dim != ragged - 1:
            int(size)
    int(values.stride(ragged - 1))


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

    @property
    def is_jagged(self) -> bool:
        """Tell whether it makes nested tensors, whose sizes follow from their inner ones."""
        return self.cls is NestedTensor

    def _jagged(self, parts: Mapping[str, Any]) -> Any:
        name_lengths(parts.get("_lengths", parts["_offsets"]), parts["_values"], self.context["ragged_idx"])
        cache = {name: parts[f"_{name}_tensor"] for name in ("min_seqlen", "max_seqlen") if f"_{name}_tensor" in parts}
        more = {"_ragged_idx": self.context["ragged_idx"], "_metadata_cache": cache}
        return NestedTensor(parts["_values"], parts["_offsets"], lengths=parts.get("_lengths"), **more)

    def __call__(self, size: Sequence[Any], stride: Sequence[Any], *inner: torch.Tensor) -> Any:
        """Return the tensor.

        Args:
            size: Its sizes, in elements; of a nested tensor nothing.
            stride: Its strides, in elements; of a nested tensor nothing.
            inner: Its inner tensors, in the order of `names`.
        """
        last = self._last  # read once: another thread may make one of other sizes meanwhile
        if last is not None and last[0] == (size, stride):
            return self.cls(inner[0], last[1], requires_grad=False)
        parts = self.others | dict(zip(self.names, inner, strict=True))
        if self.is_jagged:
            return self._jagged(parts)
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


class ViewedAsNested:
    """Makes a nested tensor that is a view of its values, so that its gradient goes to these; what a node calls.

    Args:
        wrap: Makes one that isn't.
    """

    def __init__(self, wrap: Wrap) -> None:
        self.wrap = wrap
        self.__name__ = self.__qualname__ = "viewed_as_nested"
        self.__module__ = __name__

    def __call__(self, size: Sequence[Any], stride: Sequence[Any], *inner: torch.Tensor) -> Any:
        """Return the tensor, of inner ones in the order of the wrap's names; its sizes follow from them."""
        parts = dict(zip(self.wrap.names, inner, strict=True))
        lengths, ragged = parts.get("_lengths"), self.wrap.context["ragged_idx"]
        name_lengths(parts["_offsets"] if lengths is None else lengths, parts["_values"], ragged)
        found = [parts.get(f"_{name}_tensor") for name in ("min_seqlen", "max_seqlen")]
        of = parts["_values"], parts["_offsets"], _nt_view_dummy(), lengths, ragged, *found
        return torch._nested_view_from_jagged(*of)  # type: ignore[attr-defined]


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
