"""Tensors of zeros without memory, as forward mode autograd makes them, on fake tensors.

Torch multiplies by such a zero without looking at the other factor, so it must not become a tensor of zeros: infinities
and NaNs beside it would show. But its views are made below the modes of Python: they come back as plain tensors that
claim to be on the meta device. As all that they hold is a shape, each is made again as a fake tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["Zeros"]

_MAKE: Any = torch.ops.aten._efficientzerotensor.default
_COPY: Any = torch.ops.aten._to_copy.default
_META = torch.device("meta")


class Zeros:
    """The zeros without memory that one mode or recorder has seen.

    Args:
        make: Runs `_efficientzerotensor` where its result is a fake tensor.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make
        self._devices: dict[
            int, tuple[Any, torch.device]
        ] = {}  # address of a storage -> it, kept alive, and its device
        self._claimed: torch.device | None = None  # where the view of zeros really is that an op was given last

    def placed(self, func: Any, kwargs: Any) -> Any:
        """Return the keywords of an op: what torch makes in place of a sum or product with zeros is on their device."""
        if self._claimed is None or kwargs.get("device") != _META or not _is_result(func, kwargs):
            return kwargs
        device, self._claimed = self._claimed, None
        return {**kwargs, "device": device}

    def note(self, func: Any, result: Any) -> None:
        """Note the device of zeros that were made."""
        if func is _MAKE and result.device != _META:
            storage = result.untyped_storage()
            self._devices[storage._cdata] = storage, result.device

    def found(self, args: Any) -> Any:
        """Return arguments in which views of zeros are fake tensors again."""
        if not self._devices or not any(map(_is_lost, args)):
            return args
        return tuple([self._found(arg) if _is_lost(arg) else arg for arg in args])

    def _found(self, lost: torch.Tensor) -> Any:
        device = self._devices.get(lost.untyped_storage()._cdata)
        if device is None:
            return lost
        self._claimed = device[1]
        return self._make(tuple(lost.shape), dtype=lost.dtype, layout=torch.strided, device=device[1])


def _is_result(func: Any, kwargs: Mapping[str, Any]) -> bool:
    """Tell whether an op makes the result of an operation on zeros: zeros, or for a sum a copy of what is added."""
    return func is _MAKE or (func is _COPY and {"dtype", "layout", "device"} <= kwargs.keys())


def _is_lost(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and value._is_zerotensor()
