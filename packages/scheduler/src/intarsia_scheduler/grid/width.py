"""How wide the numbers of a grid's rows, points and elements are.

Grids are 31-bit numbers, and so are the offsets of most tensors; beyond, and beside sizes that are symbols, they have
64 bits.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from intarsia_loops.addresses import indices_of, product
from intarsia_loops.program import Buffer, Kernel, Nest, Val
from intarsia_loops.rewrites import postorder

__all__ = ["is_wide"]

LARGEST_32_BIT = 1 << 31


def is_wide(kernel: Kernel, buffers: Mapping[str, Buffer]) -> bool:
    """Tell whether the numbers of a launch have 64 bits.

    Args:
        kernel: What it does.
        buffers: Layout of every buffer in memory.
    """
    points = [product([a.extent for a in (*s.axes, *s.red)]).const() or 0 for s in kernel.steps]
    largest = max((*map(_last_offset, buffers.values()), *points), default=0)
    return largest >= LARGEST_32_BIT or any(_has_symbols(step, buffers) for step in kernel.steps)


def _last_offset(buffer: Buffer) -> int:
    sizes = [(n.const(), s.const()) for n, s in zip(buffer.shape, buffer.strides, strict=True)]
    if any(n is None or s is None for n, s in sizes):
        return LARGEST_32_BIT
    return sum((n - 1) * s for n, s in sizes if n and s)  # type: ignore[operator]  # None came before


def _has_symbols(step: Nest, buffers: Mapping[str, Buffer]) -> bool:
    """Tell whether a step's text has size symbols."""
    extents = (a.extent for a in (*step.axes, *step.red))
    strides = (s for name in (*step.reads(), step.out) if name in buffers for s in buffers[name].strides)
    return any(n.const() is None for found in (extents, strides) for n in found) or _has_symbol(step.body)


@functools.lru_cache(maxsize=4096)
def _has_symbol(body: Val) -> bool:
    """Tell whether a value has size symbols; equal layers have equal bodies."""
    return any(e.symbols() for v in postorder(body) for e in indices_of(v))
