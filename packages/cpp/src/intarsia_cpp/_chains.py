"""The loops of maps and reductions inside a row: long sums in two levels, and threads where rows are few."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from intarsia_cpp._body import Scope
from intarsia_cpp._context import Context
from intarsia_cpp._folds import Fold
from intarsia_cpp._loops import lane_loops, nest
from intarsia_cpp._parallel import pragma
from intarsia_cpp._text import block, loop
from intarsia_loops.index import Atom
from intarsia_loops.ops import FLOATS
from intarsia_loops.vectors.walks import Inner

__all__ = ["WHOLE", "Bounds", "RowLoops", "in_parts", "row_nest"]

Bounds = Mapping[Atom, tuple[str, str]]
WHOLE: Bounds = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RowLoops:
    """One nest of loops inside a row, with what is emitted in it.

    Args:
        inner: The nest; the last of its loops runs over the lanes.
        folds: Accumulators of the reductions in it.
        point: Writes the statements of one vector, for the accumulator whose number is the text.
    """

    inner: Inner
    folds: tuple[Fold, ...]
    point: Callable[[Scope, str], None]


def row_nest(row: Scope, loops: RowLoops, bounds: Bounds = WHOLE) -> list[str]:
    """Return the loops; sums of many floats in two levels, because the error grows with the length of a chain.

    Args:
        row: Scope around them; accumulators are declared there.
        loops: What to emit.
        bounds: Loop variable -> C text of its first and past-the-last value, where it isn't the whole extent.
    """
    context, inner = row.context, loops.inner
    *outer, lane = inner.loops
    maybe_empty = any(a.extent.lo < 1 for a in inner.loops)
    parent = Scope(context, row, barrier=True) if maybe_empty else row
    if not inner.chain:
        lines = nest(
            parent, outer, lambda s: lane_loops(s, lane, loops.point, inner.unroll, bounds.get(lane)), bounds
        )  # fmt: skip
    else:
        lines = _two_levels(parent, loops, bounds)
    if not maybe_empty:
        return lines
    condition = " && ".join(f"{context.c(a.extent)} > 0" for a in inner.loops if a.extent.lo < 1)
    return block(f"if ({condition})", [*parent.lines, *lines])


def _two_levels(parent: Scope, loops: RowLoops, bounds: Bounds) -> list[str]:
    context, inner = parent.context, loops.inner
    *outer, lane = inner.loops
    sums = [f for f in loops.folds if f.step.kind == "sum" and f.dtype in FLOATS]
    totals = {f.name: context.temp("total") for f in sums}
    flush = [text for f in sums for text in f.flush(totals[f.name])]
    chunk, unroll = inner.length, inner.unroll
    low, high = bounds.get(lane, ("0", context.c(lane.extent)))

    def chains(scope: Scope) -> list[str]:
        if not inner.cut:
            return [*lane_loops(scope, lane, loops.point, unroll, bounds.get(lane)), *flush]
        piece = lane_loops(scope, lane, loops.point, unroll, ("first", "last"))
        last = f"const i64 last = first + {chunk} < {high} ? first + {chunk} : {high};"
        return block(loop("first", low, high, chunk), [last, *piece, *flush])

    starts = [text for f in sums for text in f.start(totals[f.name])]
    ends = [text for f in sums for text in f.take(totals[f.name])]
    long = [*starts, *nest(parent, outer, chains, bounds), *ends]
    if lane.extent.const() is not None or outer or lane in bounds:
        return long
    # one chunk, as a rule: nothing to add up
    short = lane_loops(parent, lane, loops.point, unroll, None)
    return [*block(f"if ({high} > {chunk})", long), *block("else", short)]


def in_parts(
    context: Context, inner: Inner, step: int, folds: Sequence[Fold], loops: Callable[[Bounds], list[str]]
) -> list[str]:
    """Return loops cut into parts, one for each thread; the parts' accumulators are combined in their order.

    Args:
        context: The kernel.
        inner: The nest, whose first loop is cut.
        step: What its part sizes are multiples of.
        folds: Accumulators; none for maps alone.
        loops: Gives the loops between bounds.
    """
    first, parts = inner.loops[0], inner.parts
    line = pragma(context, "parallel for", 1, inner.share)
    extent = context.c(first.extent)
    known = first.extent.const()
    size = f"(({extent} + {parts * step - 1})/{parts * step}*{step})"
    if known is not None:
        size = str(-(-known // (parts * step)) * step)
    body = [
        f"const i64 low = part*{size}, high = low + {size} < {extent} ? low + {size} : {extent};",
        *(text for f in folds for text in f.declare()),
        *loops({first: ("low", "high")}),
        *(text for f in folds for text in f.keep_part()),
    ]
    lines = [text for f in folds for text in f.declare_parts(parts)]
    lines += [*([line] if line else []), *block(f"for (int part = 0; part < {parts}; part++)", body)]
    return [*lines, *(text for f in folds for text in f.join_parts(parts))]
