"""What kernels look like to a schedule: along what each reduction would have its lanes, and whether all want the same.

pointwise   every step is a map over exactly the rows
column      every fold would have its lanes along rows; every step folds or maps over the rows alone
row         folds take a whole row each; maps and scans go along it
inner       some fold leaves axes of the row standing: softmax over a middle dimension
mixed       folds that would have their lanes along rows, beside steps that go along a row
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from intarsia_loops.index import ONE
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Nest
from intarsia_loops.vectors.lanes import lane_row
from intarsia_loops.vectors.steps import flat_steps

__all__ = ["is_column", "is_reduction", "kernel_pattern", "layout_order"]


def kernel_pattern(kernel: Kernel, column: Callable[[Nest], bool]) -> str:
    """Return `"pointwise"`, `"column"`, `"row"`, `"inner"` or `"mixed"`.

    Args:
        kernel: The kernel.
        column: Tells whether a reduction would have its lanes along rows; `is_column` with the buffers and lanes.
    """
    depth = len(kernel.rows)
    folds = [s for s in kernel.steps if is_reduction(s)]
    flat = all(len(s.axes) == depth for s in kernel.steps)
    if flat and not folds:
        return "pointwise"
    across = [column(s) for s in folds if len(s.axes) == depth]
    if any(across):
        return "column" if flat and all(across) else "mixed"
    return "row" if all(len(s.axes) == depth for s in folds) else "inner"


def is_reduction(nest: Nest) -> bool:
    """Tell whether the nest folds axes away (a scan keeps its axis, a scatter has no row to fold)."""
    kind = NEST_KINDS[nest.kind]
    return nest.kind != "map" and not kind.scan and not kind.scatter


def is_column(nest: Nest, buffers: Mapping[str, Buffer], lanes: int) -> bool:
    """Tell whether a reduction alone would have its lanes along a row axis; schedules for a CPU ask the same function.

    Args:
        nest: The reduction.
        buffers: Layout of every buffer.
        lanes: Elements side by side; `FusionGraph.lanes`.
    """
    if not nest.axes:
        return False
    return lane_row(nest.axes, flat_steps(Kernel(nest.axes, (nest,)), buffers, {}), lanes) is not None


def layout_order(buffer: Buffer) -> tuple[int, ...]:
    """Return the dimensions that have more than one element, outermost in memory first."""
    wide = [d for d, n in enumerate(buffer.shape) if n is not ONE]
    return tuple(sorted(wide, key=lambda d: (-buffer.strides[d].hi, d)))
