"""How the programs of a grid do a launch, as one statement of tiles: all that Triton prints of it.

GridWalk   a walk with what it keeps to itself, what it asserts, what a chunk of a scan is, and who finishes
Ending     what the program does that arrives last in its group

Steps have an index a dimension, as in kernels. The layouts of buffers are the walk's own: a map that is merged with
what it reads may be over another shape of the same memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from intarsia_loops.index import IndexExpr
from intarsia_loops.launches import Finish, LaunchPlan, Loop, Walk
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Nest, Val

__all__ = ["COUNTERS", "Ending", "GridWalk", "grid_walk"]

# the parameter that programs count themselves in with; no buffer of a canonical kernel has this name
COUNTERS = "arrived"


@dataclass(frozen=True, slots=True)
class Ending:
    """What the last of a group of programs does besides; see `launches.Finish` for the numbers.

    Args:
        walk: The walk, of which there is one program for each counter.
        modulus: Programs with one remainder by this are of one group, or of neighbouring ones; 0: all are of group 0.
        width: How many neighbouring remainders are of one group.
        arrivals: Programs of a group.
    """

    walk: GridWalk
    modulus: int
    width: int
    arrivals: int

    def group(self, program: IndexExpr) -> IndexExpr:
        """Return the group of a program."""
        return program % self.modulus // self.width if self.modulus else program * 0


@dataclass(frozen=True, slots=True)
class GridWalk:
    """How the programs of a grid do a launch.

    Args:
        walk: How its points are walked.
        local: What its steps make that is in no memory.
        asserts: Outputs of maps that are asserted instead of stored, with what is said when one is false.
        chunk: Scanned points of a chunk of a scan; 0: it is not cut.
        ending: What its last programs do besides.
        layouts: Of every buffer in memory that it touches, without its device; those of its ending, too.
    """

    walk: Walk
    local: frozenset[str] = frozenset()
    asserts: tuple[tuple[str, str], ...] = ()
    chunk: int = 0
    ending: Ending | None = None
    layouts: tuple[tuple[str, Buffer], ...] = ()

    def steps(self) -> tuple[Nest, ...]:
        """Return every step, in order; without those of its ending."""
        return tuple(step for loop in self.walk.loops for step in _steps(loop))

    def bodies(self) -> tuple[Val, ...]:
        """Return what its steps compute, over the axes that are walked; without those of its ending."""
        return tuple(body for loop in self.walk.loops for body in _bodies(loop))

    def stored(self) -> tuple[str, ...]:
        """Return the names of the buffers in memory that its steps write, in order; without those of its ending."""
        apart = self.local.union(name for name, _ in self.asserts)
        return tuple(dict.fromkeys(s.out for s in self.steps() if s.out not in apart))

    def updated(self) -> tuple[str, ...]:
        """Return the names of the buffers that its points are folded into."""
        return tuple(s.out for s in self.steps() if NEST_KINDS[s.kind].scatter)

    def touched(self) -> tuple[set[str], set[str]]:
        """Return the names of the buffers in memory that are read, and of those that are written."""
        steps, writes = self.steps(), {*self.stored()}
        reads = {v.args[0] for body in self.bodies() for v in body.loads} - {s.out for s in steps}
        reads |= {*self.updated()}
        if self.ending is not None:
            read, written = self.ending.walk.touched()
            reads, writes = reads | (read - writes) | {COUNTERS}, writes | written
        return reads, writes


def grid_walk(plan: LaunchPlan, walk: Walk) -> GridWalk:
    """Return what a launch of a grid is as a statement.

    Args:
        plan: The launch.
        walk: How its points are walked.
    """
    ending = _ending(plan.finish) if plan.finish is not None else None
    grid = GridWalk(walk, _local(plan.kernel, walk), plan.asserts, plan.chunk, ending)
    used = set().union(*grid.touched())
    layouts = ((n, Buffer(b.shape, b.strides, b.dtype)) for n, b in plan.layouts.items() if n in used)
    return replace(grid, layouts=tuple(layouts))


def _ending(finish: Finish) -> Ending:
    walk = GridWalk(finish.walk, _local(finish.kernel, finish.walk))
    return Ending(walk, finish.modulus, finish.width, finish.arrivals)


def _local(kernel: Kernel, walk: Walk) -> frozenset[str]:
    """What stays inside a kernel, without results of maps, which are computed where they are read."""
    return frozenset(s.out for loop in walk.loops for s in _steps(loop) if s.out in kernel.local)


def _steps(loop: Loop) -> Iterator[Nest]:
    yield from loop.steps
    yield from (s.step for s in loop.sums)
    yield from (q.step for q in loop.squares)


def _bodies(loop: Loop) -> Iterator[Val]:
    yield from (step.body for step in loop.steps)
    for s in loop.sums:
        yield from (s.exponent, s.shift)
    for q in loop.squares:
        yield from (q.value, q.shift)
