"""The loops of maps and reductions inside a row: long sums in two levels, and threads where rows are few."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from intarsia_cpp._body import Scope
from intarsia_cpp._context import Context
from intarsia_cpp._folds import Fold
from intarsia_cpp._loops import lane_loops, nest
from intarsia_cpp._text import block, loop
from intarsia_loops.addresses import product
from intarsia_loops.index import Atom
from intarsia_loops.ops import FLOATS

__all__ = ["CHAIN", "WHOLE", "Bounds", "RowLoops", "in_parts", "row_nest"]

# Floats are added up in chains of about this many numbers per lane, and the chains then added up.
CHAIN = 256
Bounds = Mapping[Atom, tuple[str, str]]
WHOLE: Bounds = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RowLoops:
    """One nest of loops inside a row.

    Args:
        loops: Loop variables, outermost first; the last runs over the lanes.
        folds: Accumulators of the reductions in it.
        point: Writes the statements of one vector, for the accumulator whose number is the text.
        cost: Additions per point.
    """

    loops: tuple[Atom, ...]
    folds: tuple[Fold, ...]
    point: Callable[[Scope, str], None]
    cost: int = 1

    @property
    def unroll(self) -> int:
        """Vectors worked on at a time."""
        return self.folds[0].count if self.folds else 1


def row_nest(row: Scope, loops: RowLoops, bounds: Bounds = WHOLE) -> list[str]:
    """Return the loops; sums of many floats in two levels, because the error grows with the length of a chain.

    Args:
        row: Scope around them; accumulators are declared there.
        loops: What to emit.
        bounds: Loop variable -> C text of its first and past-the-last value, where it isn't the whole extent.
    """
    context = row.context
    *outer, lane = loops.loops
    maybe_empty = any(a.extent.lo < 1 for a in loops.loops)
    parent = Scope(context, row, barrier=True) if maybe_empty else row
    sums = [f for f in loops.folds if f.step.kind == "sum" and f.dtype in FLOATS]
    points = product(tuple(a.extent for a in loops.loops)).const()
    if not sums or (points is not None and points <= 2 * CHAIN * loops.unroll * context.lanes):
        lines = nest(parent, outer, lambda s: lane_loops(s, lane, loops.point, loops.unroll, bounds.get(lane)), bounds)
    else:
        lines = _two_levels(parent, loops, sums, bounds)
    if not maybe_empty:
        return lines
    condition = " && ".join(f"{context.c(a.extent)} > 0" for a in loops.loops if a.extent.lo < 1)
    return block(f"if ({condition})", [*parent.lines, *lines])


def _two_levels(parent: Scope, loops: RowLoops, sums: list[Fold], bounds: Bounds) -> list[str]:
    context = parent.context
    *outer, lane = loops.loops
    totals = {f.name: context.temp("total") for f in sums}
    flush = [text for f in sums for text in f.flush(totals[f.name])]
    chunk = CHAIN * loops.unroll * context.lanes
    extent = lane.extent.const()
    low, high = bounds.get(lane, ("0", context.c(lane.extent)))

    def chains(scope: Scope) -> list[str]:
        if extent is not None and extent <= 2 * chunk:
            return [*lane_loops(scope, lane, loops.point, loops.unroll, bounds.get(lane)), *flush]
        inner = lane_loops(scope, lane, loops.point, loops.unroll, ("first", "last"))
        last = f"const i64 last = first + {chunk} < {high} ? first + {chunk} : {high};"
        return block(loop("first", low, high, chunk), [last, *inner, *flush])

    starts = [text for f in sums for text in f.start(totals[f.name])]
    ends = [text for f in sums for text in f.take(totals[f.name])]
    long = [*starts, *nest(parent, outer, chains, bounds), *ends]
    if extent is not None or outer or lane in bounds:
        return long
    # one chunk, as a rule: nothing to add up
    short = lane_loops(parent, lane, loops.point, loops.unroll, None)
    return [*block(f"if ({high} > {chunk})", long), *block("else", short)]


def in_parts(
    context: Context,
    first: Atom,
    step: int,
    folds: Sequence[Fold],
    line: str | None,
    loops: Callable[[Bounds], list[str]],
) -> list[str]:
    """Return loops cut into one part for each thread; the parts' accumulators are combined in their order.

    Args:
        context: The kernel.
        first: The outermost loop.
        step: What its part sizes are multiples of.
        folds: Accumulators; none for maps alone.
        line: OpenMP line for the loop over parts.
        loops: Gives the loops between bounds.
    """
    threads, extent = context.threads, context.c(first.extent)
    known = first.extent.const()
    size = f"(({extent} + {threads * step - 1})/{threads * step}*{step})"
    if known is not None:
        size = str(-(-known // (threads * step)) * step)
    body = [
        f"const i64 low = part*{size}, high = low + {size} < {extent} ? low + {size} : {extent};",
        *(text for f in folds for text in f.declare()),
        *loops({first: ("low", "high")}),
        *(text for f in folds for text in f.keep_part()),
    ]
    lines = [text for f in folds for text in f.declare_parts(threads)]
    lines += [*([line] if line else []), *block(f"for (int part = 0; part < {threads}; part++)", body)]
    return [*lines, *(text for f in folds for text in f.join_parts(threads))]
