"""Kernels with inner loops: threads take rows, the steps of a row share loops, vector lanes run along the inner axes.

What a step of the row leaves for a later loop stays in a small array (in the first-level cache), what it leaves as one
number stays in a register.
"""

from __future__ import annotations

from intarsia_cpp._body import Scope
from intarsia_cpp._chains import RowLoops, in_parts, row_nest
from intarsia_cpp._context import Context
from intarsia_cpp._folds import Fold
from intarsia_cpp._frame import row_loops
from intarsia_cpp._loops import is_empty, lane_loops, nest
from intarsia_cpp._ops import Rep, element, number_text, vector
from intarsia_cpp._text import block, loop
from intarsia_loops.ops import identity_of
from intarsia_loops.vectors.walks import Inner, Rows

__all__ = ["emit_rows"]


def emit_rows(context: Context, rows: Rows) -> list[str]:
    """Return the statements of rows whose lanes run along inner axes."""
    row = Scope(context, axes=rows.rows)
    for inner in rows.inner:
        _emit(row, inner, rows.stored)
    heads = [loop(context.name_of(a), "0", context.c(a.extent)) for a in rows.rows]
    return row_loops(context, rows, heads, row.lines)


def _emit(row: Scope, inner: Inner, stored: frozenset[str]) -> None:
    """Write a nest of loops at the end of the row's statements."""
    match inner.kind:
        case "once":
            _once(row, inner)
        case "scan":
            row.lines += _scan(row, inner)
        case "along":
            row.lines += _fold_along(row, inner)
        case "across":
            row.lines += _fold_across(row, inner)
        case _:
            _shared_loop(row, inner, stored)


# ---- the kinds of nests ------------------------------------------------------------------------------------------


def _once(row: Scope, inner: Inner) -> None:
    """Statements that run once a row."""
    for step in inner.steps:
        rep = row.name(row.value(step.body))
        row.known[step.out] = rep
        if step.in_memory:
            row.store(step.out, step.address, rep)


def _shared_loop(row: Scope, inner: Inner, stored: frozenset[str]) -> None:
    """Maps and reductions in one nest of loops."""
    context = row.context
    folds = _folds(context, inner)

    def point(scope: Scope, u: str) -> None:
        for step in inner.steps:
            rep = scope.value(step.body)
            if step.is_fold:
                folds[step.out].update(scope, rep, u, masked=True)
                continue
            rep = scope.known[step.out] = scope.name(rep)
            if step.in_memory or step.out in stored:
                scope.store(step.out, step.address, rep)

    loops = RowLoops(inner, tuple(folds.values()), point)
    if inner.parts > 1:
        step = context.lanes if len(inner.loops) == 1 else 1
        row.lines += in_parts(context, inner, step, loops.folds, lambda bounds: row_nest(row, loops, bounds))
    else:
        row.lines += [line for fold in folds.values() for line in fold.declare()]
        row.lines += [] if is_empty(context, inner.loops) else row_nest(row, loops)
    for fold in folds.values():
        _finish(row, fold, inner.parts)


def _folds(context: Context, inner: Inner) -> dict[str, Fold]:
    return {s.out: Fold(context, s, context.temp("acc"), inner.unroll) for s in inner.steps if s.is_fold}


def _finish(row: Scope, fold: Fold, parts: int) -> None:
    """Combine the accumulators; the result is a number of the row."""
    context, step = row.context, fold.step
    scalar = context.temp("s")
    row.lines.append(f"const {fold.scalar_type()} {scalar} = {fold.result(parts)};")
    row.known[step.out] = row.name(fold.broadcast(scalar))
    if step.in_memory:
        row.store(step.out, step.address, row.known[step.out])


def _scan(row: Scope, inner: Inner) -> list[str]:
    """A running value, prefixes of a vector at a time."""
    context, outer = row.context, inner.outer
    (lane,), (step,) = inner.loops, inner.steps
    ctype, acc, lanes = vector(step.dtype, context.lanes), context.temp("acc"), context.lanes
    wide = "f64" if inner.carry == "wide" else element(step.dtype)
    what = step.kind.removeprefix("cum")
    run = f"halves_{what}" if wide == "f64" and lanes == 16 else f"running_{what}<{wide}x{lanes}>"

    def point(scope: Scope, u: str) -> None:
        x = scope.name(scope.value(step.body))
        scope.store(step.out, step.address, scope.name(Rep(f"{run}({x.text}, {acc})", step.dtype, ctype)))

    def fill(scope: Scope) -> list[str]:
        here = Scope(context, scope, barrier=lane.extent.lo < 1)
        start = f"{wide} {acc} = {number_text(identity_of(step.kind, step.dtype), step.dtype)};"
        loops = lane_loops(here, lane, point)
        lines = [*here.lines, *loops]
        return [start, *(block(f"if ({context.c(lane.extent)} > 0)", lines) if here.barrier else lines)]

    return nest(row, outer, fill) if outer else block("", fill(row))


def _fold_along(row: Scope, inner: Inner) -> list[str]:
    """A reduction for every point of inner axes; lanes run along the reduced axes."""
    context = row.context
    (step,) = inner.steps

    def fill(scope: Scope) -> list[str]:
        here = Scope(context, scope, barrier=True)
        fold = _folds(context, inner)[step.out]
        here.lines += fold.declare()
        if not is_empty(context, inner.loops):

            def point(s: Scope, u: str) -> None:
                fold.update(s, s.value(step.body), u, masked=True)

            here.lines += row_nest(here, RowLoops(inner, (fold,), point))
        scalar = context.temp("s")
        here.lines.append(f"const {fold.scalar_type()} {scalar} = {fold.result()};")
        here.store(step.out, step.address, fold.broadcast(scalar))
        return here.lines

    return nest(row, inner.outer, fill)


def _fold_across(row: Scope, inner: Inner) -> list[str]:
    """A reduction for every point of inner axes; lanes run along one of these, reduced axes are plain loops."""
    context = row.context
    (step,) = inner.steps
    *outer, lane = inner.outer

    def point(scope: Scope, u: str) -> None:
        fold = Fold(context, step, context.temp("acc"), 1)
        inside = Scope(context, scope, barrier=True)

        def fill(at: Scope) -> list[str]:
            body = Scope(context, at, barrier=True)
            fold.update(body, body.value(step.body), "0", masked=False)
            return body.lines

        lines = nest(inside, inner.loops, fill)
        scope.lines += [*fold.declare(), *inside.lines, *lines]
        scope.store(step.out, step.address, Rep(f"{fold.name}[0]", step.dtype, fold.ctype))

    return nest(row, outer, lambda scope: lane_loops(scope, lane, point))
