"""Scatters: the initial value in one pass over the output, then every point in turn folds its value in at its place.

An axis that is the very index of a dimension of the output, such as that of an embedding's features, is an own axis:
points that differ there write different elements. Threads share an own axis, and vector lanes run along one where
neighbours lie side by side in memory. All other axes keep their order, so each element is folded in eager's order, and
the result doesn't depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from intarsia_cpp._body import Scope
from intarsia_cpp._context import Context
from intarsia_cpp._loops import lane_loops, nest
from intarsia_cpp._ops import element, expression
from intarsia_cpp._parallel import parallel_for
from intarsia_cpp._text import block, loop
from intarsia_cpp.pointwise import emit_pointwise
from intarsia_ir.records import Target
from intarsia_loops.addresses import product
from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr, axis, lift
from intarsia_loops.program import Buffer, Kernel, Val, index_value, load, scatter_of, val
from intarsia_loops.rewrites import at, postorder
from intarsia_loops.vectors.axes import collapse
from intarsia_loops.vectors.steps import Step

__all__ = ["emit_scatter", "is_scatter"]

# What one point does to the element `o` with its value `x`; NaN stays, and wins.
FOLDS = {
    "sum": "o = o + x;",
    "max": "o = x > o || x != x ? x : o;",
    "min": "o = x < o || x != x ? x : o;",
}
OPS = {"sum": "add", "max": "max", "min": "min"}


@dataclass(frozen=True, slots=True)
class _Points:
    """The points of a scatter, flat.

    Args:
        loops: Their loops, in order.
        own: Those of which each value has elements of its own.
        value: What a point folds in.
        moving: The part of its element's number that depends on data, if any.
        fixed: The rest of that number.
    """

    loops: tuple[Atom, ...]
    own: frozenset[Atom]
    value: Val
    moving: Val | None
    fixed: IndexExpr


def is_scatter(kernel: Kernel) -> bool:
    """Whether the kernel is a scatter, and nothing else."""
    return len(kernel.steps) == 1 and scatter_of(kernel.steps[0]) is not None


def emit_scatter(kernel: Kernel, buffers: Mapping[str, Buffer], target: Target) -> tuple[Context, list[str]]:
    """Return the body of the function for a scatter, and the context that names its parameters.

    Args:
        kernel: The scatter, in canonical form.
        buffers: Layout of every buffer in memory.
        target: Instruction set and number of threads.
    """
    (step,) = kernel.steps
    parts = scatter_of(step)
    assert parts is not None, "not a scatter"
    start = replace(step, red=(), kind="map", body=parts.initial)
    first = Context(Kernel(step.axes, (start,)), buffers, target)
    if product(tuple(a.extent for a in step.axes)).const() == 0:
        return first, []
    filled = emit_pointwise(first)
    if product(tuple(a.extent for a in step.red)).const() == 0:
        return first, filled
    context = Context(kernel, buffers, target)
    context.share_parameters(first)
    return first, [*block("", filled), *block("", _emit_points(context, buffers[step.out]))]


def _emit_points(context: Context, layout: Buffer) -> list[str]:
    """The loops over all points."""
    (step,) = context.steps
    points = _collapsed(_flat(step, layout))
    lane, in_vectors = _lane(points)
    split = _split(context, points, lane)
    top = Scope(context, axes=() if split is None or split is lane else (split,))
    heads, first = _heads(context, split, lane)
    bounds = ("start", "stop") if split is lane else None

    def point(scope: Scope, _: str) -> None:
        (_fold_vector if in_vectors else _fold_each)(scope, step, points)

    inside = [a for a in points.loops if a is not split and a is not lane]
    lines = nest(top, inside, lambda scope: lane_loops(scope, lane, point, bounds=bounds))
    count = product(tuple(a.extent for a in points.loops))
    done = parallel_for(context, heads, [*first, *top.lines, *lines], count, context.cost((step,)))
    return done if count.lo > 0 else block(f"if ({context.c(count)} > 0)", done)


# ---- where points write -----------------------------------------------------------------------------------------


def _flat(step: Step, layout: Buffer) -> _Points:
    """The points with one element number instead of one index per dimension."""
    _, value, *places = step.body.args
    fixed, moving, own = ZERO, None, set()
    for place, stride in zip(places, layout.strides, strict=True):
        if place.op == "index":
            fixed = fixed + place.args[0] * stride
            own |= {a for a in step.red if place.args[0] is lift(a)}
            continue
        term = place if stride is ONE else val("mul", place, index_value(stride), dtype="i64")
        moving = term if moving is None else val("add", moving, term, dtype="i64")
    return _Points(step.red, frozenset(own), value, moving, fixed)


def _collapsed(points: _Points) -> _Points:
    """Neighbouring loops merged where every access walks them as one: both are own axes, or neither is."""
    addresses = [points.fixed]
    for body in (points.value, *([points.moving] if points.moving is not None else [])):
        for v in postorder(body):
            entries = v.args if v.op == "index" else v.args[1] if v.op in ("load", "gather") else ()
            addresses += [e for e in entries if isinstance(e, IndexExpr)]
    loops, env = collapse(points.loops, addresses)
    own = {a for a in loops if a in points.own}
    own |= {a for old in points.own for a in env.get(old, ZERO).axes()}
    moving = None if points.moving is None else at(points.moving, env)
    return _Points(loops, frozenset(own), at(points.value, env), moving, points.fixed.subst(env))


def _lane(points: _Points) -> tuple[Atom, bool]:
    """The loop for vector lanes, and whether the elements that a vector writes are neighbours."""
    data = frozenset[Atom]() if points.moving is None else _axes_of(points.moving)
    for a in reversed(points.loops):
        split = points.fixed.coef(a)
        if a in points.own and a not in data and split is not None and split[0] is ONE:
            return a, True
    return (points.loops[-1] if points.loops else axis("r0", 1)), False


def _axes_of(body: Val) -> frozenset[Atom]:
    found: set[Atom] = set()
    for v in postorder(body):
        entries = v.args if v.op == "index" else v.args[1] if v.op in ("load", "gather") else ()
        found.update(*(e.axes() for e in entries if isinstance(e, IndexExpr)))
    return frozenset(found)


# ---- threads ----------------------------------------------------------------------------------------------------


def _split(context: Context, points: _Points, lane: Atom) -> Atom | None:
    """The own axis that threads share; None where there is none that is long enough."""
    if context.threads == 1:
        return None
    for a in points.loops:
        known = a.extent.const()
        if a in points.own and a is not lane and (known is None or known >= context.threads):
            return a
    known = lane.extent.const()
    return lane if lane in points.own and (known is None or known > context.lanes) else None


def _heads(context: Context, split: Atom | None, lane: Atom) -> tuple[Sequence[str], Sequence[str]]:
    """The loops that threads share, and the statements that come first in them."""
    if split is None:
        return (), ()
    extent = context.c(split.extent)
    if split is not lane:
        return (loop(context.name_of(split), "0", extent),), ()
    # each thread has one piece, whole vectors wide
    width = context.threads * context.lanes
    known = split.extent.const()
    whole = (
        f"({extent} + {width - 1})/{width}*{context.lanes}"
        if known is None
        else str(-(-known // width) * context.lanes)
    )
    first = f"const i64 stop = start + {whole} < {extent} ? start + {whole} : {extent};"
    return (loop("start", "0", extent, whole),), (first,)


# ---- one vector of points ---------------------------------------------------------------------------------------


def _fold_vector(scope: Scope, step: Step, points: _Points) -> None:
    """Lanes write neighbouring elements: read them, fold, write them back."""
    context = scope.context
    value = scope.value(points.value)
    pointer = _base(scope, step.out, points.moving)
    old = scope.read(load(step.out, (points.fixed,), step.dtype), pointer, points.fixed)
    new = scope.name(expression(OPS[step.kind.removeprefix("scatter_")], step.dtype, [old, value], context.lanes))
    where = f"{pointer} + {context.c(points.fixed)}"
    scope.lines.append(
        f"st({where}, {new.text});" if scope.tail is None else f"stt({where}, {new.text}, {scope.tail});"
    )


def _fold_each(scope: Scope, step: Step, points: _Points) -> None:
    """Lanes may write the same element: one after the other."""
    context = scope.context
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
