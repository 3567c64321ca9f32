"""Operands in other layouts, with the same elements wherever the layout allows that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

__all__ = ["LAYOUTS", "MIXED", "relaid"]

Layout = Callable[[Tensor], Tensor | None]


def _in_order(x: Tensor, order: list[int]) -> Tensor | None:
    """Return a copy whose dimensions lie in memory in this order, the outermost first."""
    if x.dim() < 2:
        return None
    return (
        x.permute(order).clone(memory_format=torch.contiguous_format).permute([order.index(d) for d in range(x.dim())])
    )


def _contiguous(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _transposed(x: Tensor) -> Tensor | None:
    return _in_order(x, list(reversed(range(x.dim()))))


def _permuted(x: Tensor) -> Tensor | None:
    return _in_order(x, [*range(1, x.dim()), 0]) if x.dim() > 2 else None


def _channels_last(x: Tensor) -> Tensor | None:
    """The second dimension innermost: `channels_last` of four dimensions, `channels_last_3d` of five."""
    return _in_order(x, [0, *range(2, x.dim()), 1]) if x.dim() > 2 else None


def _stepped(x: Tensor) -> Tensor | None:
    if not x.dim():
        return None
    room = x.new_zeros((*x.shape[:-1], 2 * x.shape[-1]))
    return room[..., ::2].copy_(x)


def _padded(x: Tensor) -> Tensor | None:
    """Rows with gaps between them."""
    if x.dim() < 2:
        return None
    room = x.new_zeros((*x.shape[:-1], x.shape[-1] + 3))
    return room[..., 1:-2].copy_(x)


def _offset(x: Tensor) -> Tensor:
    room = x.new_zeros((x.numel() + 3,))
    return room[3:].view(x.shape).copy_(x)


def _expanded(x: Tensor) -> Tensor | None:
    """Elements of one row, again and again."""
    for dim, size in enumerate(x.shape):
        if size > 1:
            return x.narrow(dim, 0, 1).clone().expand(x.shape)
    return None


def _negative(x: Tensor) -> Tensor | None:
    if x.is_complex():
        return torch.conj(x.conj_physical())
    if x.is_floating_point() and not x.dim():
        return torch._neg_view(-x)
    # as `imag` of a conjugate: every second element of memory
    return torch.complex(torch.zeros_like(x), -x).conj().imag if x.dtype in (torch.float32, torch.float64) else None


def _adjoint(x: Tensor) -> Tensor | None:
    """A bit on dense memory that lies the other way round."""
    turned = _transposed(x)
    if turned is None or not (x.is_floating_point() or x.is_complex()):
        return None
    return torch.conj(turned.conj_physical()) if x.is_complex() else torch._neg_view(-turned)


def _odd_ones(x: Tensor) -> Tensor | None:
    """Strides that address nothing."""
    if 1 not in x.shape:
        return None
    dense = _contiguous(x)
    return dense.as_strided(x.shape, [77 if n == 1 else s for n, s in zip(x.shape, dense.stride(), strict=True)])


def _one_row(x: Tensor) -> Tensor | None:
    """One element in the first dimension, with the stride that it had among others."""
    return _contiguous(x)[:1] if x.dim() and x.shape[0] > 1 else None


def _empty(x: Tensor) -> Tensor | None:
    return _contiguous(x)[:0] if x.dim() and x.shape[0] else None


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "contiguous": _contiguous,
        "transposed": _transposed,
        "permuted": _permuted,
        "channels_last": _channels_last,
        "stepped": _stepped,
        "padded": _padded,
        "offset": _offset,
        "expanded": _expanded,
        "bit": _negative,
        "adjoint": _adjoint,
        "odd_ones": _odd_ones,
        "one_row": _one_row,
        "empty": _empty,
    }
)
"""Name -> function that gives a tensor the layout, in memory of its own; None where it can't have it."""

MIXED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "transposed, then contiguous": ("transposed", "contiguous"),
        "contiguous, then channels_last": ("contiguous", "channels_last"),
        "stepped, then transposed": ("stepped", "transposed"),
        "expanded, then permuted": ("expanded", "permuted"),
    }
)
"""Name -> layouts of the first tensor of a sample and of all others."""


def relaid(inputs: Any, layout: str) -> Any:
    """Return new operands in a layout; None where no tensor among them can have it.

    Args:
        inputs: A tree with tensors, which stay as they are.
        layout: A name of `LAYOUTS` or `MIXED`.
    """
    first, rest = MIXED.get(layout, (layout, layout))
    leaves, spec = pytree.tree_flatten(inputs)
    operands, n_laid, n_tensors = [], 0, 0
    for leaf in leaves:
        if not isinstance(leaf, Tensor) or leaf.layout is not torch.strided or leaf.is_quantized:
            operands.append(leaf)
            continue
        new = LAYOUTS[rest if n_tensors else first](leaf.detach())
        n_tensors += 1
        n_laid += new is not None
        value = _contiguous(leaf.detach()) if new is None else new.detach()
        operands.append(value.requires_grad_(leaf.requires_grad))
    if not n_laid or (layout in MIXED and n_tensors < 2):
        return None
    return pytree.tree_unflatten(operands, spec)
