"""Kernels with inner loops: threads take rows, the steps of a row share loops, vector lanes run along the inner axes.

What a step of the row leaves for a later loop stays in a small array (in the first-level cache), what it leaves as one
number stays in a register.
"""

from __future__ import annotations

from intarsia_cpp._body import Scope
from intarsia_cpp._chains import RowLoops, in_parts, row_nest
from intarsia_cpp._context import Context
from intarsia_cpp._folds import Fold
from intarsia_cpp._frame import local_buffers, row_loops
from intarsia_cpp._loops import is_empty, lane_loops, nest
from intarsia_cpp._ops import Rep, element, number_text, vector
from intarsia_cpp._parallel import SERIAL_WORK, pragma
from intarsia_cpp._text import block, loop
from intarsia_loops.addresses import product
from intarsia_loops.index import Atom, axis, lift
from intarsia_loops.ops import identity_of
from intarsia_loops.vectors.axes import collapse, unit_stride_score
from intarsia_loops.vectors.groups import Group, group_steps
from intarsia_loops.vectors.steps import Step

__all__ = ["emit_rows"]

UNROLL = 4


def emit_rows(context: Context) -> list[str]:
    """Return the body of the kernel function."""
    groups = group_steps(context.steps)
    stored = local_buffers(groups)
    row = Scope(context, axes=context.kernel.rows)
    for group in groups:
        _emit_group(row, group, stored)
    heads = [loop(context.name_of(a), "0", context.c(a.extent)) for a in context.kernel.rows]
    return row_loops(context, heads, groups, stored, row.lines, parallel=not few_rows(context))


def few_rows(context: Context) -> bool:
    """Whether there are fewer rows than threads, so that threads share the loops of a row instead."""
    rows = product(tuple(a.extent for a in context.kernel.rows)).const()
    return context.threads > 1 and rows is not None and rows < context.threads


def _emit_group(row: Scope, group: Group, stored: frozenset[str]) -> None:
    """Write the loops of a group at the end of the row's statements."""
    step = group.steps[0]
    if not group.loops:
        _once(row, group)
    elif step.is_scan:
        row.lines += _scan(row, step)
    elif step.is_fold and step.inner:
        row.lines += _inner_folds(row, step)
    else:
        _shared_loop(row, group, stored)


# ---- the kinds of groups -----------------------------------------------------------------------------------------


def _once(row: Scope, group: Group) -> None:
    """Statements that run once a row."""
    for step in group.steps:
        rep = row.name(row.value(step.body))
        row.known[step.out] = rep
        if step.in_memory:
            row.store(step.out, step.address, rep)


def _shared_loop(row: Scope, group: Group, stored: frozenset[str]) -> None:
    """Maps and reductions in one nest of loops."""
    context = row.context
    loops, steps = _ordered(group, context.lanes)
    folds = _folds(context, steps, loops)

    def point(scope: Scope, u: str) -> None:
        for step in steps:
            rep = scope.value(step.body)
            if step.is_fold:
                folds[step.out].update(scope, rep, u, masked=True)
                continue
            rep = scope.known[step.out] = scope.name(rep)
            if step.in_memory or step.out in stored:
                scope.store(step.out, step.address, rep)

    nest_ = RowLoops(loops, tuple(folds.values()), point, context.cost(steps))
    parts = context.threads if few_rows(context) and _is_large(nest_) else 1
    if parts > 1:
        points = product(tuple(a.extent for a in loops))
        row.lines += in_parts(
            context, loops[0], context.lanes if len(loops) == 1 else 1, nest_.folds,
            pragma(context, "parallel for", 1, points, nest_.cost), lambda bounds: row_nest(row, nest_, bounds),
        )  # fmt: skip
    else:
        row.lines += [line for fold in folds.values() for line in fold.declare()]
        row.lines += [] if is_empty(context, loops) else row_nest(row, nest_)
    for fold in folds.values():
        _finish(row, fold, parts)


def _is_large(loops: RowLoops) -> bool:
    points = product(tuple(a.extent for a in loops.loops)).const()
    return points is None or points * loops.cost >= SERIAL_WORK


def _folds(context: Context, steps: tuple[Step, ...], loops: tuple[Atom, ...]) -> dict[str, Fold]:
    extent = loops[-1].extent.const()
    count = UNROLL if extent is None or extent >= UNROLL * context.lanes else 1
    return {s.out: Fold(context, s, context.temp("acc"), count) for s in steps if s.is_fold}


def _finish(row: Scope, fold: Fold, parts: int) -> None:
    """Combine the accumulators; the result is a number of the row."""
    context, step = row.context, fold.step
    scalar = context.temp("s")
    row.lines.append(f"const {fold.scalar_type()} {scalar} = {fold.result(parts)};")
    row.known[step.out] = row.name(fold.broadcast(scalar))
    if step.in_memory:
        row.store(step.out, step.address, row.known[step.out])


def _scan(row: Scope, step: Step) -> list[str]:
    """A running value, prefixes of a vector at a time. f32 runs in f64, as in eager."""
    context = row.context
    (lane,) = step.red
    outer = tuple(a for a in step.inner if a is not lane)
    ctype, acc, lanes = vector(step.dtype, context.lanes), context.temp("acc"), context.lanes
    wide = "f64" if step.dtype == "f32" else element(step.dtype)
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


def _inner_folds(row: Scope, step: Step) -> list[str]:
    """A reduction for every point of inner axes, lanes along the axis that memory suits best."""
    best = max(step.inner + step.red, key=lambda a: (unit_stride_score(a, (step,), row.context.lanes), a in step.red))
    return _fold_along(row, step) if best in step.red or step.kind.startswith("arg") else _fold_across(row, step, best)


def _fold_along(row: Scope, step: Step) -> list[str]:
    """Lanes run along the reduced axes."""
    context = row.context

    def fill(scope: Scope) -> list[str]:
        here = Scope(context, scope, barrier=True)
        loops, (moved,) = _ordered(Group(step.red, (step,)), context.lanes)
        fold = next(iter(_folds(context, (moved,), loops).values()))
        here.lines += fold.declare()
        if not is_empty(context, loops):

            def point(s: Scope, u: str) -> None:
                fold.update(s, s.value(moved.body), u, masked=True)

            here.lines += row_nest(here, RowLoops(loops, (fold,), point))
        scalar = context.temp("s")
        here.lines.append(f"const {fold.scalar_type()} {scalar} = {fold.result()};")
        here.store(step.out, step.address, fold.broadcast(scalar))
        return here.lines

    return nest(row, step.inner, fill)


def _fold_across(row: Scope, step: Step, lane: Atom) -> list[str]:
    """Lanes run along an inner axis, reduced axes are plain loops."""
    context = row.context

    def point(scope: Scope, u: str) -> None:
        fold = Fold(context, step, context.temp("acc"), 1)
        inside = Scope(context, scope, barrier=True)

        def fill(at: Scope) -> list[str]:
            body = Scope(context, at, barrier=True)
            fold.update(body, body.value(step.body), "0", masked=False)
            return body.lines

        lines = nest(inside, step.red, fill)
        scope.lines += [*fold.declare(), *inside.lines, *lines]
        scope.store(step.out, step.address, Rep(f"{fold.name}[0]", step.dtype, fold.ctype))

    outer = tuple(a for a in step.inner if a is not lane)
    return nest(row, outer, lambda scope: lane_loops(scope, lane, point))


def _ordered(group: Group, lanes: int) -> tuple[tuple[Atom, ...], tuple[Step, ...]]:
    """Loops with the one that memory suits best innermost, merged where possible, and the steps over them.

    Searches for a position keep their order: the first of equals is the one with the least number.
    """
    loops = list(group.loops)
    if not any(s.kind.startswith("arg") for s in group.steps):
        best = max(loops, key=lambda a: (unit_stride_score(a, group.steps, lanes), loops.index(a)))
        loops.remove(best)
        loops.append(best)
    merged, env = collapse(loops, [e for s in group.steps for e in s.addresses()])
    return merged or (axis("r0", lift(1)),), tuple(s.substituted(env) for s in group.steps)
