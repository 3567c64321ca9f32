"""`statistics_of_parameters`: a decomposition of a normalisation that gives its statistics in eager's type.

Before                                                after, where %x is in a half type and the parameters aren't
  batch_norm(%x: bf16, %w: f32, ...)                    batch_norm(%x.to(f32), %w, ...)
  -> (bf16, bf16, bf16)                                 -> (f32.to(bf16), f32, f32)

torch's decompositions round the mean and the inverse deviation, which the backward pass reads, to the input's type.
Eager's CPU kernels keep them in the type of the parameters, which is float32 under autocast.
Law: the decompositions compute in float32 either way, so nothing but that rounding changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from intarsia_ir.eager import MIXED_PARAMETERS

__all__ = ["statistics_of_parameters"]


def statistics_of_parameters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decomposition like `function`, but with statistics in the parameters' type on a CPU.

    Args:
        function: Of the input `x: f[...]` and of anything else, the parameters among it; returns the result, in the
            type of `x`, and then statistics.

    Example:
        >>> from torch._refs import native_layer_norm
        >>> norm = statistics_of_parameters(native_layer_norm)
        >>> [r.dtype for r in norm(torch.ones(2, 3, dtype=torch.bfloat16), [3], torch.ones(3), None, 1e-5)]
        [torch.bfloat16, torch.float32, torch.float32]
    """

    def normalise(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        types = {p.dtype for p in (*args, *kwargs.values()) if isinstance(p, torch.Tensor)}
        if x.device.type != "cpu" or not MIXED_PARAMETERS.is_mixed(x.dtype, types):
            return function(x, *args, **kwargs)
        result, *statistics = function(x.to(MIXED_PARAMETERS.parameters), *args, **kwargs)
        return (result.to(x.dtype), *statistics)

    return normalise
