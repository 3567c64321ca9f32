"""Walks of blocks of neighbouring rows, one in each lane: loops inside a row are around the vectors of its block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from intarsia_loops.index import ZERO, Atom, IndexExpr, lift
from intarsia_loops.program import Val, cast, load
from intarsia_loops.tiles.program import Acc, Fold, For, Hold, If, Put, Run, Statement, Take
from intarsia_loops.tiles.walks.chains import Accs, Place, accs_of, chained, in_parts
from intarsia_loops.tiles.walks.points import (
    Bounds,
    Names,
    across,
    around,
    folded,
    number,
    steps_at,
    stored,
    value,
)
from intarsia_loops.vectors.steps import Block, Step
from intarsia_loops.vectors.walks import Inner, Rows

__all__ = ["columns"]

Point = Callable[[Mapping[str, Val]], list[Statement]]
WHOLE: Mapping[Atom, Bounds] = {}


def columns(part: Rows, block: Block, names: Names) -> list[Statement]:
    """Return the statements of rows that are walked side by side."""
    return _Block(part, block, names).statements()


class _Block:
    """What a block of rows does, while it is written."""

    def __init__(self, part: Rows, block: Block, names: Names) -> None:
        self.part, self.names, self.width = part, names, block.width
        self.lane = part.rows[block.position]
        self.number = names.axis("block", (self.lane.extent + block.width - 1) // block.width)
        self.start = lift(self.number) * block.width
        self.begin = {block.start: self.start}
        self.binds = names.binds(block.width // part.lanes, part.lanes)
        self.made: list[Statement] = []
        self.accs: dict[str, Acc] = {}  # what earlier nests left for each row, in accumulators,
        self.held: dict[str, Hold] = {}  # and in arrays

    def statements(self) -> list[Statement]:
        part = self.part
        for k, inner in enumerate(part.inner):
            later = {v.args[0] for i in part.inner[k + 1 :] for s in i.steps for v in s.body.loads}
            self.nest(self.moved(inner), later)
        space = "heap" if part.heap else "stack"
        arrays = [Hold(b, space, (a.length,), a.dtype, part.lanes) for b, a in part.arrays.items() if b in part.stored]
        who = across(part.share)
        outer = [a for a in part.rows if a is not self.lane]
        inside = For(self.number, ZERO, (self.number.extent,), (*arrays, *self.made), who)
        return around(outer, [inside], who)

    def moved(self, inner: Inner) -> Inner:
        """The nest with the first row of the block in the place of its variable."""
        return replace(inner, steps=tuple(s.substituted(self.begin) for s in inner.steps))

    def nest(self, inner: Inner, later: set[str]) -> None:
        """Write one nest of loops."""
        match inner.kind:
            case "once":
                self.once(inner, later)
            case "scan":
                self.made += self.scan(inner)
            case "along":
                self.made += self.along(inner)
            case _:
                self.shared(inner)

    # ---- the vectors of the block

    def each(self, steps: Sequence[Step], point: Point) -> For:
        """A loop over the rows of the block, with what these steps read of earlier nests."""
        read = dict.fromkeys(v.args[0] for s in steps for v in s.body.loads)
        numbers: dict[str, Val] = {}
        first: list[Statement] = []
        for out in read:
            if out in self.accs:
                acc = self.accs[out]
                name = self.names.new(f"{out}_row")
                first.append(Take(acc.name, (name,), "each"))
                numbers[out] = number(name, self.dtypes[out])
            elif out in self.held:
                numbers[out] = load(self.held[out].name, (self.row,), self.held[out].dtype)
        return self.through([*first, *point(numbers)])

    def through(self, body: Sequence[Statement]) -> For:
        end = self.start + self.width
        constant = self.lane.extent.const()
        whole = constant is not None and constant % self.width == 0
        high = (end,) if whole else (end, self.lane.extent)
        return For(self.lane, self.start, high, tuple(body), binds=self.binds, ends="none" if whole else "mask")

    @property
    def row(self) -> IndexExpr:
        """Which row of the block a point is in."""
        return lift(self.lane) - self.start

    @property
    def dtypes(self) -> Mapping[str, str]:
        return {s.out: s.dtype for inner in self.part.inner for s in inner.steps}

    # ---- the kinds of nests

    def once(self, inner: Inner, later: set[str]) -> None:
        """Write what is done once a row; later nests find it in an array."""
        kept = {s.out: Hold(self.names.new(f"{s.out}_rows"), "reg", (lift(self.width),), s.dtype)
                for s in inner.steps if s.out in later}  # fmt: skip

        def point(numbers: Mapping[str, Val]) -> list[Statement]:
            statements, point_values = steps_at(inner.steps, numbers, {}, (), self.names)
            return [*statements, *(Put(h.name, (self.row,), point_values[out]) for out, h in kept.items())]

        self.made += [*kept.values(), self.each(inner.steps, point)]
        self.held |= kept

    def shared(self, inner: Inner) -> None:
        """Write maps and reductions of the rows."""
        accs = accs_of(inner.steps, self.binds, self.names)

        def loops(into: Accs, bounds: Mapping[Atom, Bounds]) -> list[Statement]:
            return chained(inner, into, self.lines(inner), self.names, self.through(()), bounds)

        if inner.parts > 1:
            place = Place(self.binds, self.through(()))
            self.made += in_parts(inner, 1, place, accs, loops, self.names)
        else:
            self.made += [*accs.values(), *loops(accs, WHOLE)]
        self.accs |= accs
        results = [s for s in inner.steps if s.is_fold and s.in_memory]
        if results:
            self.made.append(self.through(self.stores(results)))

    def stores(self, results: Sequence[Step]) -> list[Statement]:
        """Store what accumulators have at a row."""
        statements: list[Statement] = []
        for step in results:
            name = self.names.new(f"{step.out}_row")
            statements += [Take(self.accs[step.out].name, (name,), "each"), stored(step, number(name, step.dtype))]
        return statements

    def lines(self, inner: Inner) -> Callable[[Accs, Bounds], list[Statement]]:
        """The innermost loop: so many lines of memory in one sweep, then line by line."""
        last, n = inner.loops[-1], inner.unroll if inner.kind == "folds" else 1

        def fill(accs: Accs, bounds: Bounds) -> list[Statement]:
            low, high = bounds

            def one(numbers: Mapping[str, Val]) -> list[Statement]:
                folds = {out: acc.name for out, acc in accs.items()}
                return steps_at(inner.steps, numbers, folds, self.part.stored, self.names)[0]

            if n == 1:
                return [For(last, low, high, (self.each(inner.steps, one),))]
            k = self.names.axis("sweep", (high[0] - low + n - 1) // n)
            first = low + lift(k) * n
            left: list[Statement] = [For(last, first, high, (self.each(inner.steps, one),))]
            statements = [self.sweep(inner, accs, (first, (first + n, *high)), n)]
            for end in high:
                if (end - first - n).lo < 0:
                    statements = [If(first + n, "<=", end, tuple(statements), tuple(left))]
                    left = [For(last, first, high, (self.each(inner.steps, one),))]
            return [For(k, ZERO, (k.extent,), tuple(statements))]

        return fill

    def sweep(self, inner: Inner, accs: Accs, bounds: Bounds, n: int) -> Statement:
        """Lines that are folded into one before they reach the accumulators."""
        last, (low, high) = inner.loops[-1], bounds

        def point(numbers: Mapping[str, Val]) -> list[Statement]:
            statements: list[Statement] = []
            for step in inner.steps:
                (bind,) = self.names.binds(n, 1)[:1]
                (acc,) = accs_of((step,), (bind,), self.names).values()
                name = self.names.new(f"{step.out}_lines")
                fold = folded(step, acc.name, value(step.body, numbers))
                statements += [acc, For(last, low, high, (fold,), binds=(bind,)), Take(acc.name, (name,), "tree")]
                statements.append(Fold(accs[step.out].name, (number(name, step.body.dtype),)))
            return statements

        return self.each(inner.steps, point)

    def along(self, inner: Inner) -> list[Statement]:
        """A reduction for every point of inner axes."""
        (step,) = inner.steps
        accs = accs_of(inner.steps, self.binds, self.names)
        loops = chained(inner, accs, self.lines(inner), self.names, self.through(()), WHOLE)
        name = self.names.new(f"{step.out}_row")
        store: list[Statement] = [Take(accs[step.out].name, (name,), "each"), stored(step, number(name, step.dtype))]
        return around(inner.outer, [*accs.values(), *loops, self.through(store)])

    def scan(self, inner: Inner) -> list[Statement]:
        """A running value of each row."""
        (scanned,), (step,) = inner.loops, inner.steps
        monoid = "sum2" if inner.carry == "errors" else step.kind.removeprefix("cum")
        wide = "f64" if inner.carry == "wide" else step.dtype
        acc = Acc(self.names.new(f"{step.out}_acc"), monoid, wide, tuple(b.name for b in self.binds))
        name = self.names.new(f"{step.out}_run")

        def point(numbers: Mapping[str, Val]) -> list[Statement]:
            run = Run(acc.name, (cast(value(step.body, numbers), wide),), name)
            return [run, stored(step, cast(number(name, wide), step.dtype))]

        return around(inner.outer, [acc, *around((scanned,), [self.each(inner.steps, point)])])
