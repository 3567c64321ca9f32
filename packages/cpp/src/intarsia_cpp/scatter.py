"""Scatters: the initial value in one pass over the output, then every point in turn folds its value in at its place.

An axis that is the very index of a dimension of the output, such as that of an embedding's features, is an own axis:
points that differ there write different elements. Threads share an own axis, and vector lanes run along one where
neighbours lie side by side in memory. All other axes keep their order, so each element is folded in eager's order, and
the result doesn't depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_cpp._body import Scope
from intarsia_cpp._context import Context
from intarsia_cpp._loops import lane_loops, nest
from intarsia_cpp._ops import element, expression
from intarsia_cpp._parallel import parallel_for
from intarsia_cpp._text import block, loop
from intarsia_loops.addresses import product
from intarsia_loops.program import Val, load
from intarsia_loops.vectors.walks import Points

__all__ = ["emit_points"]

# What one point does to the element `o` with its value `x`; NaN stays, and wins.
FOLDS = {
    "sum": "o = o + x;",
    "max": "o = x > o || x != x ? x : o;",
    "min": "o = x < o || x != x ? x : o;",
}
OPS = {"sum": "add", "max": "max", "min": "min"}


def emit_points(context: Context, points: Points) -> list[str]:
    """Return the loops over all points of a scatter."""
    split, lane = points.split, points.lane
    top = Scope(context, axes=() if split is None or split is lane else (split,))
    heads, first = _heads(context, points)
    bounds = ("start", "stop") if split is lane else None

    def point(scope: Scope, _: str) -> None:
        (_fold_vector if points.neighbours else _fold_each)(scope, points)

    inside = [a for a in points.loops if a is not split and a is not lane]
    lines = nest(top, inside, lambda scope: lane_loops(scope, lane, point, bounds=bounds))
    count = product(tuple(a.extent for a in points.loops))
    done = parallel_for(context, heads, [*first, *top.lines, *lines], points.share)
    return done if count.lo > 0 else block(f"if ({context.c(count)} > 0)", done)


def _heads(context: Context, points: Points) -> tuple[Sequence[str], Sequence[str]]:
    """The loops that threads share, and the statements that come first in them."""
    split = points.split
    if split is None:
        return (), ()
    extent = context.c(split.extent)
    if split is not points.lane:
        return (loop(context.name_of(split), "0", extent),), ()
    # each thread has one piece, whole vectors wide
    width = points.threads * context.lanes
    known = split.extent.const()
    whole = (
        f"({extent} + {width - 1})/{width}*{context.lanes}"
        if known is None
        else str(-(-known // width) * context.lanes)
    )
    first = f"const i64 stop = start + {whole} < {extent} ? start + {whole} : {extent};"
    return (loop("start", "0", extent, whole),), (first,)


# ---- one vector of points ---------------------------------------------------------------------------------------


def _fold_vector(scope: Scope, points: Points) -> None:
    """Lanes write neighbouring elements: read them, fold, write them back."""
    context, step = scope.context, points.step
    value = scope.value(points.value)
    pointer = _base(scope, step.out, points.moving)
    old = scope.read(load(step.out, (points.fixed,), step.dtype), pointer, points.fixed)
    new = scope.name(expression(OPS[step.kind.removeprefix("scatter_")], step.dtype, [old, value], context.lanes))
    where = f"{pointer} + {context.c(points.fixed)}"
    scope.lines.append(
        f"st({where}, {new.text});" if scope.tail is None else f"stt({where}, {new.text}, {scope.tail});"
    )


def _fold_each(scope: Scope, points: Points) -> None:
    """Lanes may write the same element: one after the other."""
    context, step = scope.context, points.step
    value = scope.name(scope.value(points.value))
    moves = points.moving is not None and scope.lane in context.axes_of(points.moving)
    position = ""
    if moves and points.moving is not None:
        position = f"{scope.name(scope.value(points.moving)).text}[l] + "
    pointer = _base(scope, step.out, None if moves else points.moving)
    c = element(step.dtype)
    if scope.tail is None:
        scope.lines.append("#pragma GCC unroll 16")
    scope.each_lane(
        f"{{ {c} &o = ({pointer})[{position}{scope.lane_address(points.fixed)}]; const {c} x = {value.text}[l]; "
        f"{FOLDS[step.kind.removeprefix('scatter_')]} }}"
    )


def _base(scope: Scope, buffer: str, moving: Val | None) -> str:
    """The output's pointer, past what depends on data and is the same for all lanes."""
    pointer = scope.context.pointer(buffer)
    return pointer if moving is None else f"{pointer} + {scope.name(scope.value(moving)).text}[0]"
