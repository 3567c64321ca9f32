"""What is counted of a walk in vectors: what a CPU does for a kernel, by the loops that its schedule makes.

addition, quotient, function, slow, dear   operations of a vector: cheap ones, divisions and roots, exponentials and
                                           logarithms, the other elementary functions, those that are long
fold, extremum                             vectors that a reduction takes in
move, again                                vectors loaded and stored: each element of a buffer once, or over and over
strided, turned                            elements of vectors whose lanes lie apart, and those transposed in registers
serial                                     points of scans
loop, kernel                               how often a nest of loops starts, and a kernel
wake                                       loops for which threads are woken
near, middle, far, away                    bytes of a kernel's buffers, by how many there are: the level that holds them

A value that is the same all along the innermost loop is computed once for it, where the walk hoists such values. What
threads share is counted once for all of them: what each does; bytes are shared as the widest loop is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from intarsia_ir.dtypes import itemsize
from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr
from intarsia_loops.launches import LaunchPlan
from intarsia_loops.program import Val
from intarsia_loops.rewrites import operands, postorder
from intarsia_loops.sizes import Sizes
from intarsia_loops.vectors.axes import lane_step
from intarsia_loops.vectors.steps import Step, accesses
from intarsia_loops.vectors.walks import Maps, Part, Points, Rows, Share, VectorWalk
from intarsia_loops.vectors.work import HEAVY
from intarsia_scheduler.costs.prices import Tally

__all__ = ["vector_counts"]

QUOTIENTS = frozenset({"div", "sqrt", "rsqrt"})
FUNCTIONS = frozenset({"exp", "exp2", "log", "log2"})
LONG = 30  # weight from which on an operation is a long one
LEVELS = ((1 << 18, "near"), (1 << 20, "middle"), (1 << 22, "far"))


def vector_counts(launch: LaunchPlan, walk: VectorWalk, sizes: Sizes) -> Tally:
    """Return what is counted of a launch on a CPU; `sizes`: numbers for symbolic ones."""
    found = Tally({"kernel": 1.0})
    reads, writes = walk.touched()
    widest, shared = 1, set[Share]()
    for part in walk.parts:
        kept = writes | (part.stored if isinstance(part, Rows) else frozenset())
        for nest in _nests(part, sizes):
            found.add({name: n / nest.threads for name, n in _counted(nest, kept).items()})
            widest = max(widest, nest.threads)
            shared |= {nest.share} if nest.share is not None else set()
    layouts = [launch.layouts[b] for b in reads | writes]
    n_bytes = sum(sizes.elements(layout.shape) * itemsize(layout.dtype) for layout in layouts)
    found[next((level for most, level in LEVELS if n_bytes <= most), "away")] += n_bytes / widest
    if shared:
        found["wake"] += len(shared)
    return found


@dataclass(frozen=True, slots=True)
class _Nest:
    """Steps in one nest: its loops, outermost first, and the one that lanes run along."""

    loops: Sequence[Atom]
    steps: Sequence[Step]
    lane: Atom | None
    sizes: Sizes
    lanes: int
    share: Share | None
    is_scan: bool = False
    is_turned: bool = False
    hoists: bool = True

    @property
    def points(self) -> int:
        """Points of all loops."""
        return self.sizes.product(self.loops)

    @property
    def threads(self) -> int:
        """Threads that are at work."""
        return 1 if self.share is None else max(1, min(self.share.threads, self.sizes(self.share.points)))

    @property
    def vectors(self) -> float:
        """Vectors of all points; ends that aren't full are as dear."""
        if self.lane is None:
            return self.points
        n = self.sizes(self.lane.extent)
        return self.points // max(n, 1) * -(-n // self.lanes)

    @property
    def starts(self) -> float:
        """How often the innermost loop starts."""
        if not self.loops:
            return self.vectors
        n = self.sizes(self.loops[-1].extent)
        return self.vectors / max(1, -(-n // self.lanes) if self.loops[-1] is self.lane else n)


def _nests(part: Part, sizes: Sizes) -> Iterator[_Nest]:
    hoists = part.manner.hoist
    if isinstance(part, Maps):
        is_turned = part.tiling is not None
        lane: Atom | None = part.loops[-1]
        yield _Nest(part.loops, part.steps, lane, sizes, part.lanes, part.share, is_turned=is_turned, hoists=hoists)
    elif isinstance(part, Points):
        lane = part.lane if part.neighbours else None
        yield _Nest(part.loops, (part.step,), lane, sizes, part.lanes, part.share, hoists=hoists)
    else:
        yield from _row_nests(part, sizes)


def _row_nests(part: Rows, sizes: Sizes) -> Iterator[_Nest]:
    for inner in part.inner:
        loops = (*part.rows, *inner.outer, *inner.loops)
        if part.block is not None:
            lane: Atom | None = part.rows[part.block.position]
        else:
            lane = inner.outer[-1] if inner.kind == "across" else inner.loops[-1] if inner.loops else None
        share, is_scan = part.share or inner.share, inner.kind == "scan"
        yield _Nest(loops, inner.steps, lane, sizes, part.lanes, share, is_scan, hoists=part.manner.hoist)


def _counted(nest: _Nest, kept: Collection[str]) -> Tally:
    """Count a nest; `kept`: buffers that are stored, in memory or in a row's array."""
    found = Tally({"loop": nest.starts})
    for v, axes in _reaches(nest.steps).items():
        if v.op not in ("load", "gather", "const"):
            found[_kind(v.op)] += _times(nest, axes)
    here = {s.out for s in nest.steps if nest.is_scan or not s.is_fold}
    for step in nest.steps:
        if nest.is_scan:
            found["serial"] += nest.points
        elif step.is_fold:
            found["fold" if step.kind == "sum" else "extremum"] += nest.vectors
        for v, address, moving in accesses(step.body):
            if v.args[0] not in here:
                found.add(_moved(nest, address, nest.lane is not None and nest.lane in moving))
        if not step.is_fold and step.out in kept:
            found.add(_moved(nest, step.address, False, stores=True))
    return found


def _moved(nest: _Nest, address: IndexExpr, is_gathered: bool, *, stores: bool = False) -> Mapping[str, float]:
    """What a read or a store costs in all vectors of a nest."""
    axes = frozenset(address.axes())
    if nest.lane is None:
        return {"move": _times(nest, axes)}
    walk = None if is_gathered else lane_step(address, nest.lane, nest.lanes)
    if walk is ZERO:
        return {"move": nest.vectors if stores else _times(nest, axes)}
    if walk is not ONE:
        return {"turned" if nest.is_turned else "strided": nest.vectors * nest.lanes}
    is_stream = all(a in axes or nest.sizes(a.extent) == 1 for a in nest.loops)
    return {"move" if stores or is_stream else "again": nest.vectors}


def _times(nest: _Nest, axes: Collection[Atom]) -> float:
    """How often something is done that depends on these axes."""
    innermost = nest.loops[-1] if nest.loops else None
    if innermost is None or not nest.hoists or innermost in axes or (nest.lane in axes and innermost is nest.lane):
        return nest.vectors
    return nest.starts


def _reaches(steps: Sequence[Step]) -> dict[Val, frozenset[Atom]]:
    """Return the loop variables that each value depends on."""
    reached: dict[Val, frozenset[Atom]] = {}
    made: dict[str, frozenset[Atom]] = {}
    for step in steps:
        for v in postorder(step.body):
            axes = frozenset[Atom]().union(*(reached[a] for a in operands(v)))
            entries = v.args[1] if v.op in ("load", "gather") else v.args[:1] if v.op == "index" else ()
            axes |= {a for e in entries if isinstance(e, IndexExpr) for a in e.axes()}
            reached[v] = axes | (made.get(v.args[0], frozenset()) if v.op in ("load", "gather") else frozenset())
        made[step.out] = reached[step.body]
    return reached


def _kind(op: str) -> str:
    if op in QUOTIENTS:
        return "quotient"
    if op in FUNCTIONS:
        return "function"
    weight = HEAVY.get(op, 1)
    return "addition" if weight == 1 else "dear" if weight >= LONG else "slow"
