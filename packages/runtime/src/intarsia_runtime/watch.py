"""Noticing that memory was written between forward and backward, without keeping it.

A tensor and its views share a counter of writes. A detached tensor shares it as well, and goes on doing so when its
data is replaced by nothing: what is left is the counter.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Watched", "check_watched", "watch"]


class Watched(NamedTuple):
    """A tensor that isn't to be written.

    Args:
        counter: An empty tensor with its counter of writes.
        version: What that should be.
        shape: Of the tensor, for the message.
    """

    counter: Tensor
    version: int
    shape: torch.Size


def watch(*tensors: tuple[Tensor, int]) -> tuple[Watched, ...]:
    """Return what `check_watched` needs.

    Args:
        tensors: Each with the number of writes that are still to come and belong to the program.

    Example:
        >>> import torch
        >>> x = torch.ones(2)
        >>> watched = watch((x, 1))
        >>> x.add_(1)
        tensor([2., 2.])
        >>> check_watched(watched)
        >>> _ = x[0].mul_(2)
        >>> check_watched(watched)
        Traceback (most recent call last):
            ...
        RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: \
[torch.FloatTensor [2]] is at version 2; expected version 1 instead.
    """
    return tuple([_watched(tensor, further) for tensor, further in tensors])


def _watched(tensor: Tensor, further: int) -> Watched:
    counter = tensor.detach()
    counter.data = _nothing(tensor.dtype, tensor.device)
    return Watched(counter, tensor._version + further, tensor.shape)


@functools.cache
def _nothing(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return data to replace other data by: all counters of a type share it, for making a tensor takes time."""
    with torch.inference_mode(False):
        return torch.empty(0, dtype=dtype, device=device)


def check_watched(watched: Sequence[Watched]) -> None:
    """Raise eager's error if one of the tensors was written.

    Raises:
        RuntimeError: One was.
    """
    for counter, version, shape in watched:
        if counter._version != version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{counter.type()} {list(shape)}] is at version {counter._version}; "
                f"expected version {version} instead."
            )
