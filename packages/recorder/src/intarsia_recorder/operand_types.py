"""Operands whose types don't go together: calls that meta kernels accept and eager's kernels refuse, a table by op.

`mm` of a double and a float is such a call, or an index that is no integer. Checked against eager by tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_recorder.operands import Check, base_name, device_of, is_empty

__all__ = ["mismatch_check"]

_Mismatch = Callable[..., bool]  # of the positional arguments: whether their types don't go together
_KeywordMismatch = Callable[[Sequence[Any], Mapping[str, Any]], bool]
_HALVES = (torch.float16, torch.bfloat16)
_MASKS = (torch.bool, torch.uint8)
_POSITIONS = (torch.int32, torch.int64)


def mismatch_check(op: OpOverload) -> Check | None:
    """Return what raises where the types of an op's operands don't go together; None: nothing to check.

    Raises, when called:
        RuntimeError: In other words than eager's.
        IndexError: A mask among indices doesn't fit what it masks.
    """
    if op._overloadname == "dtype":  # the result's type is an argument: these are checked
        return None
    differ, differ_by_keyword = _MISMATCHES.get(base_name(op)), _KEYWORD_MISMATCHES.get(base_name(op))
    if differ is None and differ_by_keyword is None:
        return None

    def check(mode: FakeTensorMode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if (differ is not None and differ(*args)) or (
            differ_by_keyword is not None and differ_by_keyword(args, kwargs)
        ):
            raise RuntimeError(f"{op} isn't implemented for {', '.join(map(_type_of, args))}")

    return check


def _type_of(x: Any) -> str:
    return str(x.dtype) if isinstance(x, torch.Tensor) else type(x).__name__


def _tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    return [x for x in args if isinstance(x, torch.Tensor)]


def _differ(*args: Any) -> bool:
    """Tell whether the tensors among the arguments are of several types."""
    return len({x.dtype for x in _tensors(args)}) > 1


def _differ_at(*positions: int) -> _Mismatch:
    """Make a check that the tensors at some positions are of one type."""
    return lambda *args: _differ(*[args[position] for position in positions if position < len(args)])


def _is_other(position: int, *types: torch.dtype) -> _Mismatch:
    """Make a check that the tensor at a position is of one of these types."""
    return lambda *args: position < len(args) and args[position] is not None and args[position].dtype not in types


def _any_of(*checks: _Mismatch) -> _Mismatch:
    return lambda *args: any(check(*args) for check in checks)


def _normalises_others(x: Any, *args: Any) -> bool:
    """On the CPU, parameters and statistics have the operand's type, or all are float32 beside an operand of halves."""
    others = {other.dtype for other in _tensors(args)}
    if others <= {x.dtype} or device_of(x) != "cpu":
        return False
    return x.dtype not in _HALVES or others != {torch.float32}


def _convolves_others(x: Any, weight: Any, bias: Any, *args: Any) -> bool:
    """Eager takes a bias of another type, but for transposed convolutions of volumes."""
    transposed = args[3]
    return _differ(x, weight) or (transposed and weight.dim() == 5 and _differ(x, bias))


def _puts_at_no_positions(x: Any, indices: Any, *args: Any) -> bool:
    """Tell whether an index is no integer; raise where a mask has other sizes than the dimensions that it masks."""
    dim = 0
    for index in indices:
        masked = 1 if index is None or index.dtype not in _MASKS else index.dim()
        if masked and index is not None and index.dtype in _MASKS:
            _check_mask(x.shape[dim : dim + masked], index.shape, dim)
        dim += masked
    return any(index.is_floating_point() or index.is_complex() for index in indices if index is not None)


def _check_mask(sizes: Sequence[Any], mask: Sequence[Any], dim: int) -> None:
    for size, other in zip(sizes, mask, strict=False):
        if type(size) is int and type(other) is int and size != other:
            raise IndexError(f"a mask of {tuple(mask)} doesn't fit {tuple(sizes)}, the sizes from dimension {dim}")


def _gives_nothing(x: Any, *args: Any) -> bool:
    """Tell whether a loss of no rows is asked for on a GPU, of which some versions give the sum another shape."""
    return device_of(x) != "cpu" and is_empty(x)


def _has_bool_exponent(x: Any, exponent: Any) -> bool:
    return bool(x.is_floating_point() and exponent.dtype is torch.bool and device_of(x) == "cpu")


def _takes_no_mask(x: Any, mask: Any, *rest: Any) -> bool:
    return mask.dtype is not torch.bool


def _puts_wrongly(x: Any, index: Any, source: Any, *rest: Any) -> bool:
    return index.dtype is not torch.int64 or source.dtype is not x.dtype


def _divides_integers(x: Any, dividend: Any, divisor: Any) -> bool:
    return not any(t.is_floating_point() or t.is_complex() for t in (dividend, divisor))


def _adds_other_slices(x: Any, dim: int, index: Any, source: Any, *rest: Any) -> bool:
    """Tell whether types differ; raise where slices of the source have other sizes. Meta kernels check neither."""
    target, slices = list(x.shape), list(source.shape)
    if target and slices and -len(target) <= dim < len(target):
        position = dim % len(target)
        target, slices = target[:position] + target[position + 1 :], slices[:position] + slices[position + 1 :]
    is_static = all(type(n) is int for n in (*target, *slices))
    if len(target) != len(slices) or (is_static and target != slices):
        raise RuntimeError(f"slices of a source of shape {tuple(source.shape)} can't be added to {tuple(x.shape)}")
    return bool(x.dtype != source.dtype)


_SAME_TYPE = """
    addbmm addmm addmv baddbmm binary_cross_entropy bmm complex linalg_cross mm mv polar
"""
_NORMALISATIONS = """
    _batch_norm_with_update _batch_norm_with_update_functional _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training native_batch_norm native_group_norm
    native_layer_norm
"""
_MISMATCHES: dict[str, _Mismatch] = {
    **dict.fromkeys(_SAME_TYPE.split(), _differ),
    **dict.fromkeys(_NORMALISATIONS.split(), _normalises_others),
    **dict.fromkeys(
        ["_cdist_forward", "_softmax_backward_data", "grid_sampler_2d", "grid_sampler_3d"], _differ_at(0, 1)
    ),
    **dict.fromkeys(["_embedding_bag", "_embedding_bag_forward_only"], _differ_at(0, 6)),
    **dict.fromkeys(["_unsafe_index_put", "index_put"], _any_of(_puts_at_no_positions, _differ_at(0, 2))),
    **dict.fromkeys(
        ["nll_loss_forward", "nll_loss2d_forward"], _any_of(_is_other(1, torch.int64, torch.uint8), _differ_at(0, 2))
    ),
    "_unsafe_masked_index_put_accumulate": _differ_at(0, 3),
    "addcdiv": _divides_integers,
    "convolution": _convolves_others,
    "heaviside": _differ,
    "index_add": _any_of(_adds_other_slices, _is_other(2, *_POSITIONS)),
    "index_copy": _any_of(_differ_at(0, 3), _is_other(2, torch.int64)),
    "index_fill": _is_other(2, torch.int64),
    "index_reduce": _any_of(_differ_at(0, 3), _is_other(2, *_POSITIONS)),
    "index_select": _is_other(2, *_POSITIONS),
    "ldexp": _has_bool_exponent,
    "masked_fill": _takes_no_mask,
    "masked_scatter": _takes_no_mask,
    "multilabel_margin_loss_forward": _any_of(_is_other(1, torch.int64), _gives_nothing),
    "put": _puts_wrongly,
}
_KEYWORD_MISMATCHES: dict[str, _KeywordMismatch] = {
    **dict.fromkeys(["cumprod", "cumsum"], lambda args, kwargs: kwargs.get("dtype") is torch.bool),
    "searchsorted": lambda args, kwargs: kwargs.get("sorter") is not None and kwargs["sorter"].dtype is not torch.int64,
}
