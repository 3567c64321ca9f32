"""Parts of ops that eager's CPU kernels compute in a half type itself, rounding after each operation.

Most kernels convert half types to float32, compute, and round once; torch's decompositions do that for all. These
kernels are written in the element type, so that every operation rounds. Parts in the half type round in the same
places. On other devices, and for other types, torch's decompositions stand: which are which is a table of eager's
rules (`intarsia_ir.eager.rounding`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch

from intarsia_ir.eager import Rounded, base_name, rounds

__all__ = ["STEPWISE", "rounded_batch_norm", "stepwise"]

aten = torch.ops.aten


def stepwise(op: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, but where eager's kernel for `op` rounds after each operation, its row of `STEPWISE`."""
    steps = STEPWISE[op]

    def decompose(*args: Any, **kwargs: Any) -> Any:
        first, *others = (x for x in args if isinstance(x, torch.Tensor))
        mixed = any(x.dtype is not first.dtype for x in others)
        if mixed or not rounds(base_name(op), Rounded.EACH_STEP, first.device.type, first.dtype):
            return function(*args, **kwargs)
        return steps(*args, **kwargs)

    return decompose


def rounded_batch_norm(op: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, a batch norm in training, but what the kernel of `op` rounds, where it does (in bfloat16).

    The mean, the sum of squares, their number, the variance and the inverse deviation are rounded before anything is
    computed from them, and each operation on the running statistics rounds.
    """

    def batch_norm(x: Any, weight: Any, bias: Any, *args: Any) -> Any:
        mixed = any(t.dtype is not x.dtype for t in (weight, bias, *args) if isinstance(t, torch.Tensor))
        if mixed or 0 in x.shape or not rounds(base_name(op), Rounded.STATISTICS, x.device.type, x.dtype):
            return function(x, weight, bias, *args)
        running = args[:2] if isinstance(args[0], torch.Tensor) and isinstance(args[1], torch.Tensor) else ()
        return _rounded_batch_norm(x, weight, bias, running, *args[-2:])

    return batch_norm


def _rounded_batch_norm(x: Any, weight: Any, bias: Any, running: Any, momentum: float, eps: float) -> Any:
    wide, n = x.to(torch.float32), x.numel() // x.shape[1]
    spread, centre = torch.var_mean(wide, [d for d in range(x.dim()) if d != 1], correction=0)
    centre, total = centre.to(x.dtype), (spread * n).to(x.dtype)
    inverse = torch.reciprocal(torch.sqrt((total / torch.full_like(total, n)).to(torch.float32) + eps)).to(x.dtype)
    if running:
        rate = torch.full_like(centre, momentum)
        for statistic, new in zip(running, (centre, total / torch.full_like(total, n - 1)), strict=True):
            statistic.copy_(rate * new + (1 - rate) * statistic)
    scale = inverse.to(torch.float32) if weight is None else inverse.to(torch.float32) * weight
    shift = -centre.to(torch.float32) * scale if bias is None else bias - centre.to(torch.float32) * scale
    shape = [1, -1, *[1] * (x.dim() - 2)]
    return (wide * scale.view(shape) + shift.view(shape)).to(x.dtype), centre, inverse


def _entr(x: torch.Tensor) -> torch.Tensor:
    outside = torch.where(x == 0, 0.0, -math.inf).to(x.dtype)
    return torch.where(x.isnan(), x, torch.where(x > 0, -x * torch.log(x), outside))


def _logit(x: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    x = x if eps is None else x.clamp(eps, 1 - eps)
    return torch.log(x / (1 - x))


def _xlog1py(x: Any, y: Any) -> torch.Tensor:
    """Either operand may be a number, which the half type rounds too."""
    like = x if isinstance(x, torch.Tensor) else y
    x, y = (v if isinstance(v, torch.Tensor) else torch.full_like(like, v) for v in (x, y))
    return torch.where((x == 0) & ~y.isnan(), 0.0, x * torch.log1p(y))


def _cross(x: torch.Tensor, y: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    x1, x2, y1, y2 = (v.roll(-steps, dim) for v in (x, y) for steps in (1, 2))
    return x1 * y2 - x2 * y1


def _huber_loss(x: torch.Tensor, y: torch.Tensor, reduction: int = 1, delta: float = 1.0) -> torch.Tensor:
    z, d = (x - y).abs(), torch.scalar_tensor(delta, dtype=x.dtype, device=x.device)
    return _reduced(torch.where(z <= d, z * 0.5 * z, d * (z - d * 0.5)), reduction)


def _mse_loss(x: torch.Tensor, y: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    difference = x - y
    return _reduced(difference * difference, reduction)


def _smooth_l1_loss(x: torch.Tensor, y: torch.Tensor, reduction: int = 1, beta: float = 1.0) -> torch.Tensor:
    z, b = (x - y).abs(), torch.scalar_tensor(beta, dtype=x.dtype, device=x.device)
    return _reduced(torch.where(z < b, z * 0.5 * z / b, z - b * 0.5), reduction)


def _soft_margin_loss(x: torch.Tensor, y: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    return _reduced(torch.log1p(torch.exp(-(y * x))), reduction)


def _reduced(loss: torch.Tensor, reduction: int) -> torch.Tensor:
    return loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()


#: Op -> parts that round after each operation, of operands of one half type.
STEPWISE: MappingProxyType[Any, Callable[..., Any]] = MappingProxyType(
    {
        aten.huber_loss.default: _huber_loss,
        aten.linalg_cross.default: _cross,
        aten.logit.default: _logit,
        aten.mse_loss.default: _mse_loss,
        aten.smooth_l1_loss.default: _smooth_l1_loss,
        aten.soft_margin_loss.default: _soft_margin_loss,
        aten.special_entr.default: _entr,
        aten.special_xlog1py.default: _xlog1py,
        aten.special_xlog1py.other_scalar: _xlog1py,
        aten.special_xlog1py.self_scalar: _xlog1py,
    }
)
