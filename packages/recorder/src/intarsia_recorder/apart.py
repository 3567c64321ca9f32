"""Whether two views of one storage show an element in common, as far as their strides tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

__all__ = ["are_apart"]

_Axes = list[tuple[Any, Any]]


def are_apart(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Tell whether two views of one storage are known to show no element in common, without a new fact about sizes.

    Dimensions of the largest stride are left out of both together: what remains, such as the columns of one row, must
    lie in separate ranges within that stride, or be apart in the same way.

    Example:
        >>> rows = torch.zeros(5, 6)
        >>> are_apart(rows[:, :2], rows[:, 2:]), are_apart(rows[:, :3], rows[:, 2:]), are_apart(rows[0], rows[1:])
        (True, False, True)
    """
    if a.dtype != b.dtype:
        return False
    axes_a, axes_b = _axes(a), _axes(b)
    start = b.storage_offset() - a.storage_offset()
    while True:
        if _known(start > _span(axes_a)) or _known(start + _span(axes_b) < 0):
            return True
        outer = _largest([stride for stride, _ in (*axes_a, *axes_b)])
        if outer is None:
            return False
        axes_a, axes_b = _without(axes_a, outer), _without(axes_b, outer)
        # no step of that stride leads from a place of one into a place of the other
        widths = (_span(axes_a), start + _span(axes_b), _span(axes_a) - start, _span(axes_b))
        if not all(_known(width < outer) for width in widths):
            return False


def _axes(x: torch.Tensor) -> _Axes:
    """Return the strides and sizes of the dimensions that address something."""
    return [(stride, size) for stride, size in zip(x.stride(), x.shape, strict=True) if not _known(size == 1)]


def _without(axes: _Axes, stride: Any) -> _Axes:
    return [axis for axis in axes if not _known(axis[0] == stride)]


def _largest(strides: Sequence[Any]) -> Any:
    """Return the stride that is known not to be less than another; None where there is none, or it is 0."""
    candidates = (s for s in strides if _known(s > 0) and all(_known(s >= other) for other in strides))
    return next(candidates, None)


def _span(axes: _Axes) -> Any:
    """Return the distance from the first element to the last."""
    return sum(stride * (size - 1) for stride, size in axes)


def _known(condition: Any) -> bool:
    return condition if isinstance(condition, bool) else statically_known_true(condition)
