"""Maps that read some operand across memory: square tiles are loaded along memory and transposed in registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from intarsia_cpp._body import Scope
from intarsia_cpp._context import Context
from intarsia_cpp._loops import lane_loops
from intarsia_cpp._ops import Rep, vector
from intarsia_cpp._parallel import pragma
from intarsia_cpp._text import block, loop
from intarsia_loops.addresses import product
from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr, axis, lift
from intarsia_loops.program import Val
from intarsia_loops.rewrites import postorder
from intarsia_loops.vectors.steps import Step

__all__ = ["Tiling", "emit_tiled", "find_tiling"]

# Tiles are visited in squares of this many elements, so that lines of memory are used whole while they are cached.
SQUARE = 64


@dataclass(frozen=True, slots=True)
class Tiling:
    """What is transposed.

    Args:
        across: The loop along which the transposed operands and results lie in memory.
        loads: Those operands.
        stores: The buffers of those results.
    """

    across: Atom
    loads: tuple[Val, ...]
    stores: tuple[str, ...]


def find_tiling(context: Context, axes: Sequence[Atom], steps: Sequence[Step]) -> Tiling | None:
    """Return the operands that tiles help, or None.

    Args:
        context: The kernel.
        axes: Loops, the one over lanes last.
        steps: Maps over them.
    """
    *outer, lane = axes
    if not _long_enough(context, lane):
        return None
    made = {s.out for s in steps}
    loads = dict.fromkeys(u for s in steps for u in postorder(s.body) if u.op == "load" and u.args[0] not in made)
    accesses: list[tuple[Val | str, IndexExpr]] = [(v, v.args[1][0]) for v in loads if v.dtype != "b8"]
    accesses += [(s.out, s.address) for s in steps if s.in_memory and s.dtype != "b8"]
    found: dict[Atom, list[Val | str]] = {}
    for access, address in accesses:
        split = address.coef(lane)
        if split is None or split[0] is ONE or split[0] is ZERO:
            continue
        for a in outer:
            along = address.coef(a)
            if along is not None and along[0] is ONE and _long_enough(context, a):
                found.setdefault(a, []).append(access)
    if not found:
        return None
    across = max(found, key=lambda a: (len(found[a]), -outer.index(a)))
    ours = found[across]
    return Tiling(across, tuple(v for v in ours if type(v) is Val), tuple(b for b in ours if type(b) is str))


def _long_enough(context: Context, a: Atom) -> bool:
    extent = a.extent.const()
    return extent is None or extent >= context.lanes


def emit_tiled(context: Context, axes: Sequence[Atom], steps: Sequence[Step], tiling: Tiling) -> list[str]:
    """Return the loops of a kernel in tiles; what whole tiles leave over is done as without them."""
    *others, lane = axes
    outer = [a for a in others if a is not tiling.across]
    t, j, lanes = context.name_of(tiling.across), context.name_of(lane), context.lanes
    place = Scope(context, axes=outer)
    tile = _tile(place, steps, tiling, lane)
    for name in (j, t):
        tile = block(loop(f"{name}_tile", f"{name}_square", f"{name}_end", lanes), tile)
    ends = [_smaller(f"{name}_end", f"{name}_square + {SQUARE}", f"{name}_whole") for name in (t, j)]
    heads = [loop(context.name_of(a), "0", context.c(a.extent)) for a in outer]
    heads += [loop(f"{name}_square", "0", f"{name}_whole", SQUARE) for name in (t, j)]
    points = product(tuple(a.extent for a in axes))
    first = pragma(context, "parallel for", len(heads), points, 2 * context.cost(tuple(steps)))
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
    along = {lane: lift(lane) + lift(k), tiling.across: lift(axis(f"{t}_tile", SQUARE))}
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
