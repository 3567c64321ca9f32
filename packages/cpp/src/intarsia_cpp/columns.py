"""Kernels that walk memory best across rows: vector lanes are neighbouring rows, inner loops are plain loops.

Sums over the first dimension, softmax over a middle one, scans along a strided axis. A thread takes a block of rows
side by side, so that it reads several cache lines of each line of memory; what a row keeps is a vector per 16 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from intarsia_cpp._body import Scope
from intarsia_cpp._chains import WHOLE, Bounds, in_parts
from intarsia_cpp._context import Context
from intarsia_cpp._folds import Fold, combine_text
from intarsia_cpp._frame import row_loops
from intarsia_cpp._loops import is_empty, nest
from intarsia_cpp._ops import Rep, number_text, vector
from intarsia_cpp._text import block, loop
from intarsia_loops.addresses import product
from intarsia_loops.index import Atom, lift
from intarsia_loops.ops import FLOATS, identity_of
from intarsia_loops.rewrites import at
from intarsia_loops.vectors.steps import Block, Step
from intarsia_loops.vectors.walks import Inner, Rows

__all__ = ["emit_columns"]


@dataclass
class _Columns:
    """State while the kernel is emitted.

    Args:
        context: The kernel.
        lane: The row axis that runs over the lanes.
        count: Vectors in a block.
        stored: Local buffers that need an array.
        numbers: What earlier loops left for each row: buffer -> vector number q of the block.
    """

    context: Context
    lane: Atom
    count: int
    stored: frozenset[str]
    numbers: dict[str, Rep] = field(default_factory=dict)

    @property
    def used(self) -> str | None:
        """C name of the number of vectors in use, where the last block isn't the only smaller one."""
        return None if self.lane.extent.const() is not None else "vectors"


def emit_columns(context: Context, columns: Rows, side_by_side: Block) -> list[str]:
    """Return the statements of rows that are walked side by side, one in each lane."""
    rows, start, width = columns.rows, side_by_side.start, side_by_side.width
    lane = rows[side_by_side.position]
    outer = tuple(a for a in rows if a is not lane)
    state = _Columns(context, lane, width // context.lanes, columns.stored)
    place = Scope(context, axes=(*outer, start))
    for k, inner in enumerate(columns.inner):
        later = {v.args[0] for i in columns.inner[k + 1 :] for s in i.steps for v in s.body.loads}
        _emit(state, place, inner, later)
    heads = [loop(context.name_of(a), "0", context.c(a.extent)) for a in outer]
    first, extent = context.name_of(start), context.c(lane.extent)
    step = str(width) if state.used is None else "wide"
    heads.append(loop(first, "0", extent, step))
    bounds = [f"const i64 stop = {first} + {step} < {extent} ? {first} + {step} : {extent};"]
    if state.used is None:
        return row_loops(context, columns, heads, [*bounds, *place.lines])
    bounds.append(f"const i64 {state.used} = (stop - {first} + {context.lanes - 1}) / {context.lanes};")
    others = context.c(product(tuple(a.extent for a in outer)))
    wide = f"const i64 wide = block_width({extent}, {others}, {columns.threads}, {context.lanes}, {width});"
    return [wide, *row_loops(context, columns, heads, [*bounds, *place.lines])]


def _emit(state: _Columns, place: Scope, inner: Inner, later: set[str]) -> None:
    match inner.kind:
        case "once":
            _once(state, place, inner, later)
        case "scan":
            _scan(state, place, inner)
        case "along":
            _inner_folds(state, place, inner)
        case "folds":
            _folds(state, place, inner)
        case _:
            _shared_loop(state, place, inner)


def _each_vector(state: _Columns, parent: Scope, point: Callable[[Scope], None]) -> list[str]:
    """Statements for every vector of the block: `q` is its number, rows past the last are masked."""
    context, lane, lanes = state.context, state.lane, state.context.lanes
    name, extent = context.name_of(lane), lane.extent.const()
    at_ = f"{name}_"

    def body(tail: str | None, first: list[str]) -> list[str]:
        scope = Scope(context, parent, (lane,), lane, tail)
        scope.known |= state.numbers
        point(scope)
        return [f"const i64 {name} = {at_};", *first, *scope.lines]

    lines = [f"i64 {at_} = {context.name_of(_start(context))};", "int q = 0;"]
    if extent is None or extent >= lanes:
        lines += block(f"for (; {at_} + {lanes} <= stop; {at_} += {lanes}, q++)", body(None, []))
    if extent is None or extent % lanes:
        lines += block(f"if ({at_} < stop)", body("n", [f"const int n = stop - {at_};"]))
    return block("", lines)


def _start(context: Context) -> Atom:
    assert context.block is not None
    return context.block.start


def _once(state: _Columns, place: Scope, inner: Inner, later: set[str]) -> None:
    """Statements that run once a row."""
    kept: dict[str, tuple[str, Rep]] = {}

    def point(scope: Scope) -> None:
        for step in inner.steps:
            rep = scope.known[step.out] = scope.name(scope.value(step.body))
            if step.in_memory:
                scope.store(step.out, step.address, rep)
            if step.out in later:
                name, _ = kept.setdefault(step.out, (state.context.temp("row"), rep))
                scope.lines.append(f"{name}[q] = {rep.text};")

    lines = _each_vector(state, place, point)
    place.lines += [f"{rep.ctype} {name}[{state.count}];" for name, rep in kept.values()]
    place.lines += lines
    state.numbers |= {out: Rep(f"{name}[q]", rep.dtype, rep.ctype) for out, (name, rep) in kept.items()}


def _shared_loop(state: _Columns, place: Scope, inner: Inner) -> None:
    """Maps, perhaps with reductions, in one nest of loops."""
    folds = {s.out: _fold(state, s) for s in inner.steps if s.is_fold}

    def point(scope: Scope) -> None:
        for step in inner.steps:
            rep = scope.value(step.body)
            if step.is_fold:
                folds[step.out].update(scope, rep, "q", masked=False)
                continue
            rep = scope.known[step.out] = scope.name(rep)
            if step.in_memory or step.out in state.stored:
                scope.store(step.out, step.address, rep)

    place.lines += [line for f in folds.values() for line in f.declare()]
    if not is_empty(state.context, inner.loops):
        place.lines += _in_chains(
            state, place, inner, list(folds.values()), lambda scope, _: _each_vector(state, scope, point)
        )
    _finish(state, place, list(folds.values()))


def _folds(state: _Columns, place: Scope, inner: Inner) -> None:
    """Reductions alone: several lines of memory in one sweep."""
    context, loops = state.context, inner.loops
    folds = [_fold(state, s) for s in inner.steps]

    def point(scope: Scope, lines_at_once: int) -> None:
        for f in folds:
            parts = [scope.value(at(f.step.body, {loops[-1]: lift(loops[-1]) + u})) for u in range(lines_at_once)]
            f.update(scope, _tree(f, parts), "q", masked=False)

    def fill(scope: Scope, n: int) -> list[str]:
        return _each_vector(state, scope, lambda inside: point(inside, n))

    if inner.parts > 1:
        place.lines += in_parts(
            context, inner, 1, folds, lambda bounds: _in_chains(state, place, inner, folds, fill, bounds)
        )
    else:
        place.lines += [line for f in folds for line in f.declare()]
        place.lines += [] if is_empty(context, loops) else _in_chains(state, place, inner, folds, fill)
    _finish(state, place, folds)


def _tree(fold: Fold, parts: list[Rep]) -> Rep:
    """The values of several lines folded into one."""
    while len(parts) > 1:
        pairs = [
            Rep(f"({combine_text(fold.step.kind, fold.dtype, a.text, b.text)})", a.dtype, a.ctype)
            for a, b in zip(parts[::2], parts[1::2], strict=False)
        ]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def _in_chains(
    state: _Columns,
    place: Scope,
    inner: Inner,
    folds: list[Fold],
    fill: Callable[[Scope, int], list[str]],
    bounds: Bounds = WHOLE,
) -> list[str]:
    """The loops around sweeps; sums of many floats in two levels, because the error grows with the length of a chain.

    Args:
        state: The kernel.
        place: Scope around the loops.
        inner: The nest.
        folds: Its reductions.
        fill: Statements of so many lines, at the innermost loop's variable.
        bounds: Loop variable -> C text of its first and past-the-last value, where it isn't the whole extent.
    """
    context, loops, split = state.context, inner.loops, inner.cut
    *outer, last_loop = loops
    sums = [f for f in folds if inner.chain and _is_float_sum(f.step)]
    totals = {f.name: context.temp("total") for f in sums}
    flush = [line for f in sums for line in f.flush(totals[f.name])]

    low, high = bounds.get(last_loop, ("0", context.c(last_loop.extent)))
    exact = split or last_loop in bounds

    def lines_of(scope: Scope) -> list[str]:
        return _lines(scope, last_loop, inner.unroll, fill, ("first", "last") if split else (low, high), exact)

    def around(scope: Scope) -> list[str]:
        if not split:
            return [*lines_of(scope), *flush]
        last = f"const i64 last = first + {inner.length} < {high} ? first + {inner.length} : {high};"
        return block(loop("first", low, high, inner.length), [last, *lines_of(scope), *flush])

    maybe_empty = any(a.extent.lo < 1 for a in loops)
    parent = Scope(context, place, barrier=True) if maybe_empty else place
    body = nest(parent, outer, around, bounds)
    if maybe_empty:
        condition = " && ".join(f"{context.c(a.extent)} > 0" for a in loops if a.extent.lo < 1)
        body = block(f"if ({condition})", [*parent.lines, *body])
    for f in sums:
        body = [*f.start(totals[f.name]), *body, *f.take(totals[f.name])]
    return body


def _lines(
    parent: Scope, inner: Atom, sweep: int, fill: Callable[[Scope, int], list[str]], bounds: tuple[str, str], part: bool
) -> list[str]:
    """The innermost loop: whole sweeps, then line by line."""
    context, name = parent.context, parent.context.name_of(inner)
    extent = None if part else inner.extent.const()
    lines = [f"i64 {name} = {bounds[0]};"]
    for n in (sweep, 1) if sweep > 1 else (1,):
        if extent is not None and (extent < n or (n < sweep and extent % sweep == 0)):
            continue
        scope = Scope(context, parent, (inner,))
        body = fill(scope, n)
        lines += block(f"for (; {name} + {n} <= {bounds[1]}; {name} += {n})", [*scope.lines, *body])
    return block("", lines)


def _finish(state: _Columns, place: Scope, folds: list[Fold]) -> None:
    """Write results to memory, and keep them for later loops."""

    def point(scope: Scope) -> None:
        for f in folds:
            if f.step.in_memory:
                scope.store(f.step.out, f.step.address, f.vector("q"))

    if any(f.step.in_memory for f in folds):
        place.lines += _each_vector(state, place, point)
    state.numbers |= {f.step.out: f.vector("q") for f in folds}


def _inner_folds(state: _Columns, place: Scope, inner: Inner) -> None:
    """A reduction for every point of inner axes."""
    context = state.context
    (step,) = inner.steps
    fold = _fold(state, step)

    def fill(scope: Scope) -> list[str]:
        here = Scope(context, scope, barrier=True)

        def point(inside: Scope) -> None:
            fold.update(inside, inside.value(step.body), "q", masked=False)

        lines = []
        if not is_empty(context, inner.loops):
            lines = _in_chains(state, here, inner, [fold], lambda s, _: _each_vector(state, s, point))
        store = _each_vector(state, here, lambda inside: inside.store(step.out, step.address, fold.vector("q")))
        return [*fold.declare(), *here.lines, *lines, *store]

    place.lines += nest(place, inner.outer, fill) if not is_empty(context, inner.outer) else []


def _scan(state: _Columns, place: Scope, inner: Inner) -> None:
    """A running value, perhaps with its rounding errors beside it."""
    context = state.context
    (scanned,), (step,) = inner.loops, inner.steps
    acc, ctype = context.temp("acc"), vector(step.dtype, context.lanes)
    compensated = inner.carry == "errors"
    names = [acc, f"{acc}_error"] if compensated else [acc]

    def point(scope: Scope) -> None:
        x = scope.name(scope.value(step.body)).text
        if compensated:
            scope.lines.append(f"two_sum({acc}[q], {acc}_error[q], {x});")
            scope.store(step.out, step.address, Rep(f"corrected({acc}[q], {acc}_error[q])", step.dtype, ctype))
            return
        scope.lines.append(f"{acc}[q] = {combine_text(step.kind, step.dtype, f'{acc}[q]', x)};")
        scope.store(step.out, step.address, Rep(f"{acc}[q]", step.dtype, ctype))

    def fill(scope: Scope) -> list[str]:
        here = Scope(context, scope, barrier=True)
        body = nest(here, (scanned,), lambda s: _each_vector(state, s, point))
        start = number_text(identity_of(step.kind, step.dtype), step.dtype)
        values = [start, "0"][: len(names)]
        lines = [f"{ctype} {n}[{state.count}];" for n in names]
        fills = " ".join(f"{n}[q] = bc<{ctype}>({v});" for n, v in zip(names, values, strict=True))
        used = state.used or state.count
        return [*lines, f"for (int q = 0; q < {used}; q++) {{ {fills} }}", *here.lines, *body]

    if not is_empty(context, step.inner):
        place.lines += block("", nest(place, inner.outer, fill))


def _fold(state: _Columns, step: Step) -> Fold:
    return Fold(state.context, step, state.context.temp("acc"), state.count, state.used or "")


def _is_float_sum(step: Step) -> bool:
    return step.kind == "sum" and step.dtype in FLOATS
