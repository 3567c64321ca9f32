"""What some of torch's operators give, where its fakes know nothing of them or predict another size than eager's.

A factorisation by reflections has no fake. Of padded sequences that are packed, torch's has another size and type. The
distinct elements of a tensor are as many as data tell. A sum over bags on the CPU numbers the bag of each index only
where its fast kernel can't be used, which takes bfloat16 as well.
Checked against eager by tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_recorder.operands import by_name, device_of

__all__ = ["Prediction", "prediction_of"]

Prediction = Callable[[FakeTensorMode, Callable[[], Any], Mapping[str, Any]], Any]
"""Takes a mode, what runs the operator on torch's own fakes, and its arguments by name; returns what eager gives."""

_FAST = frozenset({torch.float32, torch.float16, torch.bfloat16})
_SUM = 0  # the first of the modes of a bag


def prediction_of(func: OpOverload) -> Callable[[FakeTensorMode, Callable[[], Any], Sequence[Any], Any], Any] | None:
    """Return what predicts the results of an overload in the place of torch's fakes; None: theirs serve."""
    predict = _PREDICTIONS.get(func)
    if predict is None:
        return None
    return lambda mode, by_torch, args, kwargs: predict(mode, by_torch, by_name(func, args, kwargs))


def _reflections(mode: FakeTensorMode, by_torch: Callable[[], Any], given: Mapping[str, Any]) -> Any:
    """The factors are column-major, in the shape of the operand."""
    x = given["self"]
    if x.dim() < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    *batch, m, n = x.shape
    with mode:
        factors = torch.empty((*batch, n, m), dtype=x.dtype, device=x.device).mT
        return factors, torch.empty((*batch, torch.sym_min(m, n)), dtype=x.dtype, device=x.device)


def _distinct(mode: FakeTensorMode, by_torch: Callable[[], Any], given: Mapping[str, Any]) -> Any:
    """Of a newer operator, which counts as well, all but the counts."""
    with mode:
        first, places, _ = torch.ops.aten._unique2(*given.values())
    return first, places


def _packed(mode: FakeTensorMode, by_torch: Callable[[], Any], given: Mapping[str, Any]) -> Any:
    """The rows of all steps, one after the other, and how many there are at each step: data tell the number of both."""
    x, lengths = given["input"], given["lengths"]
    n_steps = x.shape[1 if given["batch_first"] else 0]
    with mode:
        rows = torch.nonzero(lengths.new_empty((lengths.shape[0] * n_steps,)))
        steps = torch.nonzero(lengths.new_empty((n_steps,)))
        return x.new_empty((rows.shape[0], *x.shape[2:])), lengths.new_empty((steps.shape[0],))


def _bags(mode: FakeTensorMode, by_torch: Callable[[], Any], given: Mapping[str, Any]) -> Any:
    """Number the bags only where the fast kernel can't be used."""
    result, numbers, *rest = by_torch()
    weight, scale = given["weight"], given.get("per_sample_weights")
    if device_of(weight) != "cpu" or given.get("mode", _SUM) != _SUM:
        return (result, numbers, *rest)
    strides = [weight.stride(1), *([] if scale is None else [scale.stride(0)])]
    fast = weight.dtype in _FAST and all(n == 1 for n in strides) and given.get("padding_idx", -1) < 0
    with mode:
        numbers = numbers.new_empty(0 if fast else given["indices"].shape[0])
    return (result, numbers, *rest)


def _bags_forward(mode: FakeTensorMode, by_torch: Callable[[], Any], given: Mapping[str, Any]) -> Any:
    """Without gradients, sums count a bag for each offset, and the others one for each bag."""
    result, numbers, sizes, places = _bags(mode, by_torch, given)
    if device_of(given["weight"]) != "cpu" or not given.get("include_last_offset", False):
        return result, numbers, sizes, places
    n = given["offsets"].shape[0] - (given.get("mode", _SUM) != _SUM)
    with mode:
        places = places if places.dim() > 1 else places.new_empty(n)
        return result, numbers, sizes.new_empty(n), places


_ATEN = torch.ops.aten
_PREDICTIONS: Mapping[OpOverload, Prediction] = MappingProxyType(
    {
        _ATEN.geqrf.default: _reflections,
        _ATEN._unique.default: _distinct,
        _ATEN._pack_padded_sequence.default: _packed,
        _ATEN._embedding_bag.default: _bags,
        _ATEN._embedding_bag_forward_only.default: _bags_forward,
    }
)
