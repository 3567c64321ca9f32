"""Maps that read some operand across memory: square tiles are loaded along memory and transposed in registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from intarsia_cpp._body import Scope
from intarsia_cpp._context import Context
from intarsia_cpp._loops import lane_loops
from intarsia_cpp._ops import Rep, vector
from intarsia_cpp._parallel import pragma
from intarsia_cpp._text import block, loop
from intarsia_loops.index import Atom, axis, lift
from intarsia_loops.vectors.steps import Step
from intarsia_loops.vectors.walks import Maps, Tiling

__all__ = ["emit_tiled", "write_point"]


def emit_tiled(context: Context, maps: Maps, tiling: Tiling) -> list[str]:
    """Return the loops of a kernel in tiles; what whole tiles leave over is done as without them."""
    steps, square = maps.steps, tiling.square
    *others, lane = maps.loops
    outer = [a for a in others if a is not tiling.across]
    t, j, lanes = context.name_of(tiling.across), context.name_of(lane), context.lanes
    place = Scope(context, axes=outer)
    tile = _tile(place, steps, tiling, lane)
    for name in (j, t):
        tile = block(loop(f"{name}_tile", f"{name}_square", f"{name}_end", lanes), tile)
    ends = [_smaller(f"{name}_end", f"{name}_square + {square}", f"{name}_whole") for name in (t, j)]
    heads = [loop(context.name_of(a), "0", context.c(a.extent)) for a in outer]
    heads += [loop(f"{name}_square", "0", f"{name}_whole", square) for name in (t, j)]
    first = pragma(context, "parallel for", len(heads), maps.share)
    wholes = [
        f"const i64 {name}_whole = {context.c(a.extent)} & -{lanes};" for name, a in ((t, tiling.across), (j, lane))
    ]
    looped = [*heads[:-1], *block(heads[-1], [*ends, *place.lines, *tile])]
    return [*wholes, *([first] if first else []), *looped, *_rest(context, outer, steps, tiling, lane)]


def _smaller(name: str, a: str, b: str) -> str:
    return f"const i64 {name} = {a} < {b} ? {a} : {b};"


def _tile(place: Scope, steps: Sequence[Step], tiling: Tiling, lane: Atom) -> list[str]:
    """One square tile: load lines of the transposed operands, turn them, work along the lanes, turn results back."""
    context, lanes = place.context, place.context.lanes
    t, k = context.name_of(tiling.across), axis("k", lanes)
    index = context.name_of(k)
    # a line of a transposed operand lies along `across`; lines are counted along the lanes
    along = {lane: lift(lane) + lift(k), tiling.across: lift(axis(f"{t}_tile", tiling.square))}
    column = Scope(context, place, (lane,), lane)
    scope = Scope(context, column, (tiling.across,))
    lines = [f"const i64 {context.name_of(lane)} = {context.name_of(lane)}_tile;"]
    for v in tiling.loads:
        tile, ctype = context.temp("tile"), vector(v.dtype, lanes)
        place_of = f"{context.pointer(v.args[0])} + {context.c(v.args[1][0].subst(along))}"
        lines.append(f"{ctype} {tile}[{lanes}];")
        lines += [*_counted(index, lanes, [f"{tile}[{index}] = ld<{ctype}>({place_of});"]), f"transpose({tile});"]
        scope.give(v, Rep(f"{tile}[{index}]", v.dtype, ctype))
    results = {b: context.temp("tile") for b in tiling.stores}
    after: list[str] = []
    for step in steps:
        if step.out in results:
            tile = results[step.out]
            lines.append(f"{vector(step.dtype, lanes)} {tile}[{lanes}];")
            target = f"{context.pointer(step.out)} + {context.c(step.address.subst(along))}"
            after += [f"transpose({tile});", *_counted(index, lanes, [f"st({target}, {tile}[{index}]);"])]
    write_point(scope, steps, {b: f"{tile}[{index}]" for b, tile in results.items()})
    body = [f"const i64 {t} = {t}_tile + {index};", *scope.lines]
    return [*lines, *column.lines, *_counted(index, lanes, body), *after]


def _counted(name: str, n: int, lines: Sequence[str]) -> list[str]:
    return [f"#pragma GCC unroll {n}", *block(f"for (int {name} = 0; {name} < {n}; {name}++)", lines)]


def _rest(context: Context, outer: Sequence[Atom], steps: Sequence[Step], tiling: Tiling, lane: Atom) -> list[str]:
    """Columns past the last whole tile, and lines past it."""
    t, j, lanes = context.name_of(tiling.across), context.name_of(lane), context.lanes
    t_extent, j_extent = context.c(tiling.across.extent), context.c(lane.extent)
    lines: list[str] = []
    for cut, lines_of, columns in (
        (lane, ("0", f"{t}_whole"), (f"{j}_whole", j_extent)),
        (tiling.across, (f"{t}_whole", t_extent), ("0", j_extent)),
    ):
        extent = cut.extent.const()
        if extent is not None and extent % lanes == 0:
            continue
        scope = Scope(context, axes=(*outer, tiling.across))
        inner = lane_loops(scope, lane, lambda s, _: write_point(s, steps), bounds=columns)
        heads = [loop(context.name_of(a), "0", context.c(a.extent)) for a in outer]
        heads.append(loop(t, *lines_of))
        lines += [*heads[:-1], *block(heads[-1], [*scope.lines, *inner])]
    return lines


def write_point(scope: Scope, steps: Sequence[Step], kept: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write the statements of maps at one vector of points.

    Args:
        scope: Where.
        steps: The maps, in order.
        kept: Buffer -> C variable that takes its values instead of memory.
    """
    for step in steps:
        rep = scope.known[step.out] = scope.name(scope.value(step.body))
        if step.out in kept:
            scope.lines.append(f"{kept[step.out]} = {rep.text};")
        elif step.in_memory:
            scope.store(step.out, step.address, rep)
