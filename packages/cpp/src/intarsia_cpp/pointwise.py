"""Kernels whose steps are all maps over the rows: one pass over memory, loops merged, cut into pieces for threads."""

from __future__ import annotations

from intarsia_cpp._body import Scope
from intarsia_cpp._context import Context
from intarsia_cpp._loops import lane_loops
from intarsia_cpp._parallel import parallel_for
from intarsia_cpp._text import block, loop
from intarsia_cpp.transpose import emit_tiled, find_tiling, write_point
from intarsia_loops.addresses import product
from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr, axis
from intarsia_loops.vectors.axes import collapse, separate, unit_stride_score
from intarsia_loops.vectors.steps import Step

__all__ = ["emit_pointwise", "is_pointwise", "is_tiled"]


def is_pointwise(context: Context) -> bool:
    """Whether every step is a map over exactly the rows."""
    return all(s.kind == "map" and not s.inner for s in context.steps)


def is_tiled(context: Context) -> bool:
    """Whether a map over the rows transposes operands or results in registers."""
    axes, steps = ordered_loops(context.kernel.rows, context.steps, context.lanes)
    return len(axes) > 1 and find_tiling(context, axes, steps) is not None


def emit_pointwise(context: Context) -> list[str]:
    """Return the body of the kernel function."""
    axes, steps = ordered_loops(context.kernel.rows, context.steps, context.lanes)
    tiling = find_tiling(context, axes, steps) if len(axes) > 1 else None
    if tiling is not None:
        return emit_tiled(context, axes, steps, tiling)
    *outer, lane = axes or (axis("i0", 1),)
    cost = context.cost(steps)
    extent = context.c(lane.extent)
    chunk = _chunk(context, outer, lane)
    row = Scope(context, axes=outer)
    bounds = ("start", "stop") if chunk else None
    lines = lane_loops(row, lane, lambda scope, _: write_point(scope, steps), bounds=bounds)
    heads = [loop(context.name_of(a), "0", context.c(a.extent)) for a in outer]
    if chunk:
        extent = context.c(lane.extent)
        heads.append(loop("start", "0", extent, chunk))
        lines = [f"const i64 stop = start + {chunk} < {extent} ? start + {chunk} : {extent};", *lines]
    points = product(tuple(a.extent for a in axes))
    nest = parallel_for(context, heads, [*row.lines, *lines], points, cost)
    return nest if points.lo > 0 else block(f"if ({context.c(points)} > 0)", nest)


def ordered_loops(
    rows: tuple[Atom, ...], steps: tuple[Step, ...], lanes: int
) -> tuple[tuple[Atom, ...], tuple[Step, ...]]:
    """Return the loops in the order in which they walk memory, merged where possible, and the steps over them.

    The innermost loop is the one that most accesses walk with stride 1, the first written buffer deciding ties and
    the order of the others.
    """
    written = [s.address for s in steps if s.in_memory] or [steps[0].address]
    addresses = [e for s in steps for e in s.addresses()]
    axes = [a for a in rows if a.extent is not ONE]
    env: dict[Atom, IndexExpr] = {a: ZERO for a in rows if a.extent is ONE}
    axes, parts = separate(axes, addresses)
    if parts:
        env |= parts
        steps = tuple(s.substituted(parts) for s in steps)
        written = [s.address for s in steps if s.in_memory] or [steps[0].address]
        addresses = [e for s in steps for e in s.addresses()]

    def stride(a: Atom) -> int:
        split = written[0].coef(a)
        return 0 if split is None else split[0].hi

    axes.sort(key=lambda a: -stride(a))
    if axes:
        best = max(axes, key=lambda a: (unit_stride_score(a, steps, lanes), axes.index(a)))
        axes.remove(best)
        axes.append(best)
    merged, more = collapse(axes, [e.subst(env) for e in addresses])
    env |= more
    return merged, tuple(s.substituted(env) for s in steps)


def _chunk(context: Context, outer: list[Atom], lane: Atom) -> str:
    """Elements of the innermost loop that one thread takes at a time; "" when the outer loops feed the threads."""
    count = product(tuple(a.extent for a in outer)).const()
    if context.threads == 1 or count is None or count >= 4 * context.threads:
        return ""
    even = context.threads % count == 0
    lanes, pieces = context.lanes, -(-context.threads * (1 if even else 4) // count)
    extent = lane.extent.const()
    if extent is None:
        return f"(({context.c(lane.extent)} + {pieces * lanes - 1})/{pieces * lanes}*{lanes})"
    return str(max(-(-extent // (pieces * lanes)) * lanes, lanes))
