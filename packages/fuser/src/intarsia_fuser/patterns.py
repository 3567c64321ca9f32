"""What kernels look like to an emitter: how a nest walks memory, and which shape that emitters are good at it is.

pointwise   every step is a map over exactly the rows
row         rows are leading axes; reductions run over the rest of a row, maps over it or over nothing
column      a reduction whose neighbouring results read neighbouring elements, then maps over the same rows
other       anything else: right everywhere, fast nowhere
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Nest

__all__ = ["is_column", "is_reduction", "kernel_pattern", "layout_order"]


def kernel_pattern(kernel: Kernel, column: Callable[[Nest], bool]) -> str:
    """Return `"pointwise"`, `"row"`, `"column"` or `"other"`.

    Args:
        kernel: The kernel.
        column: Tells whether a reduction walks columns; `is_column` with the buffers.
    """
    depth = len(kernel.rows)
    steps = kernel.steps
    if all(s.kind == "map" and len(s.axes) == depth for s in steps):
        return "pointwise"
    if any(is_reduction(s) and column(s) for s in steps):
        rest = all(s.kind == "map" for s in steps[1:])
        return "column" if rest and all(len(s.axes) == depth for s in steps) else "other"
    if all(s.kind == "map" or (is_reduction(s) and len(s.axes) == depth) for s in steps):
        return "row"
    return "row" if len(steps) == 1 else "other"


def is_reduction(nest: Nest) -> bool:
    """Tell whether the nest folds axes away (a scan keeps its axis)."""
    return nest.kind != "map" and not NEST_KINDS[nest.kind].scan


def is_column(nest: Nest, buffers: Mapping[str, Buffer]) -> bool:
    """Tell whether neighbours in the last axis of a reduction are neighbours in memory, and the reduced ones aren't.

    Decided by the loads that depend on a reduced axis: at least one has stride 1 in the last axis, none has stride 1
    in a reduced axis.
    """
    if not nest.axes:
        return False
    found = False
    for v in nest.body.loads:
        if v.op != "load":
            continue
        address = _address(v.args[1], buffers[v.args[0]].strides)
        reached = address.axes()
        if reached.isdisjoint(nest.red):
            continue
        if any(_stride(address, r) is ONE for r in nest.red if r in reached):
            return False
        found = found or (nest.axes[-1] in reached and _stride(address, nest.axes[-1]) is ONE)
    return found


def layout_order(buffer: Buffer) -> tuple[int, ...]:
    """Return the dimensions that have more than one element, outermost in memory first."""
    wide = [d for d, n in enumerate(buffer.shape) if n is not ONE]
    return tuple(sorted(wide, key=lambda d: (-buffer.strides[d].hi, d)))


def _address(index: Iterable[IndexExpr], strides: Iterable[IndexExpr]) -> IndexExpr:
    address = ZERO
    for entry, stride in zip(index, strides):
        address = address + entry * stride
    return address


def _stride(address: IndexExpr, axis: Atom) -> IndexExpr | None:
    """Coefficient of an axis, or None when the address isn't affine in it."""
    split = address.coef(axis)
    return None if split is None else split[0]
