"""Giving a tensor the strides of another one by operations that a graph can hold."""

from __future__ import annotations

from typing import Any

import torch

from intarsia_recorder.iteration import known_numbers

__all__ = ["with_strides_of"]


def with_strides_of(value: Any, like: Any) -> Any:
    """Return a tensor with the elements of `value` and the strides of `like`, a dense tensor: itself if it has them.

    Symbolic strides are compared by the sizes of the first call, which relies on nothing: dense tensors whose
    dimensions lie in one order for these sizes do so for others. A tensor of unknown size is returned as it is.
    """
    if not isinstance(value, torch.Tensor) or not isinstance(like, torch.Tensor) or value.dim() < 2:
        return value
    shape, strides, expected = known_numbers(like.shape), known_numbers(value.stride()), known_numbers(like.stride())
    if shape is None or strides is None or expected is None:
        return value
    if 0 in shape or all(ours == eager for n, ours, eager in zip(shape, strides, expected, strict=True) if n != 1):
        return value
    order = sorted(range(len(shape)), key=lambda dim: (expected[dim], shape[dim] == 1), reverse=True)
    back = [order.index(dim) for dim in range(len(shape))]
    return value.permute(order).contiguous().permute(back)
