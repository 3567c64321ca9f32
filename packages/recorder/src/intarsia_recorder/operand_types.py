"""Operands whose types don't go together: calls that meta kernels accept and eager's kernels refuse, by eager's rules.

`mm` of a double and a float is such a call, or an index that is no integer. Which ops have which rule is a table
(`intarsia_ir.eager`); what needs more than the positions of operands is checked here. Checked against eager by tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_ir import eager
from intarsia_recorder.operands import Check, device_of, is_empty

__all__ = ["MISMATCHES", "mismatch_check"]

_Mismatch = Callable[[Sequence[Any], Mapping[str, Any]], bool]  # of a call: whether the types don't go together
_MASKS = (torch.bool, torch.uint8)


def mismatch_check(op: OpOverload) -> Check | None:
    """Return what raises where the types of an op's operands don't go together; None: nothing to check.

    Raises, when called:
        RuntimeError: In other words than eager's.
        IndexError: A mask among indices doesn't fit what it masks.
    """
    if op._overloadname == "dtype":  # the result's type is an argument: these are checked
        return None
    rows = eager.rows_of(op, _KINDS)
    if not rows:
        return None
    rules = [(row.device, _mismatch(row.rule)) for row in rows]

    def check(mode: FakeTensorMode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        for device, differ in rules:
            if (device is eager.Device.ANY or device.has(device_of(args[0]))) and differ(args, kwargs):
                raise RuntimeError(f"{op} isn't implemented for {', '.join(map(_type_of, args))}")

    return check


_KINDS = eager.SameType | eager.TypesAt | eager.OperandTypes | eager.ParameterTypes


def _mismatch(rule: eager.Rule) -> _Mismatch:
    """Return what tells whether a call is refused by a rule of one of these kinds."""
    match rule:
        case eager.SameType() | eager.TypesAt():
            return lambda args, kwargs: rule.refused(args)
        case eager.ParameterTypes():
            return lambda args, kwargs: rule.refused(args[0].dtype, {x.dtype for x in args[1:] if _is_tensor(x)})
    assert isinstance(rule, eager.OperandTypes)
    differ = MISMATCHES[rule]
    if rule in (eager.OperandTypes.BOOL_RESULT, eager.OperandTypes.SORTER):
        return lambda args, kwargs: differ(**kwargs)
    return lambda args, kwargs: differ(*args)


def _type_of(x: Any) -> str:
    return str(x.dtype) if isinstance(x, torch.Tensor) else type(x).__name__


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def _convolves_others(x: Any, weight: Any, bias: Any, *args: Any) -> bool:
    """Eager takes a bias of another type, but for transposed convolutions of volumes."""
    transposed = args[3]
    return bool(
        x.dtype != weight.dtype or (transposed and weight.dim() == 5 and _is_tensor(bias) and x.dtype != bias.dtype)
    )


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
    """Tell whether a loss of no rows is asked for."""
    return is_empty(x)


def _has_bool_exponent(x: Any, exponent: Any) -> bool:
    return bool(x.is_floating_point() and exponent.dtype is torch.bool)


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


def _gives_bools(dtype: Any = None, **rest: Any) -> bool:
    return dtype is torch.bool


def _sorts_otherwise(sorter: Any = None, **rest: Any) -> bool:
    return sorter is not None and sorter.dtype is not torch.int64


#: Rule -> whether it refuses a call: of the positional arguments, or of those by name.
MISMATCHES: Mapping[eager.OperandTypes, Callable[..., bool]] = MappingProxyType(
    {
        eager.OperandTypes.CONVOLUTION: _convolves_others,
        eager.OperandTypes.INDEXED_WRITE: _puts_at_no_positions,
        eager.OperandTypes.ADDED_SLICES: _adds_other_slices,
        eager.OperandTypes.INTEGER_QUOTIENT: _divides_integers,
        eager.OperandTypes.BOOL_EXPONENT: _has_bool_exponent,
        eager.OperandTypes.MASK: _takes_no_mask,
        eager.OperandTypes.PUT: _puts_wrongly,
        eager.OperandTypes.NO_ROWS: _gives_nothing,
        eager.OperandTypes.BOOL_RESULT: _gives_bools,
        eager.OperandTypes.SORTER: _sorts_otherwise,
    }
)
