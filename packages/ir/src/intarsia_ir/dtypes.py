"""Short names of element types, as every IR dump writes them, and their torch counterparts."""

from __future__ import annotations

import torch

__all__ = ["DTYPE_NAMES", "dtype_from_name", "dtype_name", "itemsize"]

DTYPE_NAMES: dict[torch.dtype, str] = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.bool: "b8",
    torch.complex32: "c32",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e4m3fnuz: "f8e4m3fnuz",
    torch.float8_e5m2fnuz: "f8e5m2fnuz",
}

_FROM_NAME = {name: dtype for dtype, name in DTYPE_NAMES.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """Return the short name of `dtype`; types outside the table keep torch's own name.

    Example:
        >>> dtype_name(torch.bfloat16)
        'bf16'
    """
    return DTYPE_NAMES.get(dtype, str(dtype).removeprefix("torch."))


def dtype_from_name(name: str) -> torch.dtype:
    """Return the torch type for a short name.

    Raises:
        KeyError: `name` is no element type.
    """
    if name in _FROM_NAME:
        return _FROM_NAME[name]
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise KeyError(name)
    return dtype


def itemsize(name: str) -> int:
    """Return the size in bytes of one element of the type with this short name."""
    return dtype_from_name(name).itemsize
