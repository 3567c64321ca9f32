"""A grid's walk -> the statements that it stands for: programs, their tiles of rows, and what each of them walks.

    rows      for rows in blocks, a program each: for each walk, accumulators; tiles of points; results
    points    for blocks of rows, for blocks of points, a program each: maps
    scan      for rows, or chunks of them: an accumulator that goes on from tile to tile
    scatter   for points in blocks, a program each: checks; an update in any order

Rows and points are numbered through, so that a block of neighbours may be of several axes. The `parts` of a tile are
positions of one lane. What a tile loads once for several steps is held in registers.

Cheaper forms, of what is rounded to half types and of quotients by sums, are what they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from intarsia_loops.addresses import product
from intarsia_loops.forms import exact
from intarsia_loops.grid import COUNTERS, Ending, GridWalk
from intarsia_loops.index import ZERO, Atom, IndexExpr, lift, unflat
from intarsia_loops.launches import ExpSum, Loop, SquareSum
from intarsia_loops.program import Buffer, Nest, Val, const, index_value, load, scatter_of, val
from intarsia_loops.rewrites import postorder
from intarsia_loops.tiles.program import Acc, Bind, Check, Fold, For, Hold, Last, Put, Run, Statement, Take, Update
from intarsia_loops.tiles.values import element_number, flat_value
from intarsia_loops.tiles.walks.points import Names, number, positions

__all__ = ["grid"]

Env = Mapping[Atom, IndexExpr]
UPDATES = {"scatter_sum": "sum", "scatter_max": "max", "scatter_min": "min"}


def grid(given: GridWalk) -> list[Statement]:
    """Return the statements of a grid's walk."""
    names, buffers = Names(), dict(given.layouts)
    if given.walk.kind == "points":
        return _Grid(given, buffers, names).points()
    if given.ending is None:
        return [_Grid(given, buffers, names).programs()]
    return [_with_ending(given, given.ending, buffers, names)]


def _with_ending(given: GridWalk, ending: Ending, buffers: Mapping[str, Buffer], names: Names) -> For:
    """Programs that count themselves in, of which the last of a group does the rest."""
    program = names.axis("program", _blocks(given.walk.rows, given.walk.blocks.rows))
    group = ending.group(lift(program))
    rest = _Grid(ending.walk, buffers, names).block(group)
    last = Last(COUNTERS, group, ending.arrivals, (rest,))
    first = _Grid(given, buffers, names).block(lift(program))
    return For(program, ZERO, (program.extent,), (first, last), "program")


def _blocks(axes: Sequence[Atom], size: int) -> IndexExpr:
    return (product([a.extent for a in axes]) + (size - 1)) // size


def _divides(size: int, extent: IndexExpr) -> bool:
    constant = extent.const()
    return constant is not None and constant % size == 0


def _through(number: Atom, axes: Sequence[Atom]) -> dict[Atom, IndexExpr]:
    """What axes are at a point of a number that runs through all of them."""
    return dict(zip(axes, unflat(lift(number), [a.extent for a in axes]), strict=True))


class _Grid:
    """One walk while its statements are made."""

    def __init__(self, given: GridWalk, buffers: Mapping[str, Buffer], names: Names) -> None:
        self.given, self.walk, self.buffers, self.names = given, given.walk, buffers, names
        self.asserts = dict(given.asserts)
        self.numbers: dict[str, Val] = {}  # what the row has made
        self.staged: dict[Val, str] = {}  # what the row's tile has loaded
        self.lane = Bind("lanes", self.walk.blocks.inner // self.walk.blocks.parts, names.new("l"))
        self.unrolled = (Bind("unroll", self.walk.blocks.parts, names.new("u")),) if self.walk.blocks.parts > 1 else ()
        self.rows = names.axis("x", product([a.extent for a in self.walk.rows]))
        self.here: Env = _through(self.rows, self.walk.rows)

    # ---- rows

    def programs(self) -> For:
        """Rows in blocks, a program each."""
        size = self.walk.blocks.rows
        ends = "none" if _divides(size, self.rows.extent) else "mask"
        binds = (Bind("lanes", size, self.names.new("l")),) if size > 1 else ()
        return For(
            self.rows, ZERO, (self.rows.extent,), self.row(), "program", binds=binds, ends=ends if binds else "none"
        )

    def block(self, program: IndexExpr) -> For:
        """The rows of one program."""
        return self.points_of(self.rows, program, self.walk.blocks.rows, self.row())

    def points_of(self, a: Atom, block: IndexExpr, size: int, body: Sequence[Statement]) -> For:
        """The points of a block, side by side."""
        low, whole = block * size, _divides(size, a.extent)
        high = (low + size,) if whole else (low + size, a.extent)
        binds = (Bind("lanes", size, self.names.new("l")),)
        return For(a, low, high, tuple(body), binds=binds, ends="none" if whole else "mask")

    def row(self) -> tuple[Statement, ...]:
        """What is done at a row."""
        match self.walk.kind:
            case "scan":
                return tuple(self.scanned())
            case "scatter":
                return tuple(self.updated())
        statements = self.loaded() if self.walk.blocks.persistent else []
        for loop in self.walk.loops:
            statements += self.walked(loop) if loop.inner else self.once(loop)
        return tuple(statements)

    def once(self, loop: Loop) -> list[Statement]:
        """Steps that have one point a row; a reduction over nothing is its body."""
        statements: list[Statement] = []
        for step in loop.steps:
            value = self.value(step.body, self.here)
            if step.kind != "map":
                name = self.names.new(f"{step.out}_all")
                statements.append(Hold(name, "reg", (), value.dtype, 0, value))
                value = self.numbers[step.out] = number(name, value.dtype)
            if step.out not in self.given.local:
                statements.append(self.kept(step, self.here, value))
        return statements

    # ---- points of a row

    def loaded(self) -> list[Statement]:
        """Load what several walks of a row's one tile read, which is held until they have."""
        inner = next(loop.inner for loop in self.walk.loops if loop.inner)
        readers: dict[Val, int] = {}
        for loop in self.walk.loops:
            bodies = [step.body for step in loop.steps] if loop.inner else []
            for v in dict.fromkeys(v for body in bodies for v in postorder(body) if v.op == "load"):
                axes = {a for e in v.args[1] for a in e.axes()}
                if v.args[0] in self.buffers and not axes.isdisjoint(inner):
                    readers[v] = readers.get(v, 0) + 1
        again = [v for v, n in readers.items() if n > 1]
        statements: list[Statement] = []
        puts: list[Statement] = []
        point = self.names.axis("r", product([a.extent for a in inner]))
        env = {**self.here, **_through(point, inner)}
        for v in again:
            name = self.names.new(f"{v.args[0]}_row")
            statements.append(Hold(name, "reg", (point.extent,), v.dtype))
            puts.append(Put(name, (lift(point),), self.value(v, env)))
        self.staged = {v: statements[k].name for k, v in enumerate(again)}  # type: ignore[union-attr]  # all are `Hold`s
        return [*statements, self.tiles(point, puts, Loop(inner, ()))] if again else []

    def walked(self, loop: Loop) -> list[Statement]:
        """A walk over inner points."""
        point = self.names.axis("r", product([a.extent for a in loop.inner]))
        env = {**self.here, **_through(point, loop.inner)}
        accs: list[Statement] = []
        body: list[Statement] = []
        for s in loop.sums:
            accs.append(Acc(f"{s.step.out}_acc", "expsum", s.exponent.dtype, (self.lane.name,)))
            body.append(Fold(f"{s.step.out}_acc", (self.value(s.exponent, env, point),)))
        for q in loop.squares:
            accs.append(Acc(f"{q.step.out}_acc", "squares", q.value.dtype, (self.lane.name,)))
            body.append(Fold(f"{q.step.out}_acc", (self.value(q.value, env, point),)))
        for step in loop.steps:
            value = self.value(step.body, env, point)
            if step.kind == "map":
                body.append(self.kept(step, env, value))
                continue
            accs.append(Acc(f"{step.out}_acc", step.kind, value.dtype, (self.lane.name,)))
            at = lift(point) // self.walk.blocks.inner if step.out in loop.by_tile else lift(point)
            is_search = step.kind in ("argmax", "argmin")
            body.append(Fold(f"{step.out}_acc", (value, index_value(at)) if is_search else (value,)))
        statements = [*accs, self.tiles(point, body, loop)]
        for step in loop.steps:
            if step.out in loop.by_tile:
                statements += self.searched(step, loop)
            elif step.kind != "map":
                statements += self.taken(step, f"{step.out}_acc")
        for s in loop.sums:
            statements += self.sum_of_exponentials(s)
        for q in loop.squares:
            statements += self.sum_of_squares(q)
        return statements

    def searched(self, step: Nest, loop: Loop) -> list[Statement]:
        """Find the first point of the extremum in the tile that has it; the others aren't read again."""
        tile, again = self.names.new(f"{step.out}_tile"), f"{step.out}_found"
        point = self.names.axis("r", product([a.extent for a in loop.inner]))
        value = self.value(step.body, {**self.here, **_through(point, loop.inner)}, point)
        number_of_tile = index_value(lift(point) // self.walk.blocks.inner)
        is_in = val("eq", number_of_tile, number(tile, "i64"), dtype="b8")
        search = Fold(again, (value, index_value(lift(point))), is_in)
        acc = Acc(again, step.kind, value.dtype, (self.lane.name,))
        walk = self.tiles(point, (search,), Loop(loop.inner, (), keep=loop.keep))
        return [Take(f"{step.out}_acc", (tile,), "tree"), acc, walk, *self.taken(step, again)]

    def tiles(self, point: Atom, body: Sequence[Statement], loop: Loop) -> For:
        """The points of a walk, in tiles."""
        binds, hint = (*self.unrolled, self.lane), ", ".join(f"{name} {how}" for name, how in loop.keep)
        start, align, ends = None, 0, "none"
        if loop.shift is not None:
            start, align, ends = loop.shift.start.subst(self.here), loop.shift.points, "align"
        elif point.extent.const() is None:
            ends = "always"
        elif not _divides(self.walk.blocks.inner, point.extent):
            ends = "mask" if self.walk.blocks.persistent or self.unrolled else "peel"
        return For(
            point, ZERO, (point.extent,), tuple(body), binds=binds, ends=ends, align=align, start=start, back=loop.back,
            hint=hint,
        )  # fmt: skip

    def taken(self, step: Nest, acc: str) -> list[Statement]:
        """Join the lanes of an accumulator to a number of the row."""
        name = self.names.new(f"{step.out}_all")
        self.numbers[step.out] = number(name, step.dtype)
        stores = [] if step.out in self.given.local else [self.kept(step, self.here, self.numbers[step.out])]
        return [Take(acc, (name,), "tree"), *stores]

    def sum_of_exponentials(self, s: ExpSum) -> list[Statement]:
        """Bring the lanes' sums to the common base, and add them."""
        dtype = s.exponent.dtype
        top, total = (number(self.names.new(f"{s.step.out}_{word}"), dtype) for word in ("top", "part"))
        apart = val("sub", top, self.value(s.shift, self.here), dtype=dtype)
        value = val("mul", total, val("exp", apart, dtype=dtype), dtype=dtype)
        return self.joined(s.step, (top, total), value)

    def sum_of_squares(self, q: SquareSum) -> list[Statement]:
        """Take the lanes' squares from the common point, and add them."""
        dtype = q.value.dtype
        n, mean, squares = (number(self.names.new(f"{q.step.out}_{word}"), dtype) for word in ("n", "mean", "part"))
        zero = const(0.0, dtype)
        none = val("eq", n, zero, dtype="b8")
        far = val("where", none, zero, val("sub", mean, self.value(q.shift, self.here), dtype=dtype), dtype=dtype)
        moved = val("mul", val("mul", n, far, dtype=dtype), far, dtype=dtype)
        return self.joined(q.step, (n, mean, squares), val("add", squares, moved, dtype=dtype))

    def joined(self, step: Nest, state: Sequence[Val], value: Val) -> list[Statement]:
        """Add what each lane's state comes to."""
        acc, total = f"{step.out}_acc", f"{step.out}_total"
        through = positions((self.lane,), self.names)
        take = Take(acc, tuple(v.args[0] for v in state), "state")
        lanes = replace(through, body=(take, Fold(total, (value,))))
        return [Acc(total, "sum", value.dtype, (self.lane.name,)), lanes, *self.taken(step, total)]

    # ---- blocks of points

    def points(self) -> list[Statement]:
        """Maps over blocks of rows and of inner points."""
        inner, blocks = self.walk.inner, self.walk.blocks
        point = self.names.axis("r", product([a.extent for a in inner]))
        env = {**self.here, **_through(point, inner)}
        body = [
            self.kept(step, env, self.value(step.body, env)) for loop in self.walk.loops for step in loop.steps
        ]  # fmt: skip
        first = self.names.axis("program", _blocks(self.walk.rows, blocks.rows))
        second = self.names.axis("program", _blocks(inner, blocks.inner))
        tile = self.points_of(
            self.rows, lift(first), blocks.rows, [self.points_of(point, lift(second), blocks.inner, body)]
        )
        programs = For(second, ZERO, (second.extent,), (tile,), "program", 1)
        return [For(first, ZERO, (first.extent,), (programs,), "program")]

    # ---- scans and scatters

    def scanned(self) -> list[Statement]:
        """Prefixes of a row, or of a chunk of it, a tile at a time."""
        *starts, step = self.given.steps()
        (scanned,), chunk, n = step.red, self.given.chunk, step.red[0].extent
        acc, name = f"{step.out}_acc", f"{step.out}_run"
        statements: list[Statement] = [Acc(acc, step.kind.removeprefix("cum"), step.body.dtype)]
        statements += [self.begun(acc, start) for start in starts]
        point = self.names.axis("r", chunk or n)
        begin = self.here[self.walk.rows[0]] * chunk if chunk else ZERO
        env = {**self.here, scanned: begin + lift(point)}
        body = (Run(acc, (self.value(step.body, env),), name), self.kept(step, env, number(name, step.dtype)))
        size = self.walk.blocks.inner
        if chunk:
            whole = _divides(chunk, n) and chunk % size == 0
            high, ends = ((lift(chunk),), "none") if whole else ((lift(chunk), n - begin), "mask")
        else:
            high, ends = (n,), "none" if _divides(size, n) else "always" if n.const() is None else "peel"
        return [*statements, For(point, ZERO, high, body, binds=(self.lane,), ends=ends)]

    def begun(self, acc: str, start: Nest) -> Fold:
        """Go on from what a row starts from; where that is nothing, the rest of it isn't read."""
        body = start.body
        if body.op != "where" or body.args[2].op != "const":
            return Fold(acc, (self.value(body, self.here),))
        follows, before, _ = body.args
        return Fold(acc, (self.value(before, self.here),), self.value(follows, self.here))

    def updated(self) -> list[Statement]:
        """Checks of a point, then its update."""
        *checks, step = self.given.steps()
        parts = scatter_of(step)
        assert parts is not None, "not a scatter"
        statements = [self.kept(check, self.here, self.value(check.body, self.here)) for check in checks]
        index = tuple(
            i.subst(self.here) if isinstance(i, IndexExpr) else self.value(i, self.here) for i in parts.index
        )  # fmt: skip
        place = element_number(index, self.buffers[step.out].strides)
        return [*statements, Update(UPDATES[step.kind], step.out, place, self.value(parts.value, self.here), "atomic")]

    # ---- values

    def value(self, body: Val, env: Env, point: Atom | None = None) -> Val:
        """A value at a point, over element numbers and what the row has."""

        def held(v: Val) -> Val | None:
            if v in self.staged and point is not None:
                return load(self.staged[v], (lift(point),), v.dtype)
            return self.numbers.get(v.args[0])

        return flat_value(exact(body), env, self.buffers, held)

    def kept(self, step: Nest, env: Env, value: Val) -> Statement:
        """Store a value of a step, or check it."""
        if step.out in self.asserts:
            return Check(value, self.asserts[step.out])
        index = [lift(a).subst(env) for a in step.axes]
        place = element_number(index, self.buffers[step.out].strides)
        assert isinstance(place, IndexExpr), "a map's own point depends on no data"
        return Put(step.out, (place,), value)
