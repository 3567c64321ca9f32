"""What is counted of a walk in tiles: what a GPU does for a kernel, by the launches that its schedule makes.

light, heavy    points times cheap operations, and times functions by their weight
near, far       bytes of buffers, each once: of launches that the last cache holds, and of others
again           bytes that are read once more, out of that cache
apart           elements whose neighbours in a tile lie apart in memory, so that a sector is read for each
tiles           tiles that one program walks after the other, in so many waves of programs as there are
serial          points of scans in a program
launch          launches
kernel          1

All but the last four are divided by the part of the processors that have a program. What steps of one tile have in
common is loaded and computed once for it, and what is the same along a side of a tile once for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from intarsia_ir.dtypes import itemsize
from intarsia_ir.records import Machine
from intarsia_loops.addresses import address
from intarsia_loops.forms import exact
from intarsia_loops.index import ONE, Atom, IndexExpr, lift
from intarsia_loops.launches import LaunchPlan, Walk
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Nest, Val
from intarsia_loops.rewrites import operands, postorder
from intarsia_loops.sizes import Sizes
from intarsia_loops.vectors.axes import lane_step
from intarsia_loops.vectors.work import HEAVY
from intarsia_scheduler.costs.prices import Tally

__all__ = ["grid_counts"]

WARPS = 32  # of a processor at work at once
SECTOR = 8  # points on a side of a tile from which on what lies along it fills sectors


def grid_counts(launch: LaunchPlan, machine: Machine, sizes: Sizes) -> Tally:
    """Return what is counted of a launch on a GPU; `sizes`: numbers for symbolic ones."""
    walk = launch.walk
    assert walk is None or isinstance(walk, Walk), "a grid's launches are walked in tiles"
    programs, tiles = _programs(launch, walk, sizes)
    if not programs:  # of sizes as at capture: what is smaller than a part is left to the launch that finishes
        return Tally({"launch": 1.0})
    busy = min(1.0, programs / machine.processors)
    warps = walk.blocks.warps if walk else 4
    waves = max(1.0, programs * warps / (machine.processors * WARPS))
    found = Tally({"launch": 1.0, "tiles": waves * tiles})
    points = _work(launch, walk, sizes)
    moved = _moved(launch, walk, machine, sizes)
    found.add({name: n * len(launch.sets) / busy for name, n in (points | moved).items()})
    if any(NEST_KINDS[s.kind].scan for s in launch.kernel.steps) and walk:
        found["serial"] += waves * tiles * walk.blocks.inner
    if launch.finish is not None:
        found["tiles"] += 2.0  # the last program reads what the others stored
    return found


def _programs(launch: LaunchPlan, walk: Walk | None, sizes: Sizes) -> tuple[float, float]:
    """Return how many programs there are, and how many tiles one of them walks."""
    if walk is None:
        return sizes.product(launch.kernel.rows) / 128, 1.0
    programs = float(len(launch.sets) * -(-sizes.product(walk.rows) // walk.blocks.rows))
    if walk.kind == "points":
        return programs * -(-sizes.product(walk.inner) // walk.blocks.inner), 1.0
    inner = [sizes.product(loop.inner) for loop in walk.loops if loop.inner]
    if walk.kind == "scan":
        inner = [launch.chunk or sizes.product(launch.kernel.steps[-1].red)]
    return programs, float(sum(-(-n // walk.blocks.inner) for n in inner)) or 1.0


class _Step(NamedTuple):
    """A step, or a sum that shares the walk of another: which tile it is in, the axes around it, what it computes."""

    tile: int
    around: tuple[Atom, ...]
    nest: Nest
    bodies: tuple[Val, ...]


def _steps(launch: LaunchPlan, walk: Walk | None) -> Iterator[_Step]:
    if walk is None or walk.kind not in ("rows", "points"):
        for k, step in enumerate(launch.kernel.steps):
            yield _Step(k, tuple(dict.fromkeys((*step.axes, *step.red))), step, (step.body,))
        return
    for k, loop in enumerate(walk.loops):
        tile = 0 if walk.blocks.persistent or walk.kind == "points" else k
        around = (*walk.rows, *walk.inner, *loop.inner)
        for step in loop.steps:
            yield _Step(tile, around, step, (exact(step.body),))
        for exps in loop.sums:
            yield _Step(tile, around, exps.step, (exps.step.body,))
        for squares in loop.squares:
            yield _Step(tile, around, squares.step, (exact(squares.value),))


def _work(launch: LaunchPlan, walk: Walk | None, sizes: Sizes) -> Tally:
    """Operations: what several steps of one tile compute, once; what is the same along a side of it, once a tile."""
    found, times = Tally(), Tally()
    work: dict[str, float] = {}
    axes: dict[Val, frozenset[Atom]] = {}
    for step in _steps(launch, walk):
        found["light"] += sizes.product(step.around) * (step.nest.kind != "map")
        for v in (v for body in step.bodies for v in postorder(body)):
            axes[v] = _depends_on(v, axes)
            if v.op not in ("load", "const"):
                key = f"{step.tile} {id(v)}"
                work[key] = HEAVY.get(v.op, 1)
                times[key] = max(times[key], _times(step.around, axes[v], walk, sizes))
    for key, weight in work.items():
        found["light" if weight == 1 else "heavy"] += weight * times[key]
    return found


def _depends_on(v: Val, known: Mapping[Val, frozenset[Atom]]) -> frozenset[Atom]:
    entries = v.args if v.op == "index" else v.args[1] if v.op in ("load", "gather") else ()
    own = frozenset(a for e in entries if isinstance(e, IndexExpr) for a in e.axes())
    return own.union(*(known[a] for a in operands(v)))


def _times(around: Sequence[Atom], axes: frozenset[Atom], walk: Walk | None, sizes: Sizes) -> float:
    """Points at which a value is computed that depends on these axes: along rows, and along what they walk."""
    if walk is None or walk.kind not in ("rows", "points"):
        return sizes.product(around)
    rows, inner = walk.rows, [a for a in around if a not in walk.rows]
    along_rows = sizes.product(rows) if axes & {*rows} else -(-sizes.product(rows) // walk.blocks.rows)
    return float(along_rows * (sizes.product(inner) if axes & {*inner} else 1))


def _moved(launch: LaunchPlan, walk: Walk | None, machine: Machine, sizes: Sizes) -> Tally:
    """Bytes of each buffer once, those that are walked again, and elements that lie apart."""
    whole: dict[str, float] = {}
    walked = Tally()
    found = Tally()
    lanes = _lanes(launch, walk)
    loaded: set[object] = set()  # by tile: its steps share what one of them has loaded
    for tile, around, step, bodies in _steps(launch, walk):
        for buffer, index in _accesses(step, bodies, launch.layouts):
            if (tile, buffer, index) in loaded:
                continue
            loaded.add((tile, buffer, index))
            layout = launch.layouts[buffer]
            place = _place(index, layout)
            points = (
                sizes.product([a for a in around if a in place.axes()]) if place is not None else sizes.product(around)
            )
            size, n = itemsize(layout.dtype), sizes.elements(layout.shape)
            touched = min(points, n) * size
            whole[buffer] = max(whole.get(buffer, 0.0), touched)
            walked[buffer] = (
                max(walked[buffer], touched) if walk and walk.blocks.persistent else walked[buffer] + touched
            )
            if place is None or not _is_side_by_side(place, lanes):
                found["apart"] += points
    total = sum(whole.values())
    found["near" if total <= machine.l2_bytes / 2 else "far"] += total
    found["again"] += sum(walked.values()) - total
    return found


def _lanes(launch: LaunchPlan, walk: Walk | None) -> tuple[Atom, ...]:
    """Axes along which a tile has many points."""
    if walk is None:
        return launch.kernel.rows[-1:]
    sides: list[Atom] = []
    if walk.kind == "scan":
        sides += launch.kernel.steps[-1].red
    if walk.kind == "points":
        sides += walk.inner[-1:]
    sides += [loop.inner[-1] for loop in walk.loops if loop.inner]
    if walk.blocks.rows >= SECTOR or not sides:
        sides += walk.rows[-1:]
    return tuple(sides)


def _is_side_by_side(place: IndexExpr, lanes: Iterable[Atom]) -> bool:
    """Tell whether elements that a tile takes are neighbours in memory, or one."""
    varying = [a for a in lanes if a in place.axes()]
    return not varying or any(lane_step(place, a, SECTOR) is ONE for a in varying)


def _accesses(
    step: Nest, bodies: Sequence[Val], layouts: Mapping[str, Buffer]
) -> Iterator[tuple[str, tuple[IndexExpr | Val, ...]]]:
    for v in dict.fromkeys(v for body in bodies for v in body.loads):
        if v.args[0] in layouts:
            yield v.args[0], v.args[1]
    if step.out in layouts:
        yield step.out, tuple(map(lift, step.axes))


def _place(index: Sequence[IndexExpr | Val], layout: Buffer) -> IndexExpr | None:
    """The element that is touched; None where data say which."""
    known = [e for e in index if isinstance(e, IndexExpr)]
    return address(known, layout.strides) if len(known) == len(index) else None
