"""Walks of one pass over memory: maps, maps in squares that are turned in registers, and the points of a scatter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from intarsia_loops.index import ZERO, Atom, IndexExpr, lift
from intarsia_loops.program import Val, index_value, load, val
from intarsia_loops.rewrites import at, rebuild
from intarsia_loops.tiles.program import Bind, For, Hold, Put, Statement, Turn, Update
from intarsia_loops.tiles.walks.points import Names, across, around, span, stored, value, vectors
from intarsia_loops.vectors.steps import Step
from intarsia_loops.vectors.walks import Maps, Points, Tiling

__all__ = ["maps", "points"]

NONE: Mapping[str, str] = MappingProxyType({})


def maps(part: Maps, names: Names) -> list[Statement]:
    """Return the statements of maps over the rows."""
    if part.tiling is not None:
        return _squares(part, part.tiling, names)
    *outer, lane = part.loops
    who = across(part.share)
    return around(outer, _pieces(part, lane, names, who if part.pieces or not outer else "serial"), who)


def _pieces(part: Maps, lane: Atom, names: Names, who: str) -> list[Statement]:
    """The innermost loop, cut into pieces for threads or not."""
    binds = (Bind("lanes", part.lanes, names.new("l")),)
    body = _steps(part.steps, names)
    if not part.pieces:
        whole = vectors(lane, span(lane), body, binds)
        return [For(lane, whole.low, whole.high, whole.body, who, binds=binds, ends=whole.ends)]
    width = part.pieces * part.lanes
    chunk = (lane.extent + width - 1) // width * part.lanes
    constant, size = lane.extent.const(), chunk.const()
    n = part.pieces if constant is None or not size else -(-constant // size)  # the last of them may have nothing
    piece = names.axis("piece", n)
    low = lift(piece) * chunk
    return [For(piece, ZERO, (piece.extent,), (vectors(lane, (low, (low + chunk, lane.extent)), body, binds),), who)]


def _steps(
    steps: Sequence[Step], names: Names, here: _Turned | None = None, kept: Mapping[str, str] = NONE
) -> list[Statement]:
    """Maps at one point; those in `kept` go to the squares of these names instead of to memory."""
    statements: list[Statement] = []
    numbers: dict[str, Val] = {}
    for step in steps:
        name = names.new(f"{step.out}_v")
        body = step.body if here is None else rebuild(step.body, here.read)
        statements.append(Hold(name, "reg", (), step.dtype, 0, value(body, numbers)))
        numbers[step.out] = load(name, (), step.dtype)
        if here is not None and step.out in kept:
            statements.append(Put(kept[step.out], here.index, numbers[step.out]))
        elif step.in_memory:
            statements.append(stored(step if here is None else step.substituted(here.env), numbers[step.out]))
    return statements


@dataclass(frozen=True, slots=True)
class _Turned:
    """A point of a square: its place in the loops, its index, and what was read into squares."""

    env: Mapping[Atom, IndexExpr]
    index: tuple[IndexExpr, IndexExpr]
    given: Mapping[Val, Val]

    def read(self, v: Val) -> Val:
        return self.given[v] if v in self.given else at(v, self.env)


# ---- squares ----------------------------------------------------------------------------------------------------


def _squares(part: Maps, tiling: Tiling, names: Names) -> list[Statement]:
    """Whole squares, then the columns past the last of them, then the lines past it."""
    lanes, (*others, lane) = part.lanes, part.loops
    outer = [a for a in others if a is not tiling.across]
    n = tiling.square // lanes  # tiles along a side of what is visited at once
    tiles: list[IndexExpr] = []
    loops: list[tuple[Atom, Atom]] = []
    for a in (tiling.across, lane):
        whole = a.extent // lanes
        square, tile = names.axis("square", (whole + n - 1) // n), names.axis("tile", n)
        loops.append((square, tile))
        tiles.append((lift(square) * n + lift(tile)) * lanes)
    body = _tile(part, tiling, lane, (tiles[0], tiles[1]), names)
    for a, (square, tile) in zip((lane, tiling.across), reversed(loops), strict=True):
        left = a.extent // lanes - lift(square) * n
        body = [For(tile, ZERO, (lift(n), left), tuple(body))]
    who = across(part.share)
    statements = around([*outer, *(square for square, _ in loops)], body, who)
    return statements + _rest(part, tiling, outer, names)


def _tile(part: Maps, tiling: Tiling, lane: Atom, first: tuple[IndexExpr, IndexExpr], names: Names) -> list[Statement]:
    """One square: read lines of what lies across, turn it, work along the lanes, turn results back."""
    size = lift(part.lanes)
    k, x = names.axis("k", size), names.axis("x", size)

    def each(body: Sequence[Statement]) -> Statement:
        lines = For(x, ZERO, (size,), tuple(body), binds=(Bind("lanes", part.lanes, names.new("l")),))
        return For(k, ZERO, (size,), (lines,), binds=(Bind("unroll", part.lanes, names.new("u")),))

    # a line of what is turned lies along `across`; lines are counted along the lanes
    turned = {lane: first[1] + lift(k), tiling.across: first[0] + lift(x)}
    here = {lane: first[1] + lift(x), tiling.across: first[0] + lift(k)}
    statements: list[Statement] = []
    given: dict[Val, Val] = {}
    for v in tiling.loads:
        name = names.new(f"{v.args[0]}_turned")
        statements.append(Hold(name, "reg", (size, size), v.dtype))
        statements += [each([Put(name, (lift(k), lift(x)), value(at(v, turned), {}))]), Turn(name)]
        given[v] = load(name, (lift(k), lift(x)), v.dtype)
    kept: dict[str, str] = {}
    after: list[Statement] = []
    for step in part.steps:
        if step.out in tiling.stores:
            name = names.new(f"{step.out}_turned")
            kept[step.out] = name
            statements.append(Hold(name, "reg", (size, size), step.dtype))
            place = stored(step.substituted(turned), load(name, (lift(k), lift(x)), step.dtype))
            after += [Turn(name), each([place])]
    body = _steps(part.steps, names, _Turned(here, (lift(k), lift(x)), given), kept)
    return [*statements, each(body), *after]


def _rest(part: Maps, tiling: Tiling, outer: Sequence[Atom], names: Names) -> list[Statement]:
    *_, lane = part.loops
    statements: list[Statement] = []
    t, lanes = tiling.across, part.lanes
    t_whole, j_whole = (a.extent // lanes * lanes for a in (t, lane))
    for cut, lines, columns in (
        (lane, (ZERO, t_whole), (j_whole, lane.extent)), (t, (t_whole, t.extent), (ZERO, lane.extent)),
    ):  # fmt: skip
        constant = cut.extent.const()
        if constant is not None and constant % lanes == 0:
            continue
        body = _steps(part.steps, names)
        inner = vectors(lane, (columns[0], (columns[1],)), body, (Bind("lanes", lanes, names.new("l")),))
        statements += around(outer, [For(t, lines[0], (lines[1],), (inner,))])
    return statements


# ---- scatters ---------------------------------------------------------------------------------------------------


def points(part: Points, names: Names) -> list[Statement]:
    """Return the statements that fold the points of a scatter into its elements."""
    step, lane, split = part.step, part.lane, part.split
    place: IndexExpr | Val = part.fixed
    if part.moving is not None:
        place = value(part.moving, {})
        if part.fixed is not ZERO:
            place = val("add", place, index_value(part.fixed), dtype="i64")
    point_axes = [*([split] if split is not None else []), *([lane] if part.neighbours and lane is not split else [])]
    kind = step.kind.removeprefix("scatter_")
    who = across(part.share)
    # points that may meet come one after the other, also those of a vector
    bind = Bind("lanes" if part.neighbours else "unroll", part.lanes, names.new("l"))
    how = "vector" if part.neighbours else "ordered"
    inside = [a for a in part.loops if a is not split and a is not lane]

    def update(*more: Atom) -> Update:
        return Update(kind, step.out, place, value(part.value, {}), how, (*more, *point_axes))

    if split is not lane:
        body = around(inside, [vectors(lane, span(lane), [update()], (bind,))])
        return around([split], body, who) if split is not None else body
    width = part.threads * part.lanes
    chunk = (lane.extent + width - 1) // width * part.lanes
    piece = names.axis("piece", part.threads)
    low = lift(piece) * chunk
    body = around(inside, [vectors(lane, (low, (low + chunk, lane.extent)), [update(piece)], (bind,))])
    return [For(piece, ZERO, (piece.extent,), tuple(body), who)]
