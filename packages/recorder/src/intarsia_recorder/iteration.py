"""The strides of what eager computes element by element: those of ATen's `TensorIterator`, for sizes that are known.

Operands of one shape whose layouts agree give that layout at once. Otherwise dimensions are sorted by the operands'
strides, the first operand's first; a dimension along which an operand is repeated tells nothing. Both happen for
dimensions of one element as for others, though their strides mean nothing: a program can look at them.

Source: aten/src/ATen/TensorIterator.cpp, `compute_fast_setup_type` and `reorder_dimensions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

__all__ = ["is_dense", "is_known_dense", "is_row_major", "is_static", "iterated_strides", "known_numbers"]


def iterated_strides(tensors: Sequence[torch.Tensor], shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a new result, in elements.

    Args:
        tensors: The operands, numbers among them as 0-dim tensors.
        shape: What their shapes broadcast to.

    Example:
        >>> x = torch.empty_strided((5, 1), (1, 5))
        >>> iterated_strides([x], x.shape), iterated_strides([x, torch.ones(())], x.shape)
        ((1, 1), (1, 5))
    """
    if all(tuple(x.shape) == tuple(shape) for x in tensors):
        agreed = _agreed_strides(tensors)
        if agreed is not None:
            return agreed
    order = _sorted_dimensions([_strides_in(x, shape) for x in tensors], shape)
    strides, size = [0] * len(shape), 1
    for dim in order:
        strides[dim] = size
        size *= shape[dim]
    return tuple(strides)


def is_dense(tensor: torch.Tensor) -> bool:
    """Tell whether the elements of a tensor of known size fill a piece of memory, each once."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def is_known_dense(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is known to be dense, whatever numbers its sizes stand for, without relying on them."""
    if is_static(tensor):
        return is_dense(tensor)
    left = [
        pair for pair in zip(tensor.stride(), tensor.shape, strict=True) if type(pair[1]) is not int or pair[1] != 1
    ]
    expected: Any = 1
    while left:
        position = next((n for n, (stride, _) in enumerate(left) if statically_known_true(stride == expected)), None)
        if position is None:
            return False
        expected = expected * left.pop(position)[1]
    return True


def is_static(tensor: torch.Tensor) -> bool:
    """Tell whether sizes and strides of a tensor are plain numbers."""
    return all(type(n) is int for n in (*tensor.shape, *tensor.stride()))


def is_row_major(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is contiguous for the sizes of the first call; False where these are unknown."""
    shape, strides = known_numbers(tensor.shape), known_numbers(tensor.stride())
    if shape is None or strides is None:
        return False
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return 0 in shape
        expected *= size
    return True


def known_numbers(numbers: Sequence[Any]) -> list[int] | None:
    """Return what sizes are in the first call, without relying on them; None where one isn't known."""
    hints = [n if type(n) is int else n.node.hint for n in numbers]
    return None if None in hints else hints


def _agreed_strides(tensors: Sequence[torch.Tensor]) -> tuple[int, ...] | None:
    """Return the strides of operands of one shape that have one layout."""
    first = tensors[0]
    if all(x.is_contiguous() for x in tensors):
        return torch.empty(first.shape, device="meta").stride()
    if first.dim() == 4 and all(x.is_contiguous(memory_format=torch.channels_last) for x in tensors):
        return torch.empty(first.shape, device="meta", memory_format=torch.channels_last).stride()
    same = all(x.stride() == first.stride() for x in tensors)
    return first.stride() if same and is_dense(first) else None


def _strides_in(tensor: torch.Tensor, shape: Sequence[int]) -> list[int]:
    """Return an operand's strides in the shape of the result; 0 where it is repeated."""
    missing = len(shape) - tensor.dim()
    dims = zip(tensor.shape, tensor.stride(), shape[missing:], strict=True)
    return [0] * missing + [0 if size == 1 and expanded != 1 else stride for size, stride, expanded in dims]


def _sorted_dimensions(strides: Sequence[Sequence[int]], shape: Sequence[int]) -> list[int]:
    """Return the dimensions, the fastest one first, by insertion as in eager: the comparison isn't transitive."""
    order = list(reversed(range(len(shape))))
    for start in range(1, len(order)):
        inserted = start
        for before in reversed(range(start)):
            sign = _compare(strides, shape, order[before], order[inserted])
            if sign < 0:
                break
            if sign > 0:
                order[before], order[inserted] = order[inserted], order[before]
                inserted = before
    return order


def _compare(strides: Sequence[Sequence[int]], shape: Sequence[int], one: int, other: int) -> int:
    """Return 1 if the dimension `one` is to come after `other`, -1 if before, 0 if nothing tells."""
    for of_operand in strides:
        if of_operand[one] == 0 or of_operand[other] == 0:
            continue
        if of_operand[one] != of_operand[other]:
            return 1 if of_operand[one] > of_operand[other] else -1
        if shape[one] > shape[other]:
            return 1
    return 0
