"""Decompositions of `torch._fused_*_`, the whole step of an optimizer in one operation, parameter by parameter.

Each step is what the CPU's kernels compute: corrections of the bias in float64, everything else in the type of the
parameters, or for half types in float32, rounded where it is kept. A gradient scaler's scale is divided out of the
gradients, which keep the quotients; a step that it skips keeps everything. Other devices stay whole.

Differs: torch's own SGD of half types, up to 2.13 at least, writes a parameter's last few elements only, and fills
momenta from memory that nothing was written to; here it does for them what it does for float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

__all__ = ["fused_decompositions"]

aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_TYPES = (torch.float32, torch.float64, *_HALF)


def fused_decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return ATen overload -> function that does the same with one operation a tensor.

    Example:
        >>> torch.ops.aten._fused_adamw_.default in fused_decompositions()
        True
    """
    steps: dict[Any, tuple[Callable[..., None], int]] = {  # how many of the lists are as long as a parameter
        aten._fused_adam_: (_adam, 5),
        aten._fused_adamw_: (_adamw, 5),
        aten._fused_sgd_: (_sgd, 3),
        aten._fused_adagrad_: (_adagrad, 3),
    }
    return {op: _one_by_one(*step) for packet, step in steps.items() for op in (packet.default, packet.tensor_lr)}


def _one_by_one(step: Callable[..., None], n_own: int) -> Callable[..., Any]:
    """Call `step` with the tensors of each parameter; lists that the optimizer has no use for are empty."""

    def decompose(*lists: list[Tensor], grad_scale: Any = None, found_inf: Any = None, **numbers: Any) -> Any:
        if any(p.device.type != "cpu" or p.dtype not in _TYPES for p in lists[0]):
            return NotImplemented
        for number, p in enumerate(lists[0]):
            tensors = [tensors[number] if tensors else None for tensors in lists]
            if p.dtype in _HALF or grad_scale is not None or found_inf is not None:
                _apart(step, tensors[:n_own], tensors[n_own:], grad_scale, found_inf, numbers)
            else:
                step(*tensors, **numbers)
        return None

    return decompose


def _apart(
    step: Callable[..., None],
    own: list[Tensor | None],
    counters: list[Tensor | None],
    grad_scale: Tensor | None,
    found_inf: Tensor | None,
    numbers: dict[str, Any],
) -> None:
    """Make a step on copies in the type that is computed with, and keep of them what is to stay."""
    copies = [None if x is None else x.to(_wide(x), copy=True) for x in own]
    if grad_scale is not None and copies[1] is not None:
        copies[1].div_(grad_scale.to(copies[1].dtype))
    if step is _adagrad and own[0] is not None:
        numbers = {**numbers, "kept": own[0].dtype}
    step(*copies, *counters, **numbers)
    for index, (kept, copy) in enumerate(zip(own, copies, strict=True)):
        if kept is None or copy is None or (index == 1 and grad_scale is None):
            continue
        new = copy.to(kept.dtype)
        kept.copy_(new if found_inf is None else torch.where(found_inf == 1, kept, new))


def _wide(x: Tensor) -> torch.dtype:
    return torch.float32 if x.dtype in _HALF else x.dtype


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
    if weight_decay != 0:  # one product, which keeps infinities
        p.mul_(1 - (lr.to(torch.float64) if isinstance(lr, Tensor) else lr) * weight_decay)
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
    kept: torch.dtype | None = None,
) -> None:
    kept = p.dtype if kept is None else kept  # its kernel rounds the numbers by which it multiplies to this type
    gradient = -gradient if maximize else gradient
    if weight_decay != 0:
        gradient = gradient + p * torch.tensor(weight_decay, dtype=torch.float64).to(kept).item()
    total.copy_(total + gradient * gradient)
    size = (lr / (1 + (step.to(torch.float64) - 1) * lr_decay)).to(kept).to(p.dtype)
    p.sub_(size * gradient / (total.sqrt() + eps))
