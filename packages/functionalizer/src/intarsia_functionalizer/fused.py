"""Decompositions of `torch._fused_*_`, the whole step of an optimizer in one operation, parameter by parameter.

Each step is what the CPU's kernels compute: corrections of the bias in float64, everything else in the type of the
parameters. Half types, other devices and steps that a gradient scaler scales or skips stay whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

__all__ = ["fused_decompositions"]

aten = torch.ops.aten
_TYPES = (torch.float32, torch.float64)


def fused_decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return ATen overload -> function that does the same with one operation a tensor.

    Example:
        >>> torch.ops.aten._fused_adamw_.default in fused_decompositions()
        True
    """
    steps: dict[Any, Callable[..., None]] = {
        aten._fused_adam_: _adam,
        aten._fused_adamw_: _adamw,
        aten._fused_sgd_: _sgd,
        aten._fused_adagrad_: _adagrad,
    }
    return {op: _one_by_one(step) for packet, step in steps.items() for op in (packet.default, packet.tensor_lr)}


def _one_by_one(step: Callable[..., None]) -> Callable[..., Any]:
    """Call `step` with the tensors of each parameter; lists that the optimizer has no use for are empty."""

    def decompose(*lists: list[Tensor], grad_scale: Any = None, found_inf: Any = None, **numbers: Any) -> Any:
        whole = grad_scale is not None or found_inf is not None
        if whole or any(p.device.type != "cpu" or p.dtype not in _TYPES for p in lists[0]):
            return NotImplemented
        for number in range(len(lists[0])):
            step(*[tensors[number] if tensors else None for tensors in lists], **numbers)
        return None

    return decompose


def _adam(
    p: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    largest: Tensor,
    step: Tensor,
    *,
    lr: Any,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
) -> None:
    gradient = -gradient if maximize else gradient
    if weight_decay != 0:
        gradient = gradient + p * weight_decay
    count = step.to(torch.float64)
    size = (lr / (1 - beta1**count)).to(p.dtype)
    root = (1 - beta2**count).sqrt().to(p.dtype)
    mean.copy_(mean * beta1 + gradient * (1 - beta1))
    square.copy_(square * beta2 + gradient * gradient * (1 - beta2))
    if amsgrad:
        largest.copy_(torch.maximum(largest, square))
    p.sub_(size * mean / ((largest if amsgrad else square).sqrt() / root + eps))


def _adamw(p: Tensor, *tensors: Tensor, lr: Any, weight_decay: float, **numbers: Any) -> None:
    if weight_decay != 0:
        p.sub_(p * (lr * weight_decay))
    _adam(p, *tensors, lr=lr, weight_decay=0.0, **numbers)


def _sgd(
    p: Tensor,
    gradient: Tensor,
    mean: Tensor,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
) -> None:
    gradient = -gradient if maximize else gradient
    if weight_decay != 0:
        gradient = gradient + p * weight_decay
    if momentum != 0:
        mean.copy_(gradient if is_first_step else mean * momentum + gradient * (1 - dampening))
        gradient = gradient + mean * momentum if nesterov else mean
    p.sub_(gradient * lr)


def _adagrad(
    p: Tensor,
    gradient: Tensor,
    total: Tensor,
    step: Tensor,
    *,
    lr: Any,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    gradient = -gradient if maximize else gradient
    if weight_decay != 0:
        gradient = gradient + p * weight_decay
    total.copy_(total + gradient * gradient)
    size = (lr / (1 + (step.to(torch.float64) - 1) * lr_decay)).to(p.dtype)
    p.sub_(size * gradient / (total.sqrt() + eps))
