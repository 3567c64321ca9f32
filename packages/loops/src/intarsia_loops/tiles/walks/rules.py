"""The rules of walks of vectors and threads.

T13: a walk is all that its launch does; it writes what its steps write to memory, and no loop of it has a name twice.
T14: vectors have at least a lane, and no more than a register of the target holds of the widest type computed with,
    places of reads that loops inside rows don't change apart.
T15: threads that share loops are no more than the target has; pieces and parts are none or some, and lanes are along
    a loop; whatever is shared by threads is shared once, and of a scatter a loop with which places move; lanes whose
    places are neighbours move them by one.
T16: a nest's words are known, and what it is fits: a scan has one loop and one step, a reduction at each point one
    step; accumulators are joined two by two; chains are of sums of floats, and as long as is said; a search for a
    position takes points one by one, and counts in a type that they fit; what a scan goes on with is as wide as its
    type allows.
T17: what is transposed lies along another loop than the last, in squares of whole vectors; a block of rows is of one
    row axis, and of whole vectors; what a row keeps is its own, and on a stack only with a known length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from intarsia_ir.dtypes import itemsize
from intarsia_ir.records import Target
from intarsia_loops.index import ONE, Atom
from intarsia_loops.ops import FLOATS, NEST_KINDS
from intarsia_loops.program import Buffer, Val
from intarsia_loops.rewrites import postorder
from intarsia_loops.tiles.walks.points import is_float_sum
from intarsia_loops.vectors.steps import Block, Step, row_positions
from intarsia_loops.vectors.walks import Inner, Maps, Part, Points, Rows, Share, Tiling, VectorWalk

__all__ = ["check_walk"]

Add = Callable[[str, str, str], None]
KINDS = ("once", "shared", "folds", "scan", "along", "across")
CARRIES = ("plain", "wide", "errors")


def check_walk(walk: VectorWalk, buffers: Mapping[str, Buffer], target: Target, add: Add) -> None:
    """Check a walk against the rules above.

    Args:
        walk: The walk.
        buffers: The buffers that it may touch, by their names in it.
        target: What for.
        add: Takes a rule, what is wrong, and what it is about.
    """
    made = {s.out for s in walk.steps() if s.in_memory}
    if not made <= {*walk.outs} or (walk.parts and made != {*walk.outs}):
        add("T13", f"writes {sorted(made)} and says {sorted(walk.outs)}", "")
    for name in sorted({n for names in walk.touched() for n in names} - buffers.keys()):
        add("T13", "is used and no parameter", name)
    for step in walk.steps():
        if step.kind not in NEST_KINDS:
            add("T16", f"no nest is of kind {step.kind}", step.out)
            return
        fits = step.counted == "i64" or (step.counted == "i32" and step.position.hi < 1 << 31)
        if not fits:
            add("T16", f"counts up to {step.position.hi} in {step.counted}", step.out)
    for part in walk.parts:
        _part(part, target, add)


def _part(part: Part, target: Target, add: Add) -> None:
    _lanes(part, target, add)
    _share(part.share, target, add)
    match part:
        case Maps():
            _maps(part, add)
        case Rows():
            _rows(part, target, add)
        case Points():
            _points(part, target, add)


def _lanes(part: Part, target: Target, add: Add) -> None:
    types = set[str]()
    for s in _steps(part):
        alone = frozenset[Val]() if isinstance(part, Maps) else row_positions(s.inner + s.red, s.body)
        types |= {v.dtype for v in postorder(s.body) if v not in alone}
    widest = max(4, *map(itemsize, types)) if types else 4
    most = max(1, target.machine.vector_bytes // widest)
    if not 1 <= part.lanes <= most:
        add("T14", f"{part.lanes} lanes of a register of {target.machine.vector_bytes} bytes, which has {most}", "")


def _steps(part: Part) -> Sequence[Step]:
    if isinstance(part, Rows):
        return [s for inner in part.inner for s in inner.steps]
    return part.steps if isinstance(part, Maps) else (part.step,)


def _share(share: Share | None, target: Target, add: Add) -> None:
    if share is not None and not (1 < share.threads <= max(target.threads, 2) and share.least >= 0):
        add("T15", f"{share.threads} threads of {target.threads} share loops, from {share.least} points on", "")


def _once(loops: Sequence[Atom], add: Add) -> None:
    names = [a.key for a in loops]
    for name in sorted({n for n in names if names.count(n) > 1}):
        add("T13", f"two loops are called {name}", name)


# ---- the kinds of parts -----------------------------------------------------------------------------------------


def _maps(part: Maps, add: Add) -> None:
    _once(part.loops, add)
    if not part.loops or part.pieces < 0:
        add("T15", f"{part.pieces} pieces of {len(part.loops)} loops", "")
    if any(s.kind != "map" for s in part.steps):
        add("T16", "something other than maps is in a pass over memory", "")
    if part.tiling is not None and part.loops:
        _tiling(part, part.tiling, add)


def _tiling(part: Maps, tiling: Tiling, add: Add) -> None:
    loads = {v for s in part.steps for v in postorder(s.body) if v.op == "load"}
    stores = {s.out for s in part.steps if s.in_memory}
    known = {*tiling.loads} <= loads and {*tiling.stores} <= stores
    if tiling.across not in part.loops[:-1] or not known or part.pieces:
        add("T17", f"what lies along {tiling.across.key} is transposed, and is nothing of this pass", "")
    if tiling.square < 1 or tiling.square % max(part.lanes, 1):
        add("T17", f"squares of {tiling.square} aren't whole vectors of {part.lanes}", "")


def _rows(part: Rows, target: Target, add: Add) -> None:
    _once(part.rows, add)
    block = part.block
    if block is not None:
        _block(part, block, add)
    kept = {s.out for s in _steps(part) if not s.in_memory}
    if not part.stored <= kept & part.arrays.keys():
        add("T17", f"keeps {sorted(part.stored)} in arrays, and has {sorted(kept & part.arrays.keys())}", "")
    elif not part.heap and any(part.arrays[b].length.const() is None for b in part.stored):
        add("T17", "has an array of unknown length on the stack", "")
    if any(a.block != block for a in part.arrays.values()):
        add("T17", "has arrays of other blocks of rows", "")
    for inner in part.inner:
        _once([*part.rows, *inner.outer, *inner.loops], add)
        _share(inner.share, target, add)
        if inner.share is not None and part.share is not None:
            add("T15", "threads share rows, and loops in them", "")
        _inner(inner, block, part.lanes, add)


def _block(part: Rows, block: Block, add: Add) -> None:
    if not 0 <= block.position < len(part.rows):
        add("T17", f"a block is of row axis {block.position} of {len(part.rows)}", "")
    elif block.start.extent is not part.rows[block.position].extent or block.start in part.rows:
        add("T17", f"a block starts at {block.start.key}, which isn't a number of a row", "")
    if block.width < 1 or block.width % max(part.lanes, 1):
        add("T17", f"a block of {block.width} rows isn't whole vectors of {part.lanes}", "")


def _inner(inner: Inner, block: Block | None, lanes: int, add: Add) -> None:
    folds = [s for s in inner.steps if s.is_fold]
    scans = [s for s in inner.steps if s.is_scan]
    alone = len(inner.steps) == 1
    sound = {
        "once": not inner.loops and not folds and not scans,
        "shared": bool(inner.loops) and not scans,
        "folds": bool(inner.loops) and len(folds) == len(inner.steps) and block is not None,
        "scan": alone and len(scans) == 1 and len(inner.loops) == 1,
        "along": alone and len(folds) == 1 and bool(inner.loops) and bool(inner.outer),
        "across": alone and len(folds) == 1 and bool(inner.loops) and bool(inner.outer) and block is None,
    }
    where = ", ".join(s.out for s in inner.steps)
    if not sound.get(inner.kind, False):
        add("T16", f"a nest of kind {inner.kind} has loops {[a.key for a in inner.loops]}", where)
    if inner.unroll < 1 or (block is None and inner.unroll & (inner.unroll - 1)):
        add("T16", f"{inner.unroll} accumulators can't be joined two by two", where)
    if block is not None and inner.unroll > 1 and (inner.kind != "folds" or any(map(_is_search, folds))):
        add("T16", f"{inner.unroll} lines are folded before they reach an accumulator", where)
    if inner.parts < 1 or (inner.parts > 1 and inner.kind not in ("shared", "folds")):
        add("T15", f"a nest of kind {inner.kind} is in {inner.parts} parts", where)
    _chain(inner, inner.unroll * lanes if block is None else 1, where, add)
    _carry(inner, block, where, add)


def _chain(inner: Inner, unit: int, where: str, add: Add) -> None:
    if not inner.chain:
        if inner.length or inner.cut:
            add("T16", f"chains of {inner.length} points, and none", where)
        return
    extent = inner.loops[-1].extent.const() if inner.loops else 0
    sums = any(is_float_sum(s) for s in inner.steps)
    cut = extent is None or extent > 2 * inner.length
    if inner.chain < 0 or not sums or inner.length != inner.chain * unit or inner.cut != cut:
        add("T16", f"chains of {inner.chain} numbers are {inner.length} of {extent} points", where)


def _carry(inner: Inner, block: Block | None, where: str, add: Add) -> None:
    if inner.carry not in CARRIES or (inner.kind != "scan" and inner.carry != "plain"):
        add("T16", f"goes on with {inner.carry}", where)
        return
    types = {s.dtype for s in inner.steps}
    wide = inner.carry != "wide" or (types == {"f32"} and block is None)
    errors = inner.carry != "errors" or (
        types <= FLOATS and block is not None and all(s.kind == "cumsum" for s in inner.steps)
    )
    if not (wide and errors):
        add("T16", f"a scan of {sorted(types)} goes on with {inner.carry}", where)


def _is_search(step: Step) -> bool:
    return step.kind in ("argmax", "argmin")


def _points(part: Points, target: Target, add: Add) -> None:
    _once(part.loops, add)
    if not NEST_KINDS[part.step.kind].scatter:
        add("T16", f"points of a nest of kind {part.step.kind}", part.step.out)
    if part.split is not None and part.split not in (*part.loops, part.lane):
        add("T15", f"threads share {part.split.key}, which is no loop", part.step.out)
    if part.loops and part.lane not in part.loops:
        add("T15", f"lanes run along {part.lane.key}, which is no loop", part.step.out)
    if not 1 <= part.threads <= max(target.threads, 1) or (part.share is not None and part.split is None):
        add("T15", f"{part.threads} threads of {target.threads} share points", part.step.out)
    if part.split is not None and part.split not in part.fixed.axes():
        add("T15", f"threads share {part.split.key}, with which places don't move", part.step.out)
    moved = part.fixed.coef(part.lane)
    if part.neighbours and (moved is None or moved[0] is not ONE):
        add("T15", f"neighbours along {part.lane.key} are at {part.fixed}", part.step.out)
