"""Fake tensors with a layout that is known, made without asking anything of its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["fake_at", "strided_over"]

_Undispatched: Any = torch._C._DisableTorchDispatch  # ends when the object goes


def strided_over(
    storage: torch.UntypedStorage, dtype: torch.dtype, sizes: Sequence[Any], strides: Sequence[Any], offset: Any
) -> torch.Tensor:
    """Return a plain meta tensor over a fake tensor's memory, without asking anything of its sizes.

    `Tensor.set_` asks whether the layout is contiguous, and an answer about a symbol is a fact that a program has
    to keep, though nothing in it relies on that.

    Args:
        storage: Memory that the layout lies within.
        dtype: Type of an element.
        sizes: Numbers, or symbols of one environment.
        strides: In elements.
        offset: Where the first element is, in elements.
    """
    undispatched = _Undispatched()
    try:
        nothing = torch.empty(0, dtype=dtype, device="meta")
        nothing.set_(storage, 0, (0,), (1,))
        return nothing.as_strided(sizes, strides, offset)
    finally:
        del undispatched


def fake_at(
    mode: FakeTensorMode,
    sizes: Sequence[Any],
    strides: Sequence[Any],
    offset: Any,
    dtype: torch.dtype,
    device: torch.device | str,
) -> torch.Tensor:
    """Return a fake tensor that starts inside of memory of its own, and is no view of what lies before it.

    Args:
        mode: The mode it belongs to.
        sizes: Numbers, or symbols of the mode's environment.
        strides: In elements.
        offset: Where its first element is, in elements.
        dtype: Type of an element.
        device: The device that it stands for.
    """
    with mode:
        # two such layouts, `offset` elements apart: as much memory as reaches from its start to the last element
        memory = torch.empty_strided((2, *sizes), (offset, *strides), dtype=dtype, device=device).untyped_storage()
    return FakeTensor(mode, strided_over(memory, dtype, sizes, strides, offset), torch.device(device))
