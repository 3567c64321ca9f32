"""Loop programs on a GPU: emitted, built, linked and run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import intarsia_runtime
import intarsia_scheduler
import intarsia_triton

__all__ = ["moved", "run"]

CUDA = torch.device("cuda")


def run(
    kernels: Any, inputs: Sequence[Any], folder: Path, device: torch.device = CUDA, *, check: bool = True
) -> tuple[Any, ...]:
    """Return a program's results, on the CPU.

    Args:
        kernels: FX(kernels), or the `Program` that it shows.
        inputs: Tensors on the CPU, and ints for size symbols.
        folder: Of the cache of built kernels.
        device: Where to run.
        check: Verify the program first; kernels drawn at random read inside their buffers, which rules can't prove.

    Raises:
        UnsupportedError: An op has no Triton form.
    """
    target = intarsia_runtime.detect_target(device)
    plan = intarsia_scheduler.schedule(kernels, target, check=check)
    source = intarsia_triton.emit_unit(intarsia_scheduler.arrange(kernels, plan))
    library = intarsia_runtime.build(source, target, cache=intarsia_runtime.Cache(folder))
    call = intarsia_runtime.link(kernels, source, library, device=device)
    results = call(*(moved(x, device) if isinstance(x, torch.Tensor) else x for x in inputs))
    torch.cuda.synchronize(device)
    return tuple(r.cpu() if isinstance(r, torch.Tensor) else r for r in results)


def moved(x: torch.Tensor, device: torch.device = CUDA) -> torch.Tensor:
    """Return a tensor on a device with the strides and the offset that it has: `Tensor.to` would close gaps."""
    whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    return whole.to(device).as_strided(x.shape, x.stride(), x.storage_offset())
