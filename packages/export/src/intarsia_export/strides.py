"""Strided tensors in a format that knows contiguous ones: the elements in the order of memory, and how they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["Layout", "dense", "strided"]

Layout = Sequence[Any]
"""Shape, strides in elements, and the order of dimensions in memory; of a tensor with gaps no order."""


def dense(tensor: torch.Tensor) -> tuple[torch.Tensor, Layout]:
    """Return the elements of a tensor as a contiguous one, and its layout.

    Example:
        >>> elements, layout = dense(torch.arange(6).reshape(2, 3).t())
        >>> elements, layout
        (tensor([[0, 1, 2],
                [3, 4, 5]]), ([3, 2], [1, 3], [1, 0]))
        >>> strided(elements, layout).stride()
        (1, 3)
    """
    order = sorted(range(tensor.dim()), key=lambda d: (-tensor.stride()[d], d))
    ordered = tensor.permute(order)
    if ordered.is_contiguous():
        # a copy of what is a part of other memory: the format takes whole tensors
        alone = ordered.untyped_storage().nbytes() == ordered.nbytes
        return ordered if alone else ordered.clone(), (list(tensor.shape), list(tensor.stride()), order)
    return tensor.contiguous(), (list(tensor.shape), list(tensor.stride()), None)


def strided(elements: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return the tensor of which `dense` gave elements and layout: a view of them, or a copy where it has gaps."""
    shape, strides, order = layout
    if order is not None:
        return elements.as_strided(shape, strides)
    return torch.empty_strided(shape, strides, dtype=elements.dtype).copy_(elements)
