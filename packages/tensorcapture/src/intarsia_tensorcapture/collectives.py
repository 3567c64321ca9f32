"""Collectives of `torch.distributed` that write tensors, by functional ones: in Python, which the evaluator traces.

    dist.all_reduce(x)        ->   x.copy_(wait_tensor(all_reduce(x, "sum", "0")))

What is read is read without its history, as eager reads it: the collectives of `torch.distributed` have no gradients.
Each makes the one call of the process group that eager's function makes, so that a process that is compiled and one
that isn't can meet in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["all_gather", "all_gather_single", "all_reduce", "all_to_all_single", "broadcast", "reduce_scatter_single"]


def all_reduce(tensor: Tensor, op: str, name: str) -> None:
    """Reduce a tensor in place, over the group of this name."""
    functional = torch.ops._c10d_functional
    tensor.copy_(functional.wait_tensor(functional.all_reduce(tensor.detach(), op, name)))


def broadcast(tensor: Tensor, source: int, name: str) -> None:
    """Give a tensor the content that it has at the place `source` of the group."""
    functional = torch.ops._c10d_functional
    tensor.copy_(functional.wait_tensor(functional.broadcast(tensor.detach(), source, name)))


def all_gather_single(output: Tensor, tensor: Tensor, size: int, name: str) -> None:
    """Gather the tensors of a group of this size into one, one behind the other."""
    _check_parts(output, tensor, size)
    functional = torch.ops._c10d_functional
    output.copy_(functional.wait_tensor(functional.all_gather_into_tensor(tensor.detach(), size, name)))


def all_gather(outputs: Sequence[Tensor], tensor: Tensor, size: int, name: str) -> None:
    """Gather the tensors of a group of this size, all of one shape."""
    if len(outputs) != size or any(output.shape != tensor.shape for output in outputs):
        raise ValueError("the outputs aren't as many, or of the shapes, that are gathered")
    functional = torch.ops._c10d_functional
    flat = tensor.detach().reshape(-1)
    parts = functional.wait_tensor(functional.all_gather_into_tensor(flat, size, name)).chunk(size)
    for output, part in zip(outputs, parts, strict=True):
        output.copy_(part.view(output.shape))


def reduce_scatter_single(output: Tensor, tensor: Tensor, op: str, size: int, name: str) -> None:
    """Reduce the tensors of a group of this size, and keep this process's part."""
    _check_parts(tensor, output, size)
    functional = torch.ops._c10d_functional
    output.copy_(functional.wait_tensor(functional.reduce_scatter_tensor(tensor.detach(), op, size, name)))


def _check_parts(whole: Tensor, part: Tensor, size: int) -> None:
    """Refuse what some process groups refuse: they take stacked tensors for others."""
    if whole.shape[0] != size * part.shape[0] or whole.shape[1:] != part.shape[1:]:
        raise ValueError("the whole isn't as long as its parts together, or has other sizes")


def all_to_all_single(
    output: Tensor, tensor: Tensor, taken: Sequence[int] | None, given: Sequence[int] | None, size: int, name: str
) -> None:
    """Send a part of a tensor to each process of a group of this size, and put together what they send."""
    functional = torch.ops._c10d_functional
    taken = [output.shape[0] // size] * size if taken is None else taken
    given = [tensor.shape[0] // size] * size if given is None else given
    if sum(taken) != output.shape[0] or sum(given) != tensor.shape[0]:
        raise ValueError("the parts don't make up the tensors")
    exchanged = functional.wait_tensor(functional.all_to_all_single(tensor.detach(), taken, given, name))
    output.copy_(exchanged.view(output.shape))
