"""Decompositions of `torch._foreach_*` and the like: one operation for each tensor, as torch's own slow path does it.

Whole, such an op is one library call whose results nothing fuses with. The rows are derived from the schemas: lists go
along with the tensors, everything else is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

__all__ = ["foreach_decompositions"]

aten = torch.ops.aten
PREFIX = "_foreach_"
_LISTS = ("List[Tensor]", "List[number]")
#: Names that differ between the list form and the form for one tensor.
_SINGLE: dict[str, Callable[..., Any]] = {
    "norm": lambda x, ord=2, dtype=None: torch.linalg.vector_norm(x, ord, dtype=dtype),
    "maximum": lambda x, other: torch.clamp_min(x, other),
    "minimum": lambda x, other: torch.clamp_max(x, other),
    "maximum_": lambda x, other: x.clamp_min_(other),
    "minimum_": lambda x, other: x.clamp_max_(other),
    # the overload for numbers rounds the number to a half type first, the method doesn't
    "mul_": lambda x, other: (
        aten.mul_.Tensor(x, other) if isinstance(other, torch.Tensor) else aten.mul_.Scalar(x, other)
    ),
}
#: Parameters of the list form -> keywords of the form for one tensor.
_KEYWORDS = {"value": "value", "alpha": "alpha", "dtype": "dtype", "memory_format": "memory_format"}


def foreach_decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Return ATen overload -> function that does the same tensor by tensor.

    Example:
        >>> torch.ops.aten._foreach_mul_.Scalar in foreach_decompositions()
        True
    """
    table = {}
    for name in dir(torch):
        if not name.startswith(PREFIX):
            continue
        plain = name.removeprefix(PREFIX)
        single = _SINGLE.get(plain) or (_method(plain) if plain.endswith("_") else getattr(torch, plain, None))
        packet = getattr(aten, name)
        for op in (getattr(packet, overload) for overload in packet.overloads()):
            if single is not None and "out" not in [a.name for a in op._schema.arguments] and not _reads_data(op):
                table[op] = _one_by_one(op, single)
    table[aten._amp_foreach_non_finite_check_and_unscale_.default] = _unscale
    return table


def _unscale(gradients: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor) -> Any:
    """Multiply each by the inverse of a gradient scaler's scale, and note whether one held an infinity or NaN."""
    if any(x.dtype != torch.float32 or x.numel() != 1 for x in (found_inf, inv_scale)):
        return NotImplemented  # eager refuses it, as what is below
    if not all(gradient.dtype.is_floating_point for gradient in gradients):
        return NotImplemented
    found = found_inf
    for gradient in gradients:
        found = torch.where(gradient.isfinite().all(), found, 1.0)
        wide = gradient.to(torch.float32) if gradient.dtype in (torch.float16, torch.bfloat16) else gradient
        gradient.copy_(wide * inv_scale)
    found_inf.copy_(found)
    return None


def _method(name: str) -> Callable[..., Any] | None:
    """Return the in-place method of a tensor as a function."""
    method: Callable[..., Any] | None = getattr(torch.Tensor, name, None)
    return method


def _reads_data(op: OpOverload) -> bool:
    """Tell whether an op reads numbers out of a tensor."""
    return any(a.name == "scalars" and str(a.type) == "Tensor" for a in op._schema.arguments)


def _one_by_one(op: OpOverload, single: Callable[..., Any]) -> Callable[..., Any]:
    """Return what `op` is in terms of the operation on one tensor."""
    parameters = op._schema.arguments
    along = {p.name for p in parameters if str(p.type) in _LISTS}
    scaled = op._schema.name.partition(PREFIX)[2].startswith("addc")
    names = _KEYWORDS | ({"scalars": "value"} if scaled else {})

    def decompose(*args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip([p.name for p in parameters], args, strict=False)), **kwargs}
        count = {len(given[name]) for name in along if name in given}
        if len(count) != 1:
            return NotImplemented
        results = []
        for number in range(count.pop()):
            row = {name: value[number] if name in along else value for name, value in given.items()}
            keywords = {names[name]: value for name, value in row.items() if name in names}
            results.append(single(*[value for name, value in row.items() if name not in names], **keywords))
        return results if op._schema.returns else None

    return decompose
