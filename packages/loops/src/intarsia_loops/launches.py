"""Kernels arranged into launches: who runs which points, as data that a scheduler writes and an emitter prints.

Program      the kernels, as they were planned
LaunchPlan   one launch: a kernel over positional buffers, how its points are walked, what it asserts, who finishes it
Walk         which of a program's values are rows and which are inner points of a tile, and the loops over these; on a
             CPU it is a `VectorWalk`

A launch is not an item of the program: a merge makes one launch of two items, a split two launches of one, and equal
kernels over different buffers run side by side in one. Nothing here is decided by whoever prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from intarsia_ir.records import Origin, Target
from intarsia_loops.index import Atom, IndexExpr
from intarsia_loops.program import Buffer, Kernel, Nest, Program, Val
from intarsia_loops.vectors.walks import VectorWalk

__all__ = ["NOTHING", "Blocks", "ExpSum", "Finish", "LaunchPlan", "Launches", "Loop", "Shift", "SquareSum", "Walk"]

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Blocks:
    """The tile of a kernel.

    Args:
        rows: Rows of a program, a power of two.
        inner: Inner points of a tile, a power of two.
        warps: Warps of a program.
        persistent: The tile spans the inner range: nothing is read twice.
        parts: Into how many parts the inner points are folded before they are walked; with 1 row only.
        stages: Tiles of a walk whose loads are on their way at once.
    """

    rows: int
    inner: int
    warps: int = 4
    persistent: bool = False
    parts: int = 1
    stages: int = 1


@dataclass(frozen=True, slots=True)
class ExpSum:
    """A sum of exponentials that is taken in the same walk as the maximum it is relative to.

        s[i] = sum over r of exp(f(i, r) - g(m[i])),  m[i] = max over r of f(i, r)

    Args:
        step: The sum, as it was.
        top: Output of the maximum.
        exponent: f.
        shift: g(m), a row scalar.
    """

    step: Nest
    top: str
    exponent: Val
    shift: Val


@dataclass(frozen=True, slots=True)
class SquareSum:
    """A sum of squared distances that is taken in the same walk as the sum that gives what they are from.

        q[i] = sum over r of (f(i, r) - g(s[i]))^2,  s[i] = sum over r of f(i, r)

    Args:
        step: The sum of squares, as it was.
        value: f.
        shift: g(s), a row scalar.
    """

    step: Nest
    value: Val
    shift: Val


@dataclass(frozen=True, slots=True)
class Shift:
    """How far the rows of a walk are from aligned.

    Args:
        start: Element offset of a row; the same in all buffers that are walked.
        points: Elements in 16 bytes.
    """

    start: IndexExpr
    points: int


@dataclass(frozen=True, slots=True)
class Loop:
    """Steps that share one walk over inner points.

    Args:
        inner: The axes walked, of the first step; the others' bodies are over the same ones. Empty: row scalars only.
        steps: With maps inlined and axes renamed to the kernel's rows and to `inner`.
        sums: Sums of exponentials that are taken in this walk.
        squares: Sums of squared distances that are taken in this walk.
        shift: Where tiles start so that they are read 16 bytes at a time; None where they start.
        back: Tiles in descending order: what the walk before read last is still in the cache.
        keep: Buffer -> what the cache should do with it, `"evict_first"` or `"evict_last"`.
        by_tile: Extrema of which a lane remembers the tile, not the point; the winner's is read once more.
        by_part: Inner axes that are the same for all lanes of a part: in a whole tile they are had once for each part,
            and so is what depends on nothing else, such as a channel's weight.
    """

    inner: tuple[Atom, ...]
    steps: tuple[Nest, ...]
    sums: tuple[ExpSum, ...] = ()
    squares: tuple[SquareSum, ...] = ()
    shift: Shift | None = None
    back: bool = False
    keep: tuple[tuple[str, str], ...] = ()
    by_tile: frozenset[str] = frozenset()
    by_part: frozenset[Atom] = frozenset()


@dataclass(frozen=True, slots=True)
class Walk:
    """How the points of a launch are walked.

    Args:
        kind: `"rows"`: a program has a block of rows, and walks their inner points; `"points"`: a block of rows and one
            of inner points, in a grid of two dimensions; `"scan"`: rows, or chunks of rows, along the scanned axis;
            `"scatter"`: a block of points, each of which folds into its element.
        rows: Axes of the rows, outermost first: neighbouring rows differ in the last one.
        blocks: The tile.
        inner: Axes of the inner points, for `"points"`.
        loops: What is walked, in order; of a scan, what each row starts from if anything, then the scanned points; of a
            scatter, one that walks nothing: checks of a point, then the point.
        weights: Sums of exponentials relative to just their maximum: numbers from 1 to that of the points, or NaN, so
            that a quotient may be had from their inverse.
        wide: Numbers of rows, of points and of elements have 64 bits; else 32, but for what needs more.
    """

    kind: str
    rows: tuple[Atom, ...]
    blocks: Blocks
    inner: tuple[Atom, ...] = ()
    loops: tuple[Loop, ...] = ()
    weights: frozenset[str] = frozenset()
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """What the last programs of a launch do besides, over the same buffers.

    A program counts itself in after its stores, at counter `program % modulus // width`; who is the last of
    `arrivals` does the work of the program of that number.

    Args:
        kernel: What is to be done last.
        walk: How.
        modulus: See above; 0: the only counter is number 0.
        width: See above.
        arrivals: How many programs count at each.
        counters: How many there are.
    """

    kernel: Kernel
    walk: Walk
    modulus: int
    width: int
    arrivals: int
    counters: int


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One launch.

    Args:
        kernel: What to compute, over buffers `b0, b1, ...`.
        walk: How its points are walked: in a grid's tiles, or in a CPU's vectors; None: the policy has no tiles for it.
        layouts: Layouts of these buffers; those that the kernel keeps to itself may be missing.
        sets: For each set of buffers that it does this for, their real names.
        items: First and one past the last position of what it does in the program.
        asserts: Outputs of maps that are asserted instead of stored, with what is said when one is false.
        finish: What its last programs do besides.
        chunk: Scanned points of a chunk of a scan, whose first step says what each chunk starts from; 0: it is not cut.
        initial: Whether a scatter stores its initial value, too; else an earlier launch did.
        key: Equal for launches that are one function.
        origins: User lines; not part of equality.
    """

    kernel: Kernel
    walk: Walk | VectorWalk | None
    layouts: Mapping[str, Buffer]
    sets: tuple[tuple[str, ...], ...]
    items: tuple[int, int]
    asserts: tuple[tuple[str, str], ...] = ()
    finish: Finish | None = None
    chunk: int = 0
    initial: bool = True
    key: object = field(default=None, compare=False)
    origins: tuple[Origin, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Launches:
    """A program of kernels, arranged.

    Args:
        program: FX(kernels), with a place in memory for what launches make for each other, `scratch` included.
        target: What for.
        launches: In order.
        n_kernels: Kernels that the launches do: parts of one that is split count as one.
        scratch: Buffers that launches share and the program doesn't know.
        counters: The one of `scratch` that `Finish` counts in, 0 before and after each launch; "" where none does.
    """

    program: Program
    target: Target
    launches: tuple[LaunchPlan, ...]
    n_kernels: int
    scratch: Mapping[str, Buffer] = field(default_factory=lambda: MappingProxyType({}))
    counters: str = ""
