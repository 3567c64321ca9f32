"""`correct_layouts`: gradients whose strides eager's formulas choose otherwise for tensors of its own than for fakes.

Some of autograd's formulas in C++ ask whether an operand is a subclass, as fake tensors are, and then avoid writes in
place and questions about values: what is computed is the same, the strides are those of other operations. On the CPU
the whole of `max`, `min`, `median` and `nanmedian` fills new zeros, which are row-major, where a subclass has a product
with a mask; `prod` divides its result by the operand where that has no zeros; reflectors fill zeros like the operand.
Which nodes these are is a table (`intarsia_ir.eager.layouts`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

from intarsia_ir.eager import Device, GradientLayout, LaidLike, Row, rows_of
from intarsia_recorder.iteration import iterated_strides, known_numbers

__all__ = ["correct_layouts"]


def correct_layouts(nodes: Collection[Any]) -> None:
    """Have nodes of autograd give gradients with eager's strides.

    Args:
        nodes: Of a graph that will be gone back through while a recorder is on; what they save isn't freed yet.
    """
    for node in nodes:
        for row in rows_of(type(node).__name__, GradientLayout | LaidLike):
            node.register_hook(_hook(row, node))


def _hook(row: Row, node: Any) -> Callable[..., tuple[Any, ...]]:
    """Return what gives the gradients of a node the layout that a row says; where what it saves is needed, now."""
    with no_dispatch():  # looking at what is saved is no part of the program
        match row.rule:
            case GradientLayout.ROW_MAJOR:
                return functools.partial(_row_major, row.device)
            case GradientLayout.QUOTIENT:
                return functools.partial(_of_product, _first_sizes(node._saved_self), _removed_dim(node))
            case LaidLike(operands=names):
                operands = [getattr(node, f"_saved_{name}") for name in names]
                orders = [_order_of_dimensions(torch.empty_like(operand)) for operand in operands]
                return functools.partial(_with_orders, orders)
    raise AssertionError(row)


def _row_major(device: Device, gradients: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
    meant = [isinstance(g, torch.Tensor) and device.has(g.device.type) for g in gradients]
    return tuple(g.contiguous() if is_meant else g for g, is_meant in zip(gradients, meant, strict=True))


def _of_product(
    operand: torch.Tensor | None, dim: int | None, gradients: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Any, ...]:
    with no_dispatch():
        tangent = None if tangents[0] is None else _first_sizes(tangents[0])
    if operand is None or tangent is None:
        return gradients
    tangent = tangent if dim is None else tangent.unsqueeze(dim)
    quotient = torch.empty_strided(operand.shape, iterated_strides([operand], operand.shape), device="meta")
    strides = iterated_strides([tangent, quotient], operand.shape)
    return (
        _with_order(gradients[0], _order_of_dimensions(torch.empty_strided(operand.shape, strides, device="meta"))),
    )


def _removed_dim(node: Any) -> int | None:
    """Return the dimension that a product over one has no more; None of a whole product, and where it is kept."""
    if type(node).__name__ == "ProdBackward0" or node._saved_keepdim or not node._saved_self.dim():
        return None
    dim = node._saved_dim  # shown as an unsigned number
    return int(dim if dim < 2**63 else dim - 2**64)


def _first_sizes(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor on no device with the sizes and strides of the first call; None where one isn't known."""
    shape, strides = known_numbers(tensor.shape), known_numbers(tensor.stride())
    return None if shape is None or strides is None else torch.empty_strided(shape, strides, device="meta")


def _with_orders(
    orders: Sequence[Sequence[int] | None], gradients: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Any, ...]:
    first = [_with_order(g, order) for g, order in zip(gradients, orders, strict=False)]
    return (*first, *gradients[len(first) :])


def _with_order(gradient: Any, order: Sequence[int] | None) -> Any:
    """Return a gradient whose dimensions lie in memory in an order, the slowest one first; it is dense."""
    if not isinstance(gradient, torch.Tensor) or order is None or gradient.dim() != len(order):
        return gradient
    back = sorted(range(len(order)), key=order.__getitem__)
    return gradient.permute(*order).contiguous().permute(*back)


def _order_of_dimensions(tensor: torch.Tensor) -> list[int] | None:
    """Return the dimensions, the slowest one first, for the sizes of the first call; None where one isn't known."""
    strides = known_numbers(tensor.stride())
    return None if strides is None else sorted(range(len(strides)), key=lambda dim: strides[dim], reverse=True)
