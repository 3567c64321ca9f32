"""Exchanges of `torch.distributed` that write tensors, by functional ones: in Python, which the evaluator traces.

    dist.all_reduce(x)        ->   x.copy_(wait_tensor(all_reduce(x, "sum", "0")))

With `async_op=True` what waits is a method of the `Begun` that is returned; without, it is called at once. What is read
is read without its history, as eager reads it: the collectives of `torch.distributed` have no gradients. Each makes the
one call of the process group that eager's function makes, so that a process that is compiled and one that isn't can
meet in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "Begun",
    "all_gather",
    "all_gather_single",
    "all_reduce",
    "all_to_all_single",
    "broadcast",
    "receive",
    "reduce_scatter_single",
    "send",
]


class Begun:
    """An exchange under way: what is used of the `torch.distributed.Work` that eager returns.

    Whoever asks whether it is done is told that it is, when it is: what asks until then would ask forever in a graph.

    Args:
        outputs: Tensors in which data arrives, in equal parts; none where it is sent only.
        arriving: What the functional collective gave, not waited for.
    """

    def __init__(self, outputs: Sequence[Tensor], arriving: Tensor) -> None:
        self.outputs = outputs
        self.arriving: Tensor | None = arriving

    def wait(self, timeout: Any = None) -> bool:
        """Wait, and write the outputs."""
        arriving = self.arriving
        if arriving is None:
            return True
        self.arriving = None
        arrived = torch.ops._c10d_functional.wait_tensor(arriving)
        parts = arrived.chunk(len(self.outputs)) if len(self.outputs) > 1 else [arrived] * len(self.outputs)
        for output, part in zip(self.outputs, parts, strict=True):
            output.copy_(part.view(output.shape))
        return True

    def is_completed(self) -> bool:
        """Wait, and tell so."""
        return self.wait()

    def is_success(self) -> bool:
        """Wait, and tell so; what fails raises there."""
        return self.wait()

    def synchronize(self) -> None:
        """Wait."""
        self.wait()

    def result(self) -> list[Tensor]:
        """Wait, and return what was written."""
        self.wait()
        return list(self.outputs)

    def get_future(self) -> torch.futures.Future[list[Tensor]]:
        """Wait, and return what was written as a future that is done."""
        future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
        future.set_result(self.result())
        return future


def all_reduce(tensor: Tensor, op: str, name: str) -> Begun:
    """Reduce a tensor in place, over the group of this name."""
    return Begun([tensor], torch.ops._c10d_functional.all_reduce(tensor.detach(), op, name))


def broadcast(tensor: Tensor, source: int, name: str) -> Begun:
    """Give a tensor the content that it has at the place `source` of the group."""
    return Begun([tensor], torch.ops._c10d_functional.broadcast(tensor.detach(), source, name))


def all_gather_single(output: Tensor, tensor: Tensor, size: int, name: str) -> Begun:
    """Gather the tensors of a group of this size into one, one behind the other."""
    _check_parts(output, tensor, size)
    return Begun([output], torch.ops._c10d_functional.all_gather_into_tensor(tensor.detach(), size, name))


def all_gather(outputs: Sequence[Tensor], tensor: Tensor, size: int, name: str) -> Begun:
    """Gather the tensors of a group of this size, all of one shape.

    Raises:
        ValueError: The outputs aren't as many as the group has processes, or not of the tensor's shape.
    """
    if len(outputs) != size or any(output.shape != tensor.shape for output in outputs):
        raise ValueError("the outputs aren't as many, or of the shapes, that are gathered")
    flat = tensor.detach().reshape(-1)
    return Begun(outputs, torch.ops._c10d_functional.all_gather_into_tensor(flat, size, name))


def reduce_scatter_single(output: Tensor, tensor: Tensor, op: str, size: int, name: str) -> Begun:
    """Reduce the tensors of a group of this size, and keep this process's part."""
    _check_parts(tensor, output, size)
    return Begun([output], torch.ops._c10d_functional.reduce_scatter_tensor(tensor.detach(), op, size, name))


def _check_parts(whole: Tensor, part: Tensor, size: int) -> None:
    """Refuse what some process groups refuse: they take stacked tensors for others."""
    if whole.shape[0] != size * part.shape[0] or whole.shape[1:] != part.shape[1:]:
        raise ValueError("the whole isn't as long as its parts together, or has other sizes")


def all_to_all_single(
    output: Tensor, tensor: Tensor, taken: Sequence[int] | None, given: Sequence[int] | None, size: int, name: str
) -> Begun:
    """Send a part of a tensor to each process of a group of this size, and put together what they send.

    Args:
        output: Takes the parts, one behind the other along the first dimension.
        tensor: Has the parts in the same way.
        taken: Rows that each process sends to this one; None: as many of each.
        given: Rows for each process; None: as many for each.
        size: Of the group.
        name: Of the group.

    Raises:
        ValueError: The rows don't add up to those of the tensors.
    """
    taken = [output.shape[0] // size] * size if taken is None else taken
    given = [tensor.shape[0] // size] * size if given is None else given
    if sum(taken) != output.shape[0] or sum(given) != tensor.shape[0]:
        raise ValueError("the parts don't make up the tensors")
    return Begun([output], torch.ops._c10d_functional.all_to_all_single(tensor.detach(), taken, given, name))


def send(tensor: Tensor, to: int, tag: int, name: str) -> Begun:
    """Send a tensor, as it is now.

    Args:
        tensor: Contiguous.
        to: Place in the group of the process that receives it.
        tag: What the receiver has to name as well.
        name: Of the group.
    """
    return Begun([], torch.ops.intarsia_p2p.send(tensor.detach(), to, tag, name))


def receive(tensor: Tensor, source: int, tag: int, name: str) -> Begun:
    """Fill a tensor with what another process sends.

    Args:
        tensor: Contiguous; of the shape and the type of what is sent.
        source: Place in the group of the process that sends.
        tag: What the sender has named as well.
        name: Of the group.
    """
    return Begun([tensor], torch.ops.intarsia_p2p.receive(tensor.detach(), source, tag, name))
