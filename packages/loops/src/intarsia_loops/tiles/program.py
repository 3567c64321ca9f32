"""Tile programs as frozen values: which launches run, how each walks its points, and where numbers are kept.

Launch   one grid of programs, or one function, for one or several sets of buffers
For      points of an axis: which run side by side, in tiles of how many, and what happens at the end of the range
If       one of two lists of statements, by a condition on sizes and loop variables
Hold     a named array that belongs to a point of the loops around it
Put      one element of a buffer, or of what is held
Acc      an accumulator of a monoid, Fold  adds a point,  Run  adds a point and names the prefix,  Take  names the
    result
Update   folds a point into an element of a buffer that other points may update as well
Turn     transposes a square of held numbers
Last     what the last program of a group to arrive does
Check    stops with a message where a value is false
VectorWalk    a whole kernel as a CPU's vectors and threads walk it (`intarsia_loops.vectors.walks`), which stands for
    the statements that `expand` writes out
GridWalk      a whole launch as the programs of a GPU's grid walk it (`intarsia_loops.grid`), which stands likewise

Values are the `Val`s of the loops dialect. A buffer is read, and written, at one flat element number; what is held, at
one index a dimension; a name that `Acc`, `Run` or a `Hold` with a value gave is read by `load(name, ())`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from intarsia_ir.records import Origin, SizeFacts, Target
from intarsia_loops.grid import GridWalk
from intarsia_loops.index import Atom, IndexExpr
from intarsia_loops.program import Buffer, Extern, Placement, Val
from intarsia_loops.vectors.walks import VectorWalk

__all__ = [
    "SCHEMA",
    "Acc",
    "Bind",
    "Check",
    "Fold",
    "For",
    "GridWalk",
    "Hold",
    "If",
    "Last",
    "Launch",
    "Put",
    "Run",
    "Statement",
    "Take",
    "Tiles",
    "Turn",
    "Update",
    "VectorWalk",
    "has_order",
    "statements",
]

SCHEMA = 5  # 4, where each launch has the user's lines in whole, is read as well
Place = IndexExpr | Val


@dataclass(frozen=True, slots=True)
class Bind:
    """How a part of a tile's points is laid out.

    Args:
        kind: `"unroll"`: one after the other, written out; `"lanes"`: side by side, in any order; `"parts"`: likewise,
            but each lane's own points.
        size: How many.
        name: What accumulators are indexed with. Loops that don't lie in one another may share it, with its kind and
            size: they go through the positions of one accumulator.
    """

    kind: str
    size: int
    name: str


@dataclass(frozen=True, slots=True)
class For:
    """Points `low <= axis < least of high`, a tile at a time.

    Args:
        axis: The loop variable; its extent bounds it.
        low: First point.
        high: The least of these is one past the last point; a block's points are a loop in the loop over blocks.
        body: What every point does.
        across: `"serial"`: tiles in order; `"threads"` or `"program"`: any thread or program has any tile, in any
            order.
        dim: Dimension of the grid, for `"program"`.
        binds: Layout of a tile, outermost first; none: tiles of one point.
        ends: What happens to a tile that isn't full. `"none"`: there is none; `"mask"`: its last points do nothing;
            `"peel"`: its points are taken in tiles without what is unrolled, at the first position of that, the last of
            them masked, in code of its own; `"always"`: every tile is masked; `"align"`: tiles start where
            `start` is a multiple of `align`, with a head and a tail around them.
        align: Points, for `"align"`.
        start: Element number of the first point, for `"align"`.
        back: Tiles in descending order.
        hint: What a cache should keep; no meaning.
    """

    axis: Atom
    low: IndexExpr
    high: tuple[IndexExpr, ...]
    body: tuple[Statement, ...]
    across: str = "serial"
    dim: int = 0
    binds: tuple[Bind, ...] = ()
    ends: str = "none"
    align: int = 0
    start: IndexExpr | None = None
    back: bool = False
    hint: str = ""

    @property
    def points(self) -> int:
        """Points of a tile."""
        n = 1
        for bind in self.binds:
            n *= bind.size
        return n

    @property
    def vector(self) -> int:
        """Points of a tile without what is unrolled."""
        n = 1
        for bind in self.binds:
            n *= bind.size if bind.kind != "unroll" else 1
        return n

    @property
    def is_parallel(self) -> bool:
        """Whether tiles have no order."""
        return self.across != "serial"


@dataclass(frozen=True, slots=True)
class If:
    """`then` where `left relation right`, else `orelse`; the relation is `"<"`, `"<="`, `"=="` or `"!="`."""

    left: IndexExpr
    relation: str
    right: IndexExpr
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """An array for each point of the loops around it, with nothing in it; or a number, which has a value at once.

    Args:
        name: What reads and writes call it; unique in its launch.
        space: `"reg"`, `"stack"`, `"heap"`.
        shape: Sizes; () for a number.
        dtype: Element type.
        pad: Elements past the end that whole vectors may touch.
        value: Of a number.
    """

    name: str
    space: str
    shape: tuple[IndexExpr, ...]
    dtype: str
    pad: int = 0
    value: Val | None = None


@dataclass(frozen=True, slots=True)
class Put:
    """`target[index] = value`, where `when` holds.

    Args:
        target: A buffer, with one flat element number, or what is held, with an index a dimension.
        index: Where.
        value: What, of the target's type.
        when: Whether; None is always.
    """

    target: str
    index: tuple[IndexExpr, ...]
    value: Val
    when: Val | None = None


@dataclass(frozen=True, slots=True)
class Acc:
    """An accumulator at its monoid's neutral element.

    Args:
        name: What `Fold`, `Run` and `Take` call it; unique in its launch.
        monoid: Row of the monoid table.
        dtype: Of what is folded.
        per: Binds of which every position has one of its own.
    """

    name: str
    monoid: str
    dtype: str
    per: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fold:
    """Add a point to an accumulator; a point that is masked, or where `when` is false, adds nothing.

    Args:
        acc: The accumulator.
        values: Operands of its monoid.
        when: Whether; None is always.
    """

    acc: str
    values: tuple[Val, ...]
    when: Val | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Add a point to an accumulator, and name what it has then: scans, whose points come in order."""

    acc: str
    values: tuple[Val, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Take:
    """Combine an accumulator to one result, and name it.

    Args:
        acc: The accumulator.
        names: One for each result of its monoid; unique in the launch.
        order: `"tree"` or `"in order"`: how the positions of `per` are joined. `"halves"`: two by two along all of
            `per` but the last, and along that each in the first half with the one as far into the second. `"each"`:
            they aren't joined; this is the result of the position of the loops around it, which have the binds of
            `per`. `"state"`: likewise, and the names are those of the fields, unfinished.
    """

    acc: str
    names: tuple[str, ...]
    order: str = "in order"


@dataclass(frozen=True, slots=True)
class Update:
    """Fold a value into an element of a buffer that other points may fold into.

    Args:
        monoid: Row of the monoid table with one field: sum, max, min.
        buffer: A buffer in memory.
        place: Flat element number.
        value: What to fold.
        how: `"ordered"`: in the order of the loops; `"vector"`: likewise, and neighbours along lanes have neighbouring
            places; `"atomic"`: in any order.
        own: Axes along which places differ: points that differ in one of them never meet.
    """

    monoid: str
    buffer: str
    place: Place
    value: Val
    how: str
    own: tuple[Atom, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """Transpose a held square."""

    name: str


@dataclass(frozen=True, slots=True)
class Last:
    """Count a program in after its stores; the last of its group does the body and puts the counter back to 0.

    Args:
        counter: Buffer of i32, 0 before and after the launch.
        group: Which counter.
        arrivals: Programs of a group.
        body: What the last one does.
    """

    counter: str
    group: IndexExpr
    arrivals: int
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """Stop the program with `text` where a value is false."""

    value: Val
    text: str


Statement = For | If | Hold | Put | Acc | Fold | Run | Take | Update | Turn | Last | Check | VectorWalk | GridWalk


@dataclass(frozen=True, slots=True)
class Launch:
    """One grid of programs, or one function.

    Args:
        name: Unique in the program.
        params: Names of the buffers in the body.
        sets: For each set, the program's buffers that they stand for.
        body: What runs.
        width: Index arithmetic: `"i32"` or `"i64"`.
        warps: Of a program on a GPU; 0: as its lanes need.
        origins: User lines; not part of equality.
    """

    name: str
    params: tuple[str, ...]
    sets: tuple[tuple[str, ...], ...]
    body: tuple[Statement, ...]
    width: str = "i64"
    warps: int = 0
    origins: tuple[Origin, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Tiles:
    """A whole graph: launches and extern calls in order, for one target.

    Args:
        buffers: Every buffer by name, scratch and counters included.
        inputs: Buffers (and size symbols) that the caller passes, in order.
        items: In execution order.
        outputs: What the caller gets: TensorRefs of buffers, or constants.
        target: What they were scheduled for.
        scratch: Buffers that launches share and nobody else sees; those of i32 that `Last` counts in start at 0.
        facts: Size facts that the program relies on.
        placement: Memory plan; None before it is made.
        constants: Buffers whose tensors are fixed at compile time.
    """

    buffers: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    items: tuple[Launch | Extern, ...]
    outputs: tuple[Any, ...]
    target: Target
    scratch: frozenset[str] = frozenset()
    facts: SizeFacts = field(default_factory=SizeFacts)
    placement: Placement | None = None
    constants: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Yield every statement of a body, those inside others after them."""
    for s in body:
        yield s
        if isinstance(s, For | Last):
            yield from statements(s.body)
        elif isinstance(s, If):
            yield from statements((*s.then, *s.orelse))


def has_order(loop: For, accs: Mapping[str, Acc]) -> bool:
    """Return whether points of a tile come in order although they are in lanes: those of a scan do.

    Args:
        loop: The loop.
        accs: The accumulators around it, and perhaps others.
    """
    apart = {b.name for b in loop.binds if b.kind != "unroll"}
    inside = list(statements(loop.body))
    accumulators = {s.name for s in inside if isinstance(s, Acc)}
    runs = [s.acc for s in inside if isinstance(s, Run) and s.acc in accs and s.acc not in accumulators]
    return any(not apart <= {*accs[name].per} for name in runs)
