"""`correct_layouts`: gradients whose strides eager's formulas choose otherwise for tensors of its own than for fakes.

Some of autograd's formulas in C++ ask whether an operand is a subclass, as fake tensors are, and then avoid writes in
place: the values are the same, the strides are those of other operations. On the CPU the whole of `max`, `min`,
`median` and `nanmedian` fills new zeros, which are row-major, where a subclass has a product with a mask.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

__all__ = ["ROW_MAJOR_ON_CPU", "correct_layouts"]

ROW_MAJOR_ON_CPU = frozenset({"MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0"})
"""Autograd nodes whose gradient is row-major on the CPU; `MaxBackward1` is that of `max` without a dimension."""


def correct_layouts(nodes: Collection[Any]) -> None:
    """Have nodes of autograd give gradients with eager's strides.

    Args:
        nodes: Of a graph that will be gone back through while a recorder is on.
    """
    for node in nodes:
        if type(node).__name__ in ROW_MAJOR_ON_CPU:
            node.register_hook(_row_major)


def _row_major(gradients: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(g.contiguous() if isinstance(g, torch.Tensor) and g.device.type == "cpu" else g for g in gradients)
