"""What a generated function says differently for each kind of device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from intarsia_runtime._names import Names
from intarsia_runtime.counters import Counters

__all__ = ["Device", "ready", "span"]

ALIGNMENT = 16  # bytes; kernels for a GPU are compiled for aligned addresses


class Device:
    """Text for one device.

    Args:
        device: The CPU, or a CUDA device with its index.
    """

    def __init__(self, device: torch.device) -> None:
        self.is_cuda = device.type == "cuda"
        index = torch.cuda.current_device() if self.is_cuda and device.index is None else device.index
        self.device = torch.device("cuda", index) if self.is_cuda else device

    def keyword(self, names: Names) -> str:
        """Return the argument that places a new tensor: the caller may be in a region of another device."""
        return f", device={names.bind('_device', self.device)}"

    def prologue(self, names: Names, tensors: list[str]) -> list[str]:
        """Return statements for the start: the current stream, and inputs as the kernels need them."""
        if not self.is_cuda:
            return []
        names.bind("_current_stream", torch._C._cuda_getCurrentRawStream)
        names.bind("_ready", ready)
        self.keyword(names)
        moved = [f"{name} = _ready({name}, _device)" for name in tensors]
        return [f"_stream = _current_stream({self.device.index})", *moved]

    def counters(self, names: Names, name: str, n: int) -> str:
        """Return the statement that takes the current stream's counters."""
        return f"{name} = {names.bind('_counters', Counters(n, self.device))}(_stream)"

    def arguments(self) -> list[str]:
        """Return what a native call takes after buffers and sizes."""
        return ["_stream"] if self.is_cuda else []

    def context(self, names: Names) -> str:
        """Return the statement to run under, or "": the device must be the current one where there are several."""
        if not self.is_cuda or torch.cuda.device_count() == 1:
            return ""
        names.bind("_on", torch.cuda.device)
        return f"with _on({self.device.index}):"

    def place(self, tensor: Tensor) -> Tensor:
        """Return a constant where kernels can read it."""
        return ready(tensor.to(self.device), self.device) if self.is_cuda else tensor


def ready(tensor: Tensor, device: torch.device) -> Tensor:
    """Return `tensor` at an aligned address on `device`: itself, as a rule.

    A view may start anywhere; a scalar on the CPU may take part in an operation on a GPU.
    """
    if not tensor.is_cuda:
        tensor = tensor.to(device)
    if tensor.data_ptr() % ALIGNMENT == 0:
        return tensor
    # gaps and all: elements of an expanded tensor share places
    piece = tensor.as_strided((span(tensor.shape, tensor.stride()),), (1,)).clone()
    return piece.as_strided(tensor.shape, tensor.stride())


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many elements the piece of memory has in which a tensor lies."""
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if all(shape) else 0
