"""What kernels look like to an emitter: how a nest walks memory, and which shape that emitters are good at it is.

pointwise   every step is a map over exactly the rows
column      some fold reads neighbours in memory for neighbouring rows; every step folds or maps over the rows alone
row         folds take a whole row each; maps and scans go along it
inner       some fold leaves axes of the row standing: softmax over a middle dimension
mixed       folds for which neighbouring rows are neighbours in memory, beside steps that go along a row
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Nest

__all__ = ["is_column", "is_reduction", "kernel_pattern", "layout_order"]


def kernel_pattern(kernel: Kernel, column: Callable[[Nest], bool]) -> str:
    """Return `"pointwise"`, `"column"`, `"row"`, `"inner"` or `"mixed"`.

    Args:
        kernel: The kernel.
        column: Tells whether a reduction walks columns; `is_column` with the buffers.
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
