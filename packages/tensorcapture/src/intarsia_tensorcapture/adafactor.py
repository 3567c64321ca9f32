"""The steps of Adafactor in tensors alone, as they are captured in place of torch's.

Torch's steps read a counter and two norms a parameter as Python numbers, and take the larger of one and a constant.
Here such a number is a float64 tensor, rounded where Python's would be: when it meets a parameter's own tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.optim import _adafactor

__all__ = ["STEPS"]

_OF_NOTHING = "float division by zero"
_REFUSED = "Grad scaling should occur outside of optimizer.step()"


def _step_one_by_one(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    row_vars: Sequence[Tensor | None],
    col_vars: Sequence[Tensor | None],
    variances: Sequence[Tensor | None],
    state_steps: Sequence[Tensor],
    grad_scale: Any,
    found_inf: Any,
    **numbers: Any,
) -> None:
    """Update each parameter, and scale its update within the addition."""
    _step(_add_scaled, params, grads, row_vars, col_vars, variances, state_steps, (grad_scale, found_inf), **numbers)


def _step_of_lists(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    row_vars: Sequence[Tensor | None],
    col_vars: Sequence[Tensor | None],
    variances: Sequence[Tensor | None],
    state_steps: Sequence[Tensor],
    grad_scale: Any,
    found_inf: Any,
    **numbers: Any,
) -> None:
    """Update each parameter, and round its update before it is added."""
    _step(_scale_and_add, params, grads, row_vars, col_vars, variances, state_steps, (grad_scale, found_inf), **numbers)


def _step(
    add: Callable[[Tensor, Tensor, Tensor], None],
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    row_vars: Sequence[Tensor | None],
    col_vars: Sequence[Tensor | None],
    variances: Sequence[Tensor | None],
    state_steps: Sequence[Tensor],
    scaling: tuple[Any, Any],
    *,
    d: float,
    lr: Any,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    maximize: bool,
    has_complex: bool,
) -> None:
    if scaling[0] is not None or scaling[1] is not None:
        raise AssertionError(_REFUSED)
    if not params:
        return
    least = torch.finfo(params[0].dtype).eps if eps1 is None else eps1  # the first one's is that of all, in eager
    for index, param in enumerate(params):
        grad = -grads[index] if maximize else grads[index]
        state_steps[index].add_(1)
        if not param.numel():
            raise ZeroDivisionError(_OF_NOTHING)
        count = state_steps[index].to(torch.float64)
        decay = count**beta2_decay
        rate = count.rsqrt()
        limit = torch.zeros_like(count) + lr  # a number that changes goes beside a tensor
        rate = torch.where(rate < limit, rate, limit)
        size = param.norm(2).to(torch.float64) / param.numel() ** 0.5
        size = torch.where(size > eps2, size, eps2) * rate
        if weight_decay != 0:
            param.mul_(1 - lr * weight_decay)
        estimate = _estimate(grad, row_vars[index], col_vars[index], variances[index], decay, least)
        update = estimate.clamp_(min=least * least).rsqrt_().mul_(grad)
        length = update.norm(2).to(torch.float64) / (update.numel() ** 0.5 * d)
        add(param, update, -size / torch.where(length > 1.0, length, 1.0))


def _estimate(
    grad: Tensor, rows: Tensor | None, columns: Tensor | None, variance: Tensor | None, decay: Tensor, least: float
) -> Tensor:
    """Move the averages of squares on, and return what they say of each element."""
    if grad.dim() <= 1:
        if variance is None:
            raise AssertionError("variance should be defined when grad is a vector")
        _average(variance, grad * grad, decay)
        return variance.clone()
    if rows is None or columns is None:
        raise AssertionError("row_var and col_var should be defined when grad is multidimensional")
    for dim, average in ((-1, rows), (-2, columns)):
        squares = torch.norm(grad, dim=dim, keepdim=True).square_().div_(grad.size(dim))
        _average(average, squares, decay)
    return (rows @ columns).div_(rows.mean(dim=-2, keepdim=True).clamp_(min=least))


def _average(average: Tensor, new: Tensor, weight: Tensor) -> None:
    wide = torch.promote_types(average.dtype, torch.float32)  # what a number is rounded to beside it
    average.copy_(torch.lerp(average.to(wide), new.to(wide), weight.to(wide)))


def _add_scaled(param: Tensor, update: Tensor, factor: Tensor) -> None:
    wide = torch.promote_types(param.dtype, torch.float32)
    param.copy_(param.to(wide) + update.to(wide) * factor.to(wide))


def _scale_and_add(param: Tensor, update: Tensor, factor: Tensor) -> None:
    wide = torch.promote_types(param.dtype, torch.float32)
    param.add_((update.to(wide) * factor.to(wide)).to(param.dtype))


STEPS: Mapping[Any, Any] = MappingProxyType(
    {
        _adafactor._single_tensor_adafactor: _step_one_by_one,
        _adafactor._multi_tensor_adafactor: _step_of_lists,
    }
)
