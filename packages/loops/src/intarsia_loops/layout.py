"""Questions about strided layouts."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_loops.index import ONE, IndexExpr

__all__ = ["elements_overlap"]


def elements_overlap(shape: Sequence[IndexExpr], strides: Sequence[IndexExpr]) -> bool:
    """Tell whether two elements share an address; symbolic layouts are taken as ATen's, which don't overlap.

    Sorted by stride, each dimension has to step over all that the smaller ones reach.

    Example:
        >>> from intarsia_loops.index import lift
        >>> elements_overlap((lift(2), lift(3)), (lift(0), lift(1)))
        True
    """
    constants = [(s.const(), n.const()) for n, s in zip(shape, strides, strict=False) if n is not ONE]
    if any(size == 0 for _, size in constants):
        return False
    if any(stride is None or size is None for stride, size in constants):
        return any(stride == 0 for stride, _ in constants)
    dims = [(stride, size) for stride, size in constants if stride is not None and size is not None]
    reach = 0
    for stride, size in sorted(dims):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False
