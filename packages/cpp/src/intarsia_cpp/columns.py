"""Kernels that walk memory best across rows: vector lanes are neighbouring rows, inner loops are plain loops.

Sums over the first dimension, softmax over a middle one, scans along a strided axis. A thread takes a block of rows
side by side, so that it reads several cache lines of each line of memory; what a row keeps is a vector per 16 rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from intarsia_cpp._body import Scope
from intarsia_cpp._chains import WHOLE, Bounds, in_parts
from intarsia_cpp._context import Context
from intarsia_cpp._folds import Fold, combine_text
from intarsia_cpp._frame import local_buffers, row_loops
from intarsia_cpp._loops import is_empty, nest
from intarsia_cpp._ops import Rep, number_text, vector
from intarsia_cpp._parallel import pragma
from intarsia_cpp._text import block, loop
from intarsia_loops.addresses import product
from intarsia_loops.index import Atom, lift
from intarsia_loops.ops import FLOATS, identity_of
from intarsia_loops.rewrites import at
from intarsia_loops.vectors.axes import collapse
from intarsia_loops.vectors.groups import Group, group_steps
from intarsia_loops.vectors.steps import Step

__all__ = ["emit_columns"]

# Lines of memory that one sweep over a block adds up before it touches the accumulators.
SWEEP = 8
# Sums of floats longer than this are added up in pieces of that many lines.
CHAIN = 128


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


def emit_columns(context: Context) -> list[str]:
    """Return the body of the kernel function; the context has a block."""
    assert context.block is not None
    rows, start, width = context.kernel.rows, context.block.start, context.block.width
    lane = rows[context.block.position]
    outer = tuple(a for a in rows if a is not lane)
    groups = group_steps(context.steps)
    state = _Columns(context, lane, width // context.lanes, local_buffers(groups))
    place = Scope(context, axes=(*outer, start))
    for k, group in enumerate(groups):
        _emit_group(state, place, group, {v.args[0] for g in groups[k + 1 :] for s in g.steps for v in s.body.loads})
    heads = [loop(context.name_of(a), "0", context.c(a.extent)) for a in outer]
    first, extent = context.name_of(start), context.c(lane.extent)
    step = str(width) if state.used is None else "wide"
    heads.append(loop(first, "0", extent, step))
    bounds = [f"const i64 stop = {first} + {step} < {extent} ? {first} + {step} : {extent};"]
    if state.used is None:
        return row_loops(context, heads, groups, state.stored, [*bounds, *place.lines])
    bounds.append(f"const i64 {state.used} = (stop - {first} + {context.lanes - 1}) / {context.lanes};")
    others = context.c(product(tuple(a.extent for a in outer)))
    wide = f"const i64 wide = block_width({extent}, {others}, {context.threads}, {context.lanes}, {width});"
    return [wide, *row_loops(context, heads, groups, state.stored, [*bounds, *place.lines])]


def _emit_group(state: _Columns, place: Scope, group: Group, later: set[str]) -> None:
    step = group.steps[0]
    if not group.loops:
        _once(state, place, group, later)
    elif step.is_scan:
        _scan(state, place, step)
    elif step.is_fold and step.inner:
        _inner_folds(state, place, step)
    elif all(s.is_fold for s in group.steps):
        _folds(state, place, group)
    else:
        _shared_loop(state, place, group)


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


def _once(state: _Columns, place: Scope, group: Group, later: set[str]) -> None:
    """Statements that run once a row."""
    kept: dict[str, tuple[str, Rep]] = {}

    def point(scope: Scope) -> None:
        for step in group.steps:
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


def _shared_loop(state: _Columns, place: Scope, group: Group) -> None:
    """Maps, perhaps with reductions, in one nest of loops."""
    loops, steps = _merged(group)
    folds = {s.out: _fold(state, s) for s in steps if s.is_fold}

    def point(scope: Scope) -> None:
        for step in steps:
            rep = scope.value(step.body)
            if step.is_fold:
                folds[step.out].update(scope, rep, "q", masked=False)
                continue
            rep = scope.known[step.out] = scope.name(rep)
            if step.in_memory or step.out in state.stored:
                scope.store(step.out, step.address, rep)

    long = [f for f in folds.values() if _is_float_sum(f.step)]
    place.lines += [line for f in folds.values() for line in f.declare()]
    if not is_empty(state.context, loops):
        place.lines += _in_chains(state, place, loops, long, 1, lambda scope, _: _each_vector(state, scope, point))
    _finish(state, place, list(folds.values()))


def _folds(state: _Columns, place: Scope, group: Group) -> None:
    """Reductions alone: several lines of memory in one sweep."""
    loops, steps = _merged(group)
    folds = [_fold(state, s) for s in steps]
    size = sum(s.body.size for s in steps)
    plain = not any(f.is_arg for f in folds)
    sweep = max(1, min(SWEEP, 64 // size)) if plain else 1

    def point(scope: Scope, lines_at_once: int) -> None:
        for f in folds:
            parts = [scope.value(at(f.step.body, {loops[-1]: lift(loops[-1]) + u})) for u in range(lines_at_once)]
            f.update(scope, _tree(f, parts), "q", masked=False)

    sums = [f for f in folds if _is_float_sum(f.step)]

    def fill(scope: Scope, n: int) -> list[str]:
        return _each_vector(state, scope, lambda inside: point(inside, n))

    if plain and _few_blocks(state) and not is_empty(state.context, loops):
        context, points = state.context, product(tuple(a.extent for a in (*state.context.kernel.rows, *loops)))
        place.lines += in_parts(
            context, loops[0], 1, folds, pragma(context, "parallel for", 1, points, context.cost(steps)),
            lambda bounds: _in_chains(state, place, loops, sums, sweep, fill, bounds),
        )  # fmt: skip
    else:
        place.lines += [line for f in folds for line in f.declare()]
        place.lines += [] if is_empty(state.context, loops) else _in_chains(state, place, loops, sums, sweep, fill)
    _finish(state, place, folds)


def _few_blocks(state: _Columns) -> bool:
    """Whether there are fewer blocks than threads, so that threads share the lines of memory instead."""
    context, extent = state.context, state.lane.extent.const()
    outer = product(tuple(a.extent for a in context.kernel.rows if a is not state.lane)).const()
    if context.threads == 1 or extent is None or outer is None:
        return False
    return outer * -(-extent // (state.count * context.lanes)) < context.threads


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
    loops: Sequence[Atom],
    sums: list[Fold],
    sweep: int,
    fill: Callable[[Scope, int], list[str]],
    bounds: Bounds = WHOLE,
) -> list[str]:
    """The loops around sweeps; sums of many floats in two levels, because the error grows with the length of a chain.

    Args:
        state: The kernel.
        place: Scope around the loops.
        loops: Loop variables, outermost first.
        sums: The folds that need two levels when they are long.
        sweep: Lines of memory at once.
        fill: Statements of so many lines, at the innermost loop's variable.
        bounds: Loop variable -> C text of its first and past-the-last value, where it isn't the whole extent.
    """
    context = state.context
    *outer, inner = loops
    extent = inner.extent.const()
    total = product(tuple(a.extent for a in loops)).const()
    two_levels = bool(sums) and (total is None or total > 2 * CHAIN)
    totals = {f.name: context.temp("total") for f in sums} if two_levels else {}
    flush = [line for f in sums if two_levels for line in f.flush(totals[f.name])]
    split = two_levels and (extent is None or extent > 2 * CHAIN)

    low, high = bounds.get(inner, ("0", context.c(inner.extent)))
    exact = split or inner in bounds

    def lines_of(scope: Scope) -> list[str]:
        return _lines(scope, inner, sweep, fill, ("first", "last") if split else (low, high), exact)

    def around(scope: Scope) -> list[str]:
        if not split:
            return [*lines_of(scope), *flush]
        last = f"const i64 last = first + {CHAIN} < {high} ? first + {CHAIN} : {high};"
        return block(loop("first", low, high, CHAIN), [last, *lines_of(scope), *flush])

    maybe_empty = any(a.extent.lo < 1 for a in loops)
    parent = Scope(context, place, barrier=True) if maybe_empty else place
    body = nest(parent, outer, around, bounds)
    if maybe_empty:
        condition = " && ".join(f"{context.c(a.extent)} > 0" for a in loops if a.extent.lo < 1)
        body = block(f"if ({condition})", [*parent.lines, *body])
    for f in sums:
        if two_levels:
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


def _inner_folds(state: _Columns, place: Scope, step: Step) -> None:
    """A reduction for every point of inner axes."""
    fold = _fold(state, step)

    def fill(scope: Scope) -> list[str]:
        here = Scope(state.context, scope, barrier=True)

        def point(inside: Scope) -> None:
            fold.update(inside, inside.value(step.body), "q", masked=False)

        sums = [fold] if _is_float_sum(step) else []
        lines = []
        if not is_empty(state.context, step.red):
            lines = _in_chains(state, here, step.red, sums, 1, lambda s, _: _each_vector(state, s, point))
        store = _each_vector(state, here, lambda inside: inside.store(step.out, step.address, fold.vector("q")))
        return [*fold.declare(), *here.lines, *lines, *store]

    place.lines += nest(place, step.inner, fill) if not is_empty(state.context, step.inner) else []


def _scan(state: _Columns, place: Scope, step: Step) -> None:
    """A running value. Sums of f32 carry their rounding errors along, for about the accuracy of f64 as in eager."""
    context = state.context
    acc, ctype = context.temp("acc"), vector(step.dtype, context.lanes)
    compensated = step.kind == "cumsum" and step.dtype == "f32"
    names = [acc, f"{acc}_error"] if compensated else [acc]
    (scanned,) = step.red
    outer = tuple(a for a in step.inner if a is not scanned)

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
        place.lines += block("", nest(place, outer, fill))


def _fold(state: _Columns, step: Step) -> Fold:
    return Fold(state.context, step, state.context.temp("acc"), state.count, state.used or "")


def _is_float_sum(step: Step) -> bool:
    return step.kind == "sum" and step.dtype in FLOATS


def _merged(group: Group) -> tuple[tuple[Atom, ...], tuple[Step, ...]]:
    loops, env = collapse(group.loops, [e for s in group.steps for e in s.addresses()])
    return loops or group.loops[-1:], tuple(s.substituted(env) for s in group.steps)
