"""The element types that eager's kernels refuse, as operands and as what is written: `intarsia_ir.eager` has the table.

Meta kernels accept more: `ceil` of a bool tensor raises in eager. What a compiler would compute there has no meaning,
so such calls raise before anything is recorded, and eager raises its own error when the program runs as written.
Checked against eager by tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from intarsia_ir import eager
from intarsia_recorder.operands import Check, device_of, is_empty, op_name

__all__ = ["refusal_check", "refused_types", "stored_check"]


def refused_types() -> dict[str, frozenset[torch.dtype]]:
    """Return the table of refusals: op, with or without its overload -> element types that eager's CPU kernel refuses.

    The type is that of the first tensor; what the operands promote to, for ops that promote; for `sub` that of either.

    Example:
        >>> torch.bool in refused_types()["ceil"], torch.int64 in refused_types()["ceil"]
        (True, False)
    """
    return {row.op: row.rule.types for row in eager.ROWS if isinstance(row.rule, eager.RefusedTypes)}


def refusal_check(op: OpOverload) -> Check | None:
    """Return what raises where eager's CPU kernel isn't implemented for the operands' type; None: it is for all.

    Raises, when called:
        RuntimeError: In other words than eager's.
    """
    rules = eager.rules_of(op, eager.RefusedTypes)
    if not rules:
        return None
    (rule,) = rules

    def check(mode: FakeTensorMode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        if rule.decides is eager.Decides.FIRST:
            tensors = tensors[:1]
        if any(device_of(x) != "cpu" or (not rule.if_empty and is_empty(x)) for x in tensors):
            return
        dtype = rule.refused(args)
        if dtype is not None:
            raise RuntimeError(f"{op} isn't implemented for {dtype} on the CPU")

    return check


def stored_check(op: OpOverload) -> Check | None:
    """Return what raises where the first operand of an in-place form can't hold the result; None: it always can.

    Raises, when called:
        RuntimeError: In eager's words.
    """
    rules = eager.rules_of(op, eager.StoredType)
    if not rules or not op._schema.is_mutable or not op_name(op).endswith("_"):
        return None
    (rule,) = rules

    def check(mode: FakeTensorMode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        target, dtype = args[0].dtype, rule.stored(args[:3])
        if not torch.can_cast(dtype, target):
            raise RuntimeError(f"result type {dtype} can't be cast to the desired output type {target}")

    return check
