"""Which way to walk a kernel: the decision that picks one of the kernel shapes."""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_cpp._context import Context
from intarsia_cpp._ops import WIDTH
from intarsia_cpp.columns import emit_columns
from intarsia_cpp.pointwise import emit_pointwise, is_pointwise, is_tiled
from intarsia_cpp.rows import emit_rows
from intarsia_cpp.scatter import emit_scatter, is_scatter
from intarsia_ir.records import Target
from intarsia_loops.addresses import product
from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr, axis
from intarsia_loops.program import Buffer, Kernel
from intarsia_loops.vectors.axes import lane_step
from intarsia_loops.vectors.groups import group_steps
from intarsia_loops.vectors.narrow import narrowed
from intarsia_loops.vectors.steps import Block, Step, accesses

__all__ = ["emit_lines", "kernel_shape"]

# Extent taken for one that is known at run time only.
TYPICAL = 64
# Cost of one scalar op on a vector, where moving a vector to or from memory is 1.
ARITHMETIC = 0.25
MOST_COLUMNS = 512


def emit_lines(kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> tuple[Context, list[str]]:
    """Return the body of the function for a kernel, and the context that names its parameters.

    Args:
        kernel: In canonical form.
        buffers: Layout of every buffer in memory.
        target: Instruction set and number of threads.
    """
    kernel = narrowed(kernel)
    if is_scatter(kernel):
        return emit_scatter(kernel, buffers, target)
    context = Context(kernel, buffers, target)
    shape, position = _choose(context)
    if shape == "empty":
        return context, []
    if shape == "columns":
        block = Block(position, axis("start", kernel.rows[position].extent), _width(context, position))
        context = Context(kernel, buffers, target, block)
        return context, emit_columns(context)
    return context, emit_rows(context) if shape == "rows" else emit_pointwise(context)


def kernel_shape(kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> str:
    """Return which shape is chosen for a kernel: `empty`, `pointwise`, `tiled`, `rows`, `columns` or `scatter`."""
    if is_scatter(kernel):
        return "scatter"
    context = Context(narrowed(kernel), buffers, target)
    shape, _ = _choose(context)
    return "tiled" if shape == "pointwise" and is_tiled(context) else shape


def _choose(context: Context) -> tuple[str, int]:
    """The shape, and for columns which row axis the lanes run along."""
    if product(tuple(a.extent for a in context.kernel.rows)).const() == 0:
        return "empty", 0
    if is_pointwise(context):
        return "pointwise", 0
    position = _lane_row(context)
    return ("rows", 0) if position is None else ("columns", position)


def _lane_row(context: Context) -> int | None:
    """The row axis that vector lanes should run along, or None where inner axes suit memory better."""
    if any(s.kind == "cumprod" and s.dtype == "f32" for s in context.steps):
        return None  # eager multiplies in f64; only the row shape does
    best, choice = _inner_cost(context), None
    for k, row in enumerate(context.kernel.rows):
        cost = sum(_extent(product(_loops_of(s))) * _vector_cost(context, s, row) for s in context.steps)
        cost *= _waste(context, row)
        if cost < best:
            best, choice = cost, k
    return choice


def _inner_cost(context: Context) -> float:
    """Work of one row with lanes along inner axes."""
    total = 0.0
    for group in group_steps(context.steps):
        points = _extent(product(tuple(a.extent for a in group.loops)))
        if not group.loops:
            total += len(group.steps)
            continue
        costs = []
        for a in group.loops:
            costs.append(points * sum(_vector_cost(context, s, a) for s in group.steps) * _waste(context, a))
        total += min(costs) + sum(4 for s in group.steps if s.is_fold)
    return total


def _loops_of(step: Step) -> tuple[IndexExpr, ...]:
    return tuple(a.extent for a in step.inner + tuple(r for r in step.red if r not in step.inner))


def _vector_cost(context: Context, step: Step, lane: Atom) -> float:
    """Cost of one vector of points when lanes run along `lane`: memory accesses and arithmetic."""
    reads = accesses(step.body)
    cost = sum(context.lanes if lane in moving else _walk_cost(context, e, lane) for _, e, moving in reads)
    if step.in_memory:
        cost += _walk_cost(context, step.address, lane)
    return cost + ARITHMETIC * min(step.body.size, 100)


def _walk_cost(context: Context, address: IndexExpr, lane: Atom) -> float:
    step = lane_step(address, lane, context.lanes)
    return 1.0 if step is ONE else 0.25 if step is ZERO else context.lanes


def _waste(context: Context, lane: Atom) -> float:
    """Vector lanes paid for each lane used."""
    n = _extent(lane.extent)
    return -(-n // context.lanes) * context.lanes / max(n, 1)


def _extent(expr: IndexExpr) -> int:
    n = expr.const()
    return TYPICAL if n is None else n


def _width(context: Context, position: int) -> int:
    """Rows in a block: enough for whole cache lines, few enough for every thread and for the local arrays.

    Where their number is known at run time only, the most that there may be.
    """
    lanes = context.lanes
    rows = context.kernel.rows
    others = product(tuple(a.extent for k, a in enumerate(rows) if k != position)).const() or 1
    pieces = -(-context.threads // others)
    known = rows[position].extent.const()
    most = MOST_COLUMNS if known is None else min(MOST_COLUMNS, -(-known // pieces))
    kept = sum(_extent(a.length) * WIDTH[a.dtype] for a in context.arrays.values() if a.shape)
    if kept:
        most = min(most, max(2 * lanes, context.target.machine.stack_bytes // kept))
    return max(-(-most // lanes), 1) * lanes
