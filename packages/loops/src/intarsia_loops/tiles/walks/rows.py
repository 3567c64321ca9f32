"""Walks a row at a time: threads take rows, and lanes run along the last loop of each nest in a row."""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_loops.index import Atom, lift
from intarsia_loops.program import Val, cast
from intarsia_loops.tiles.program import Acc, Bind, Hold, If, Run, Statement, Take
from intarsia_loops.tiles.walks.chains import Accs, Place, accs_of, chained, in_parts
from intarsia_loops.tiles.walks.points import (
    Bounds,
    Names,
    across,
    around,
    folded,
    number,
    positions,
    span,
    steps_at,
    stored,
    value,
    vectors,
)
from intarsia_loops.vectors.steps import Step
from intarsia_loops.vectors.walks import Inner, Rows

__all__ = ["rows"]

WHOLE: Mapping[Atom, Bounds] = {}


def rows(part: Rows, names: Names) -> list[Statement]:
    """Return the statements of rows that are walked one after the other."""
    row = _Row(part, names)
    for inner in part.inner:
        row.nest(inner)
    space = "heap" if part.heap else "stack"
    arrays = [Hold(b, space, (a.length,), a.dtype, part.lanes) for b, a in part.arrays.items() if b in part.stored]
    return around(part.rows, [*arrays, *row.made], across(part.share))


class _Row:
    """What a row does, while it is written."""

    def __init__(self, part: Rows, names: Names) -> None:
        self.part, self.names = part, names
        self.made: list[Statement] = []
        self.numbers: dict[str, Val] = {}  # what earlier nests left

    def nest(self, inner: Inner) -> None:
        """Write one nest of loops."""
        match inner.kind:
            case "once":
                statements, values = steps_at(inner.steps, self.numbers, {}, (), self.names)
                self.made += statements
                self.numbers |= values
            case "scan":
                self.made += self.scan(inner)
            case "along":
                self.made += self.along(inner)
            case "across":
                self.made += self.across(inner)
            case _:
                self.shared(inner)

    # ---- reductions and maps in one nest

    def shared(self, inner: Inner) -> None:
        """Write maps and reductions of the row."""
        binds = self.names.binds(inner.unroll, self.part.lanes)
        accs = accs_of(inner.steps, binds, self.names)
        if inner.parts > 1:
            step = self.part.lanes if len(inner.loops) == 1 else 1
            place = Place(binds, positions(binds, self.names))
            self.made += in_parts(inner, step, place, accs, lambda own, b: self.loops(inner, own, binds, b), self.names)
        else:
            self.made += [*accs.values(), *self.loops(inner, accs, binds, WHOLE)]
        for step_ in inner.steps:
            if step_.is_fold:
                self.made += self.taken(step_, accs[step_.out].name)

    def taken(self, step: Step, acc: str) -> list[Statement]:
        """Join an accumulator to a number of the row."""
        name = self.names.new(f"{step.out}_all")
        self.numbers[step.out] = number(name, step.dtype)
        store = [stored(step, self.numbers[step.out])] if step.in_memory else []
        return [Take(acc, (name,), "halves"), *store]

    def loops(
        self, inner: Inner, accs: Accs, binds: tuple[Bind, ...], bounds: Mapping[Atom, Bounds]
    ) -> list[Statement]:
        """The loops of a nest; where the length of a sum is unknown, one chain is enough for a short one."""
        lane = inner.loops[-1]

        def fill(into: Accs, ends: Bounds) -> list[Statement]:
            folds = {out: acc.name for out, acc in into.items()}
            body, _ = steps_at(inner.steps, self.numbers, folds, self.part.stored, self.names)
            return [vectors(lane, ends, body, binds)]

        through = positions(binds, self.names)
        long = chained(inner, accs, fill, self.names, through, bounds)
        if not inner.chain or lane.extent.const() is not None or len(inner.loops) > 1 or lane in bounds:
            return long
        return [If(lift(inner.length), "<", lane.extent, tuple(long), tuple(fill(accs, span(lane))))]

    # ---- a reduction at each point

    def along(self, inner: Inner) -> list[Statement]:
        """Lanes run along what is reduced."""
        (step,) = inner.steps
        binds = self.names.binds(inner.unroll, self.part.lanes)
        accs = accs_of(inner.steps, binds, self.names)
        name = self.names.new(f"{step.out}_all")
        body = [*accs.values(), *self.loops(inner, accs, binds, WHOLE)]
        body += [Take(accs[step.out].name, (name,), "halves"), stored(step, number(name, step.dtype))]
        return around(inner.outer, body)

    def across(self, inner: Inner) -> list[Statement]:
        """Lanes run along the last of the other axes."""
        (step,), (*outer, lane) = inner.steps, inner.outer
        (acc,) = accs_of(inner.steps, (), self.names).values()
        name = self.names.new(f"{step.out}_all")
        fold = around(inner.loops, [folded(step, acc.name, value(step.body, self.numbers))])
        body = [acc, *fold, Take(acc.name, (name,)), stored(step, number(name, step.dtype))]
        return around(outer, [vectors(lane, span(lane), body, (self.bind(),))])

    # ---- scans

    def scan(self, inner: Inner) -> list[Statement]:
        """Prefixes of a vector at a time."""
        (lane,), (step,) = inner.loops, inner.steps
        wide = "f64" if inner.carry == "wide" else step.dtype
        monoid = "sum2" if inner.carry == "errors" else step.kind.removeprefix("cum")
        acc, name = self.names.new(f"{step.out}_acc"), self.names.new(f"{step.out}_run")
        body: list[Statement] = [
            Run(acc, (cast(value(step.body, self.numbers), wide),), name),
            stored(step, cast(number(name, wide), step.dtype)),
        ]
        return around(inner.outer, [Acc(acc, monoid, wide), vectors(lane, span(lane), body, (self.bind(),))])

    def bind(self) -> Bind:
        return Bind("lanes", self.part.lanes, self.names.new("l"))
