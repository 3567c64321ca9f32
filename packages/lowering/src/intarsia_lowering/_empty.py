"""Reads of memory that may have no element, by loops that may have some.

A size that depends on data may be 0. Most loops over such a tensor have no point then; but one that reads an element
only under a condition, as those of `cat` and padding do, still forms its address: `%x[i % u0]` has no meaning for
`u0 = 0`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from intarsia_loops.index import ZERO, Atom, IndexExpr, divides
from intarsia_loops.program import Buffer, Val
from intarsia_loops.rewrites import postorder

__all__ = ["MayBeEmptyError", "reads_nothing"]


class MayBeEmptyError(Exception):
    """A nest might read memory that has no element: what it stands for has to be a library call."""


def reads_nothing(body: Val, axes: Sequence[Atom], buffers: Mapping[str, Buffer]) -> bool:
    """Tell whether a body may read an element of memory that has none, or divide by 0, although its loops have points.

    Args:
        body: The value.
        axes: Every axis of the nest.
        buffers: What is read.
    """
    for value in postorder(body):
        if value.op == "index" and _may_divide_by_zero(value.args[0], axes):
            return True
        if value.op in ("load", "gather"):
            name, entries = value.args
            for entry, size in zip(entries, buffers[name].shape, strict=True):
                by_data = isinstance(entry, Val)
                if (by_data and size.lo <= 0) or (not by_data and _may_divide_by_zero(entry, axes)):
                    return True
    return False


def _may_divide_by_zero(index: IndexExpr, axes: Sequence[Atom]) -> bool:
    """Tell whether a divisor may be 0 although every axis has a point: that of a flattened dimension can't."""
    for atom in index.atoms():
        if atom.kind not in "/%":
            continue
        if atom.b.lo <= 0 and not any(divides(atom.b, axis.extent) for axis in axes if axis.extent is not ZERO):
            return True
        if _may_divide_by_zero(atom.a, axes) or _may_divide_by_zero(atom.b, axes):
            return True
    return False
