"""How one thread after another, and one vector after another, walks a kernel: what a schedule decides, what C++ prints.

VectorWalk   the parts of a kernel, in order
Maps         one pass over memory; no row keeps anything
Rows         threads take rows, and a row's steps share nests of loops; lanes run along these, or along the rows
Points       a scatter's points, each of which folds into its element
Inner        one nest of loops inside a row
Share        whether threads share a loop
Manner       how a part's values are had
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from intarsia_loops.index import Atom, IndexExpr
from intarsia_loops.program import Val
from intarsia_loops.vectors.steps import Array, Block, Step

__all__ = ["Inner", "Manner", "Maps", "Part", "Points", "Rows", "Share", "Tiling", "VectorWalk"]


@dataclass(frozen=True, slots=True)
class Share:
    """Loops whose points threads share; where none does, there is None instead.

    Args:
        threads: How many.
        points: Points of the loops.
        least: Points from which on threads are woken, tested at run time; 0: they are.
    """

    threads: int
    points: IndexExpr
    least: int = 0


@dataclass(frozen=True, slots=True)
class Manner:
    """How the values of a part are had; they are the same in every manner.

    Args:
        hoist: What doesn't depend on a loop is computed before it, as far out as that is so; else each value is
            computed at each point.
        gather: Elements that lie apart are read at once where they may be (`intarsia_loops.vectors.reads`); else one
            by one.
    """

    hoist: bool = True
    gather: bool = True


@dataclass(frozen=True, slots=True)
class Tiling:
    """What is transposed in registers, a square of `lanes` by `lanes` at a time.

    Args:
        across: The loop along which the transposed operands and results lie in memory.
        loads: Those operands.
        stores: The buffers of those results.
        square: Elements along both sides of what is visited before the next of it, so that lines of memory are used
            whole while they are cached; a multiple of the lanes.
    """

    across: Atom
    loads: tuple[Val, ...]
    stores: tuple[str, ...]
    square: int


@dataclass(frozen=True, slots=True)
class Maps:
    """Maps over the rows and nothing else.

    Args:
        lanes: Elements of a vector.
        loops: Outermost first; lanes run along the last.
        steps: Over these loops.
        pieces: Pieces of the last loop, for threads to share where other loops have few points; 0: it is whole.
        tiling: What is transposed; None: nothing.
        share: Whether threads share the points.
        manner: How values are had.
    """

    lanes: int
    loops: tuple[Atom, ...]
    steps: tuple[Step, ...]
    pieces: int = 0
    tiling: Tiling | None = None
    share: Share | None = None
    manner: Manner = Manner()


@dataclass(frozen=True, slots=True)
class Inner:
    """One nest of loops inside a row, or what is done once a row.

    Args:
        kind: `"once"`: no loops; `"shared"`: maps, perhaps with reductions; `"folds"`: reductions only, for walks with
            lanes along rows; `"scan"`: a running value; for a reduction at each point of inner axes `"along"`: lanes
            run along the reduced axes, or the rows, and `"across"`: along the last of the inner ones.
        loops: Outermost first; if lanes run along one of them, it is the last.
        steps: Over these loops.
        outer: Loops around them, at each point of which accumulators start anew.
        unroll: Accumulators of each reduction; with lanes along rows, lines of memory that are folded before they
            reach the accumulators.
        chain: Numbers that an accumulator of a sum of floats takes before it is added to a sum that keeps what rounding
            takes from it; 0: all.
        length: Points of the last loop that these are.
        cut: Whether the last loop is cut into pieces of that length; if not, it is at most about that long.
        parts: Into how many parts the first loop is cut, each with accumulators of its own, which are joined in order.
        share: Whether threads share these.
        carry: What a scan goes on with: `"plain"`: a number of its type; `"wide"`: one of the next wider float;
            `"errors"`: one of its type, and what rounding took from it.
    """

    kind: str
    loops: tuple[Atom, ...]
    steps: tuple[Step, ...]
    outer: tuple[Atom, ...] = ()
    unroll: int = 1
    chain: int = 0
    length: int = 0
    cut: bool = False
    parts: int = 1
    share: Share | None = None
    carry: str = "plain"


@dataclass(frozen=True, slots=True)
class Rows:
    """A row after the other, or a block of neighbouring rows, one in each lane.

    Args:
        lanes: Elements of a vector.
        rows: Axes of the rows.
        inner: What is done in a row, in order.
        block: The rows side by side; None: lanes run along loops inside a row.
        arrays: Layout of what stays inside the kernel.
        stored: Those that need an array: made in one nest of loops, read in a later one.
        heap: Whether a thread allocates them; else they are on its stack.
        share: Whether threads share the rows.
        threads: For how many threads the number of rows in a block is chosen, where that happens at run time.
        manner: How values are had.
    """

    lanes: int
    rows: tuple[Atom, ...]
    inner: tuple[Inner, ...]
    block: Block | None
    arrays: Mapping[str, Array] = field(hash=False)
    stored: frozenset[str]
    heap: bool = False
    share: Share | None = None
    threads: int = 1
    manner: Manner = Manner()


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a scatter, flat.

    Args:
        lanes: Elements of a vector.
        step: The scatter.
        loops: Loops over its points, in order.
        value: What a point folds in.
        moving: The part of its element's number that depends on data, if any.
        fixed: The rest of that number.
        lane: The loop that lanes run along.
        neighbours: Whether the elements that a vector writes are neighbours; else one is updated after the other.
        split: The loop that threads share; None: none. The lanes' loop is cut into a piece for each thread.
        share: Whether threads are woken for it.
        threads: How many there are.
        manner: How values are had.
    """

    lanes: int
    step: Step
    loops: tuple[Atom, ...]
    value: Val
    moving: Val | None
    fixed: IndexExpr
    lane: Atom
    neighbours: bool
    split: Atom | None = None
    share: Share | None = None
    threads: int = 1
    manner: Manner = Manner()


Part = Maps | Rows | Points


@dataclass(frozen=True, slots=True)
class VectorWalk:
    """How a kernel is walked on a CPU.

    Args:
        parts: What is done, in order; none: there is no point.
        outs: What the kernel writes to memory.
    """

    parts: tuple[Part, ...]
    outs: tuple[str, ...]

    def steps(self) -> tuple[Step, ...]:
        """Return every step, in order."""
        return tuple(step for part in self.parts for step in _steps(part))

    def touched(self) -> tuple[set[str], set[str]]:
        """Return the names of the buffers in memory that are read, and of those that are written."""
        inside = {s.out for s in self.steps() if not s.in_memory}
        bodies = [s.body for s in self.steps()]
        bodies += [v for p in self.parts if isinstance(p, Points) for v in (p.value, p.moving) if v is not None]
        reads = {v.args[0] for body in bodies for v in body.loads} - inside
        return reads | {p.step.out for p in self.parts if isinstance(p, Points)}, {*self.outs}


def _steps(part: Part) -> tuple[Step, ...]:
    if isinstance(part, Rows):
        return tuple(step for inner in part.inner for step in inner.steps)
    return part.steps if isinstance(part, Maps) else (part.step,)
