"""Counters on a GPU that kernels leave as they found them: 0."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Counters", "is_recorded"]


class Counters:
    """Gives i32[n] of zeros to the launches of one stream, which use it one after another.

    Args:
        n: How many.
        device: A CUDA device.
    """

    def __init__(self, n: int, device: torch.device) -> None:
        self._n, self._device = n, device
        self._of_stream: dict[int, Tensor] = {}

    def __call__(self, stream: int) -> Tensor:
        """Return the counters of a stream that is current.

        While the stream is recorded they are new, and zeroed by the recording: it may be replayed on any stream.
        """
        if is_recorded(self._device.index):
            return self._zeros()
        counters = self._of_stream.get(stream)
        if counters is None:
            counters = self._of_stream[stream] = self._zeros()
        return counters

    def _zeros(self) -> Tensor:
        return torch.zeros(self._n, dtype=torch.int32, device=self._device)


def is_recorded(index: int) -> bool:
    """Tell whether the current stream of a CUDA device is being recorded into a CUDA graph."""
    if torch.cuda.current_device() == index:
        return torch.cuda.is_current_stream_capturing()
    with torch.cuda.device(index):
        return torch.cuda.is_current_stream_capturing()
