"""The decompositions of backward formulas, and of forward ops whose parts serve training better than the whole.

A backward formula is in the table if its parts are what the loops lowerings take and compute what its kernel does;
those with a library kernel stay whole: convolution, attention, embedding, pooling, recurrent layers. One forward op
comes apart only here: the result of a layer norm in parts can be computed again from its input and two numbers a row,
instead of being saved. The CPU's flash attention must never be in the table: the second result of its
decomposition isn't what its backward formula reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._ops import OpOverload

from intarsia_ir.eager import Rounded, rounds
from intarsia_recorder import statistics_of_parameters

__all__ = ["backward_decompositions"]

aten = torch.ops.aten

_FROM_TORCH: tuple[Any, ...] = (
    # element by element
    aten.elu_backward.default,
    aten.gelu_backward.default,
    aten.glu_backward.default,
    aten.hardsigmoid_backward.default,
    aten.hardswish_backward.default,
    aten.hardtanh_backward.default,
    aten.leaky_relu_backward.default,
    aten.log_sigmoid_backward.default,
    aten.logit_backward.default,
    aten.mish_backward.default,
    aten.native_dropout_backward.default,
    aten.sigmoid_backward.default,
    aten.silu_backward.default,
    aten.softplus_backward.default,
    aten.softshrink_backward.default,
    aten.tanh_backward.default,
    aten.threshold_backward.default,
    # losses
    aten.binary_cross_entropy_backward.default,
    aten.huber_loss_backward.default,
    aten.mse_loss_backward.default,
    aten.smooth_l1_loss_backward.default,
    # reductions and normalisations
    aten._log_softmax_backward_data.default,
    aten._softmax_backward_data.default,
    aten.native_batch_norm_backward.default,
    aten.native_group_norm_backward.default,
    aten.native_layer_norm_backward.default,
    aten.native_layer_norm.default,
    # moving elements
    aten.select_backward.default,
    aten.slice_backward.default,
    aten.diagonal_backward.default,
)


def backward_decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return a new copy of the table: ATen overload -> Python function of the same parameters.

    Example:
        >>> table = backward_decompositions()
        >>> torch.ops.aten.gelu_backward.default in table, torch.ops.aten.convolution_backward.default in table
        (True, False)
    """
    from_torch = get_decompositions(list(_FROM_TORCH))
    table = {op: function for op, function in from_torch.items() if isinstance(op, OpOverload)}
    layer_norm = aten.native_layer_norm.default
    table[layer_norm] = statistics_of_parameters(table[layer_norm])
    table[aten.glu_backward.default] = _glu_backward(table[aten.glu_backward.default])
    for op in (aten.huber_loss_backward.default, aten.mse_loss_backward.default, aten.smooth_l1_loss_backward.default):
        table[op] = _of_something(table[op])
    for op, (at, given) in _AT_NAN.items():
        table[op] = _as_vectors_do(table[op], at, given)
    smooth = aten.smooth_l1_loss_backward.default
    table[smooth] = _smooth_l1_loss_backward(table[smooth])
    return table


# which operand, and the gradient where it is NaN, in whole vectors of eager's kernels on a CPU; the last few elements
# of its loops get other ones there, as all do on a GPU: the parts are written for these
_AT_NAN: dict[OpOverload, tuple[int, float]] = {
    aten.elu_backward.default: (5, math.nan),
    aten.hardswish_backward.default: (1, math.nan),
    aten.hardtanh_backward.default: (1, 0.0),
}


def _as_vectors_do(function: Callable[..., Any], at: int, given: float) -> Callable[..., Any]:
    """Give the gradient at NaN that eager's vectors give on a CPU, and elsewhere that of the parts."""

    def decompose(*args: Any) -> torch.Tensor:
        result: torch.Tensor = function(*args)
        x = args[at]
        return torch.where(x.isnan(), given, result) if x.device.type == "cpu" else result

    return decompose


def _smooth_l1_loss_backward(function: Callable[..., Any]) -> Callable[..., Any]:
    """NaN for a difference that is: the parts take its sign, which is 0."""

    def decompose(tangent: torch.Tensor, x: torch.Tensor, target: torch.Tensor, *args: Any) -> torch.Tensor:
        difference = x - target
        return torch.where(difference.isnan(), difference, function(tangent, x, target, *args))

    return decompose


def _of_something(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a loss of nothing an empty gradient: the parts divide by the number of elements, in Python."""

    def decompose(tangent: torch.Tensor, x: torch.Tensor, *args: Any) -> Any:
        nothing = any(type(n) is int and n == 0 for n in x.shape)
        return x.new_zeros(x.shape) if nothing else function(tangent, x, *args)

    return decompose


def _glu_backward(function: Callable[..., Any]) -> Callable[..., Any]:
    """Round the sigmoid to a half type, as eager's CPU kernel does, and nothing else but the results."""

    def decompose(tangent: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
        if not rounds("glu_backward", Rounded.SIGMOID, x.device.type, x.dtype):
            result: torch.Tensor = function(tangent, x, dim)
            return result
        first, second = x.chunk(2, dim)
        gate, wide = torch.sigmoid(second).to(torch.float32), tangent.to(torch.float32)
        parts = gate * wide, (1 - gate) * gate * first * wide
        return torch.cat([part.to(x.dtype) for part in parts], dim)

    return decompose
