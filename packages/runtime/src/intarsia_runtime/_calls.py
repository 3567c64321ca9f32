"""What generated functions call at run time, beside operators and kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from intarsia_ir.dtypes import dtype_from_name
from intarsia_ir.errors import InternalError, UnsupportedError
from intarsia_loops.program import Buffer, TensorRef

__all__ = [
    "as_tensor",
    "autograd_and_autocast_keys",
    "check_custom_result",
    "check_result",
    "check_tensor",
    "copy",
    "is_ref",
    "refuse",
    "restride",
]


def check_result(value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise an InternalError unless the result of an extern call is of this size and type."""
    if value.dtype != dtype or value.shape != shape:
        raise InternalError(
            f"an extern call gave {_describe(value)}, where {dtype} {shape} was predicted", code="runtime.extern_result"
        )


def check_custom_result(target: str, value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise unless the result of a user's operator is of the size and type that the operator's own fake predicts.

    Raises:
        UnsupportedError: The fake is wrong.
    """
    if value.dtype != dtype or value.shape != shape:
        raise UnsupportedError(
            f"{target} gave {_describe(value)}, where its fake says {dtype} {shape}",
            code="runtime.operator_fake",
            hints=(f"correct the function that is registered as the fake of {target}, by register_fake",),
        )


def refuse(message: str) -> None:
    """Raise what a check of numbers raises.

    Raises:
        RuntimeError: Always.
    """
    raise RuntimeError(message)


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
    return torch.tensor(value, dtype=dtype_from_name(buffer.dtype), device="cpu")


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
