"""What generated functions call at run time, and the text of extern calls."""

from __future__ import annotations

from collections.abc import Set
from functools import partial
from typing import Any

import torch
from torch import Tensor

from intarsia_ir.aten import effects
from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.errors import InternalError, UnsupportedError
from intarsia_loops.index import IndexExpr
from intarsia_loops.program import Buffer, Extern, Program, TensorRef
from intarsia_runtime._names import Names
from intarsia_runtime._refs import RefWriter, shape_text, size_text

__all__ = ["ExternCall", "as_tensor", "autograd_and_autocast_keys", "check_tensor", "copy", "is_ref", "restride"]

# Python bindings of these take the overload's arguments unchanged and cost 1.5 us less than the overload object.
DIRECT = frozenset(
    {"mm", "bmm", "addmm", "baddbmm", "convolution", "embedding", "_scaled_dot_product_flash_attention_for_cpu"}
)
# Namespaces of operators whose results torch predicts.
_TORCHS = frozenset({"aten", "prims", "quantized", "torchvision", "_c10d_functional", "c10d", "higher_order"})
# Returns its operand itself when it isn't training.
MAY_RETURN_OPERAND = frozenset({"aten.native_dropout.default"})


class ExternCall:
    """Text of one call of an ATen overload.

    Args:
        item: The call.
        names: Names of the function being written.
        refs: Writes its tensor operands.
        used: Results that something reads.
    """

    def __init__(self, item: Extern, names: Names, refs: RefWriter, used: Set[str]) -> None:
        self.item, self.names, self.refs = item, names, refs
        self.outs = tuple(name if name in used else "" for name in item.outs)

    def lines(self, program: Program) -> list[str]:
        """Return the statements that make the call and give every used result the layout of its buffer."""
        arguments = [self._argument(a) for a in self.item.args]
        arguments += [f"{name}={self._argument(a)}" for name, a in self.item.kwargs]
        call = f"{self._function()}({', '.join(arguments)})"
        used = [name for name in self.outs if name]
        if not used:
            return [call]
        lines = [f"{self._targets()} = {call}"]
        for name in used:
            lines += self._layout(self.names.local(name), program.buffers[name])
        return lines

    def _function(self) -> str:
        target = self.item.target
        name = str(target).removeprefix("aten.").removesuffix(".default")
        binding = getattr(torch._C._VariableFunctions, name, target) if name in DIRECT else target
        return self.names.bind("_" + str(target).replace(".", "_"), binding)

    def _argument(self, value: Any) -> str:
        if isinstance(value, TensorRef):
            return self.refs.tensor(value)
        if isinstance(value, IndexExpr):
            return size_text(value)
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(map(self._argument, value))}]"
        return self.names.literal(value)

    def _targets(self) -> str:
        """Return the left side of the assignment: one name, or a name or `_` for each position of the result."""
        returns = self.item.target._schema.returns
        outs = iter(self.outs)
        if len(returns) == 1 and not _is_list(returns[0]):
            return self.names.local(next(outs))
        if len(returns) == 1:
            return "".join(f"{self._target(name)}, " for name in outs).rstrip()
        if len(self.outs) == len(returns):
            return ", ".join(map(self._target, outs))
        # outs has no entry for results that aren't tensors
        return ", ".join(self._target(next(outs, "")) if _is_tensor(r) else "_" for r in returns)

    def _target(self, name: str) -> str:
        return self.names.local(name) if name else "_"

    def _layout(self, name: str, buffer: Buffer) -> list[str]:
        shape, strides = shape_text(buffer.shape), shape_text(buffer.strides)
        lines = []
        if _may_alias(self.item.target):
            lines.append(f"{name} = {self.names.bind('_copy', copy)}({name})")
        self.names.bind("_restride", restride)
        check = self._check()
        dtype = self.names.bind(f"_{buffer.dtype}", dtype_from_name(buffer.dtype))
        # kernels read it as what was predicted, so a wrong prediction must never reach one
        lines.append(f"if {name}.dtype is not {dtype} or {name}.shape != {shape}: {check}({name}, {shape}, {dtype})")
        lines.append(f"if {name}.stride() != {strides}: {name} = _restride({name}, {shape}, {strides})")
        return lines

    def _check(self) -> str:
        """Return the name of what raises for a result that isn't as predicted."""
        target = self.item.target
        if getattr(target, "namespace", "aten") in _TORCHS:
            return self.names.bind("_check_result", check_result)
        told = partial(check_custom_result, str(target).removesuffix(".default"))
        return self.names.bind("_check_" + str(target).replace(".", "_"), told)


def _is_list(returned: Any) -> bool:
    return isinstance(returned.type, torch.ListType)


def _is_tensor(returned: Any) -> bool:
    kind = returned.type
    if isinstance(kind, torch.OptionalType):
        kind = kind.getElementType()
    return isinstance(kind, torch.TensorType)


def _may_alias(target: Any) -> bool:
    return str(target) in MAY_RETURN_OPERAND or bool(effects(target).views)


def check_result(value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise an InternalError unless the result of an extern call is of this size and type."""
    if value.dtype != dtype or value.shape != shape:
        raise InternalError(
            f"an extern call gave {_describe(value)}, where {dtype} {shape} was predicted", code="runtime.extern_result"
        )


def check_custom_result(target: str, value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """The same for an operator of the user's, whose own fake predicted it.

    Raises:
        UnsupportedError: The fake is wrong.
    """
    if value.dtype != dtype or value.shape != shape:
        raise UnsupportedError(
            f"{target} gave {_describe(value)}, where its fake says {dtype} {shape}",
            code="runtime.operator_fake",
            hints=(f"correct the function that is registered as the fake of {target}, by register_fake",),
        )


def restride(value: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """Return `value` with exactly these strides: without a copy when only strides that address nothing differ.

    Args:
        value: Result of an extern call.
        shape: Its size.
        strides: In elements, as the program expects them.
    """
    same = all(s == t for n, s, t in zip(shape, value.stride(), strides, strict=True) if n != 1)
    if same or value.numel() == 0:
        return torch.as_strided(value, shape, strides)
    return torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device).copy_(value)


def copy(value: Tensor) -> Tensor:
    """Return the same values in new storage, with the same strides where these address each element once."""
    if 0 in value.stride():
        return value.clone(memory_format=torch.contiguous_format)
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)


def check_tensor(value: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, what: str) -> None:
    """Raise an InternalError unless `value` is a tensor of this size, strides (where they matter) and type."""
    if not isinstance(value, Tensor) or value.dtype != dtype or value.shape != shape:
        raise InternalError(f"{what}: expected {dtype} {shape}, got {_describe(value)}", code="runtime.metadata")
    differ = any(s != t for n, s, t in zip(shape, value.stride(), strides, strict=True) if n != 1)
    if differ and value.numel():
        raise InternalError(f"{what}: expected strides {strides}, got {value.stride()}", code="runtime.metadata")


def _describe(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)


def as_tensor(value: Any, buffer: Buffer) -> Tensor:
    """Return a constant of the program as a tensor of its buffer's type."""
    if isinstance(value, Tensor):
        value = value.detach()
        return copy(value) if value.is_neg() or value.is_conj() else value  # a kernel reads its memory
    return torch.tensor(value, dtype=dtype_from_name(buffer.dtype))


def is_ref(value: Any) -> bool:
    """Tell whether an output of a program is a tensor (otherwise it is a Python constant)."""
    return isinstance(value, TensorRef)


def autograd_and_autocast_keys() -> Any:
    """Return the dispatch keys that extern operators skip: both concerns were settled when the graph was recorded."""
    key = torch._C.DispatchKey
    keys = torch._C.DispatchKeySet(key.AutogradFunctionality)
    for more in (key.AutogradOther, key.ADInplaceOrView, key.AutocastCPU, key.AutocastCUDA):
        keys = keys.add(more)
    return keys
