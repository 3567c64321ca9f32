"""Operators of users' libraries: which object stands for one, and which calls no graph holds."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch._library.utils import can_generate_trivial_fake_impl
from torch._ops import OpOverload, OpOverloadPacket

from intarsia_pyeval.breaks import Break
from intarsia_recorder import are_apart
from intarsia_tensorcapture.described import is_transformed, shown, tensors_in

__all__ = ["is_of_torch", "operator_of", "refuse_call", "refuse_mixed", "refuse_raised", "refuse_without_fake"]


#: Namespaces of operators that come with torch.
_OWN = frozenset({"aten", "prim", "prims"})
#: Where code lies that passes a call on to a fake implementation.
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))


def operator_of(value: Any) -> Any:
    """Return the overload that stands for what `torch.library.custom_op` gave, or for a collective, which has one.

    Anything else is returned as it is.
    """
    if issubclass(type(value), OpOverloadPacket) and _namespace(value) == "_c10d_functional":
        return value.default  # its name says which it is
    return value._opoverload if type(value) is CustomOpDef else value


def is_of_torch(target: Any) -> bool:
    """Tell whether an operation is torch's own, and no operator that a library registered."""
    return not isinstance(target, (OpOverload, OpOverloadPacket)) or _namespace(target) in _OWN


def refuse_mixed(target: Any, args: Sequence[Any]) -> None:
    """Break before a product of several element types, which raises in eager and not on fake tensors."""
    types = sorted({str(a.dtype) for a in args if isinstance(a, torch.Tensor) and a.dim()})
    if len(types) > 1 and not torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda"):
        raise Break("tracer.operation_raised", f"{shown(target)} multiplies {' and '.join(types)}")


def refuse_call(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Break before a call of a user's operator that no graph can hold.

    Args:
        target: What is called; only operators are looked at.
        args: Its arguments, with fake tensors.
        kwargs: Likewise.

    Raises:
        Break: Nothing predicts its results, or it writes a tensor that shares elements with another operand.
    """
    op = _overload(target, args, kwargs)
    if op is None or op.namespace in _OWN:
        return
    definition = OPDEFS.get(op._schema.name)
    if definition is not None and definition._abstract_fn is None and not can_generate_trivial_fake_impl(op):
        raise _without_fake(op)
    written, read = _operands(op, args, kwargs)
    if written and any(map(is_transformed, (*written, *read))):
        raise Break("tracer.tensor_op", f"{op} writes a tensor in a function that torch.func transforms")
    for position, tensor in enumerate(written):
        if any(_share(tensor, other) for other in (*written[position + 1 :], *read)):
            raise Break("tracer.shared_operands", f"{op} writes a tensor that shares elements with another operand")


def refuse_without_fake(target: Any) -> None:
    """Break where nothing told what an operator of the user gives, by the name of what is missing."""
    if isinstance(target, (OpOverload, OpOverloadPacket)) and _namespace(target) not in _OWN:
        raise _without_fake(target)


def refuse_raised(target: Any, error: Exception) -> None:
    """Break where the fake implementation of an operator of the user raised: that eager raises as well isn't known."""
    if not isinstance(target, (OpOverload, OpOverloadPacket)) or _namespace(target) in _OWN:
        return
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if any(not file.startswith((_TORCH, _HERE, "<")) for file in files[1:]):
        reason = f"the fake implementation of {target} raised {type(error).__name__}: {error}"
        raise Break("tracer.fake_raised", reason) from None


def _without_fake(target: Any) -> Break:
    return Break("tracer.no_fake", f"{target} has no fake implementation, which would say what its results look like")


def _namespace(target: Any) -> str:
    name = target._schema.name if isinstance(target, OpOverload) else target._qualified_op_name
    return str(name).partition("::")[0]


def _overload(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> OpOverload | None:
    """Return the overload that a call is of; None where it isn't known, or what is called is no operator."""
    if isinstance(target, OpOverload):
        return target
    if not isinstance(target, OpOverloadPacket) or _namespace(target) in _OWN:
        return None
    names = target.overloads()
    return getattr(target, names[0]) if len(names) == 1 else None


def _operands(
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the tensors that a call writes, and those that it only reads."""
    written: list[torch.Tensor] = []
    read: list[torch.Tensor] = []
    for place, argument in enumerate(op._schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        (written if is_written else read).extend(tensors_in([value]))
    return written, read


def _share(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata and not are_apart(a, b)
