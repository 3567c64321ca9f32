"""Kernels whose steps are all maps over the rows: one pass over memory, cut into pieces for threads."""

from __future__ import annotations

from intarsia_cpp._body import Scope
from intarsia_cpp._context import Context
from intarsia_cpp._loops import lane_loops
from intarsia_cpp._parallel import parallel_for
from intarsia_cpp._text import block, loop
from intarsia_cpp.transpose import emit_tiled, write_point
from intarsia_loops.addresses import product
from intarsia_loops.vectors.walks import Maps

__all__ = ["emit_pointwise"]


def emit_pointwise(context: Context, maps: Maps) -> list[str]:
    """Return the statements of a pass over memory."""
    if maps.tiling is not None:
        return emit_tiled(context, maps, maps.tiling)
    *outer, lane = maps.loops
    extent = context.c(lane.extent)
    chunk = _chunk(context, maps)
    row = Scope(context, axes=outer)
    bounds = ("start", "stop") if chunk else None
    lines = lane_loops(row, lane, lambda scope, _: write_point(scope, maps.steps), bounds=bounds)
    heads = [loop(context.name_of(a), "0", context.c(a.extent)) for a in outer]
    if chunk:
        heads.append(loop("start", "0", extent, chunk))
        lines = [f"const i64 stop = start + {chunk} < {extent} ? start + {chunk} : {extent};", *lines]
    points = product(tuple(a.extent for a in maps.loops))
    nest = parallel_for(context, heads, [*row.lines, *lines], maps.share)
    return nest if points.lo > 0 else block(f"if ({context.c(points)} > 0)", nest)


def _chunk(context: Context, maps: Maps) -> str:
    """Elements of a piece of the innermost loop; "" where it is whole."""
    if not maps.pieces:
        return ""
    lane, width = maps.loops[-1], maps.pieces * maps.lanes
    extent = lane.extent.const()
    if extent is None:
        return f"(({context.c(lane.extent)} + {width - 1})/{width}*{maps.lanes})"
    return str(max(-(-extent // width) * maps.lanes, maps.lanes))
