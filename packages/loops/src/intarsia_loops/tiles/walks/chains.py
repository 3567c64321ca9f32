"""Accumulators of one nest of loops: plain ones, sums in two levels, and those of parts that threads share.

one level     acc; loops: fold
two levels    total; loops around a chain: (acc of the chain; the chain's points: fold; its positions: fold total);
              positions of the total: fold acc
in parts      parts, side by side: (acc; loops of a part: fold; positions: put state); parts, in order: fold acc
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from intarsia_loops.index import ZERO, Atom, IndexExpr, lift
from intarsia_loops.program import load
from intarsia_loops.tiles.monoids import MONOIDS
from intarsia_loops.tiles.program import Acc, Bind, Fold, For, Hold, Put, Statement, Take
from intarsia_loops.tiles.walks.points import Bounds, Names, across, flushed, is_float_sum, number, span
from intarsia_loops.vectors.steps import Step
from intarsia_loops.vectors.walks import Inner

__all__ = ["Accs", "Fill", "accs_of", "chained", "in_parts"]

Accs = Mapping[str, Acc]
# the statements of the last loop between bounds, folding into these accumulators
Fill = Callable[[Accs, Bounds], list[Statement]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where accumulators are.

    Args:
        binds: Their positions.
        through: A loop through all positions, to put a body in.
    """

    binds: tuple[Bind, ...]
    through: For


def accs_of(steps: Sequence[Step], binds: Sequence[Bind], names: Names) -> dict[str, Acc]:
    """Return new accumulators of the steps that fold."""
    per = tuple(b.name for b in binds)
    return {s.out: Acc(names.new(f"{s.out}_acc"), s.kind, s.body.dtype, per) for s in steps if s.is_fold}


def chained(
    inner: Inner, accs: Accs, fill: Fill, names: Names, through: For, bounds: Mapping[Atom, Bounds]
) -> list[Statement]:
    """Return the loops of a nest, which fold into accumulators that are there.

    Args:
        inner: The nest.
        accs: Accumulator of each of its steps that folds.
        fill: Gives the last loop.
        names: Where names come from.
        through: A loop through all positions of the accumulators.
        bounds: Those of loops that aren't walked whole.
    """
    *outer, last = inner.loops
    low, high = bounds.get(last, span(last))

    def nested(body: list[Statement]) -> list[Statement]:
        for a in reversed(outer):
            start, ends = bounds.get(a, span(a))
            body = [For(a, start, ends, tuple(body))]
        return body

    sums = [s for s in inner.steps if is_float_sum(s)] if inner.chain else []
    if not sums:
        return nested(fill(accs, (low, high)))
    per = accs[sums[0].out].per
    totals = {s.out: Acc(names.new(f"{s.out}_total"), "sum2", s.body.dtype, per) for s in sums}

    def chain(ends: Bounds) -> list[Statement]:
        chains = {s.out: Acc(names.new(f"{s.out}_chain"), "sum", s.body.dtype, per) for s in sums}
        flush = flushed([(chains[out], totals[out]) for out in totals], names, through)
        return [*chains.values(), *fill({**accs, **chains}, ends), flush]

    if inner.cut:
        n = (_longest(last, bounds) + inner.length - 1) // inner.length
        k = names.axis("chain", n)
        first = low + lift(k) * inner.length
        ends = (first + inner.length, *high)
        loops: list[Statement] = [For(k, ZERO, (n,), tuple(chain((first, ends))))]
    else:
        loops = chain((low, high))
    done = flushed([(totals[out], accs[out]) for out in totals], names, through)
    return [*totals.values(), *nested(loops), done]


def _longest(a: Atom, bounds: Mapping[Atom, Bounds]) -> IndexExpr:
    """Points of a loop, or of a part of it, at most."""
    low, high = bounds.get(a, span(a))
    return high[0] - low


def in_parts(
    inner: Inner, step: int, place: Place, accs: Accs, loops: Callable[[Accs, Mapping[Atom, Bounds]], list[Statement]],
    names: Names,
) -> list[Statement]:  # fmt: skip
    """Return a nest whose first loop is cut into parts, which are joined in their order.

    Args:
        inner: The nest.
        step: What the sizes of parts are multiples of.
        place: Where accumulators are.
        accs: What parts are joined into; none for maps alone.
        loops: Gives the loops of a part, for accumulators of its own.
        names: Where names come from.
    """
    first, parts = inner.loops[0], inner.parts
    size = (first.extent + (parts * step - 1)) // (parts * step) * step
    part = names.axis("part", parts)
    low = lift(part) * size
    accs_here = accs_of(inner.steps, place.binds, names)
    body = [*accs_here.values(), *loops(accs_here, {first: (low, (low + size, first.extent))})]
    states = {out: _states(acc, parts, place, names) for out, acc in accs_here.items()}
    points = lift(place.through.axis) - place.through.low
    keep: list[Statement] = []
    for out, acc in accs_here.items():
        held = [names.new(f"{acc.name}_state") for _ in states[out]]
        keep.append(Take(acc.name, tuple(held), "state"))
        keep += [Put(h.name, (lift(part), points), number(n, h.dtype)) for h, n in zip(states[out], held, strict=True)]
    if keep:
        body.append(_with(place.through, keep))
    statements: list[Statement] = [h for held in states.values() for h in held]
    statements.append(For(part, ZERO, (part.extent,), tuple(body), across(inner.share)))
    again = names.axis("part", parts)
    join = [
        Fold(acc.name, tuple(load(h.name, (lift(again), points), h.dtype) for h in states[out]))
        for out, acc in accs.items()
    ]
    if join:
        statements += [*accs.values(), For(again, ZERO, (again.extent,), (_with(place.through, join),))]
    return statements


def _with(through: For, body: Sequence[Statement]) -> For:
    return For(through.axis, through.low, through.high, tuple(body), binds=through.binds, ends=through.ends)


def _states(acc: Acc, parts: int, place: Place, names: Names) -> list[Hold]:
    """What parts leave: a row of states a part, beside one another."""
    n = 1
    for b in place.binds:
        n *= b.size
    types = MONOIDS[acc.monoid].rules(acc.dtype).types
    return [Hold(names.new(f"{acc.name}_part"), "reg", (lift(parts), lift(n)), t) for t in types]
