"""What is chosen for a kernel on a CPU: a question each, with what it is about, its plain answer, and what may be said.

A word in a plan is a question's, with the number of the nest of loops that it is about where there are several. A plain
answer is right for every kernel; it is taken where a policy has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from intarsia_ir.records import Machine
from intarsia_loops.index import Atom, IndexExpr
from intarsia_loops.program import Kernel, Val
from intarsia_loops.vectors.groups import Group
from intarsia_loops.vectors.steps import Array, Step

__all__ = [
    "Accumulators",
    "Answer",
    "Ask",
    "Carry",
    "Chain",
    "Gather",
    "Hoist",
    "Keep",
    "Lane",
    "Least",
    "Lines",
    "Narrow",
    "Order",
    "Parts",
    "Pieces",
    "PointLane",
    "Question",
    "Shape",
    "Split",
    "Tile",
    "Vector",
    "Who",
]

Answer = str | int
# Floats are added up in chains of about this many numbers per lane; of lines where lanes are rows.
CHAIN, CHAIN_OF_LINES = 256, 128
# Rows side by side in a block at most: each of their accumulators is a vector on the stack.
WIDEST = 1 << 12


@dataclass(frozen=True, slots=True)
class Narrow:
    """Whether arithmetic on positions is done in 32 bits, where it can't overflow (1), or in 64 (0)."""

    kernel: Kernel
    plain: Answer = 0

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said."""
        return value in (0, 1)


@dataclass(frozen=True, slots=True)
class Vector:
    """How many elements a vector has: as many of the widest type computed with as a register has."""

    most: int

    @property
    def plain(self) -> Answer:
        """All of a register."""
        return self.most

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said."""
        return value == self.most


@dataclass(frozen=True, slots=True)
class Least:
    """How many additions work must be for threads to be woken."""

    plain: Answer = 1 << 17

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said."""
        return isinstance(value, int) and value > 0


@dataclass(frozen=True, slots=True)
class Shape:
    """Whether lanes run along inner axes, `"rows"`, or along a row axis, in blocks: `"columns <axis> <width>"`."""

    rows: tuple[Atom, ...]
    steps: tuple[Step, ...]
    groups: tuple[Group, ...]
    kept: Mapping[str, Array]
    lanes: int
    threads: int
    machine: Machine
    plain: Answer = "rows"

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said."""
        if value == "rows":
            return True
        kind, *numbers = str(value).split()
        if kind != "columns" or len(numbers) != 2 or not all(n.isdecimal() for n in numbers):
            return False
        axis, width = map(int, numbers)
        wide = any(s.kind == "cumprod" and s.dtype == "f32" for s in self.steps)  # in f64, which only rows are
        return axis < len(self.rows) and width % self.lanes == 0 and 0 < width <= WIDEST and not wide


@dataclass(frozen=True, slots=True)
class Order:
    """In which order loops are nested: their positions, outermost first; lanes run along the last.

    `first`: an address by whose strides all loops are ordered; None: only the innermost is chosen.
    """

    loops: tuple[Atom, ...]
    steps: tuple[Step, ...]
    lanes: int
    first: IndexExpr | None = None

    @property
    def fixed(self) -> bool:
        """Whether a search for a position needs them as they are: the first of equals has the least number."""
        return any(s.kind.startswith("arg") for s in self.steps)

    @property
    def plain(self) -> Answer:
        """As they are."""
        return " ".join(map(str, range(len(self.loops))))

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said."""
        if value == self.plain:
            return True
        words = str(value).split()
        return not self.fixed and sorted(words) == sorted(str(self.plain).split())


@dataclass(frozen=True, slots=True)
class Lane:
    """Where lanes run in a reduction at each point of inner axes: `"along"` reduced ones, or `"across <axis>"`."""

    step: Step
    lanes: int
    plain: Answer = "along"

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said."""
        ways = [f"across {k}" for k in range(len(self.step.inner))] if not self.step.kind.startswith("arg") else []
        return value in ("along", *ways)


@dataclass(frozen=True, slots=True)
class Accumulators:
    """How many accumulators a reduction has, which hide how long an addition takes."""

    extent: IndexExpr
    lanes: int
    plain: Answer = 1

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said: they are joined two by two."""
        return value in (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Lines:
    """How many lines of memory reductions fold before they reach their accumulators."""

    steps: tuple[Step, ...]
    plain: Answer = 1

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said: a search for a position takes them one by one."""
        plain = not any(s.kind.startswith("arg") for s in self.steps)
        return isinstance(value, int) and 0 < value <= (64 if plain else 1)


@dataclass(frozen=True, slots=True)
class Chain:
    """How many numbers an accumulator of a sum of floats takes before it is added up without error; 0: all.

    `unit`: points of the loops that add a number to each accumulator; `along_rows`: whether lanes are rows.
    """

    points: int | None
    unit: int
    along_rows: bool

    @property
    def usual(self) -> int:
        """A length whose error is small."""
        return CHAIN_OF_LINES if self.along_rows else CHAIN

    @property
    def plain(self) -> Answer:
        """All of a short sum; a long one's error grows with its length."""
        short = self.points is not None and self.points <= 2 * self.usual * self.unit
        return 0 if short else self.usual

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said: sums are as exact as eager's."""
        return isinstance(value, int) and (value == self.plain or 0 < value <= 4 * self.usual)


@dataclass(frozen=True, slots=True)
class Carry:
    """What a scan goes on with: a `"plain"` number, a `"wide"` one, or one with the `"errors"` of its additions.

    `along_rows`: whether lanes are rows.
    """

    step: Step
    along_rows: bool

    @property
    def plain(self) -> Answer:
        """As exact as eager, which scans f32 in f64; neighbouring rows in lanes have no room for that."""
        if self.step.dtype != "f32":
            return "plain"
        return "errors" if self.along_rows else "wide"

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said: scans are as exact as eager's."""
        return value == self.plain


@dataclass(frozen=True, slots=True)
class Who:
    """Whether threads share `"rows"`, or the loops inside of them, `"loops"`.

    `count`: rows, or blocks of rows side by side, `work`: additions of all of them; None where they aren't known.
    `folds`: whether what is inside is reductions alone, whose parts can be joined.
    """

    count: int | None
    work: int | None
    least: int
    threads: int
    along_rows: bool
    folds: bool
    plain: Answer = "rows"

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said."""
        return value == "rows" or (
            value == "loops" and (not self.along_rows or (self.folds and self.count is not None))
        )


@dataclass(frozen=True, slots=True)
class Parts:
    """Into how many parts a nest of loops is cut, for threads to share, where they don't share rows.

    `points`: of the nest; None where that isn't known. `work`: additions of one.
    """

    points: int | None
    work: int
    least: int
    threads: int
    plain: Answer = 1

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said: the parts' accumulators lie beside one another on the stack."""
        return isinstance(value, int) and 0 < value <= max(self.threads, 16)


@dataclass(frozen=True, slots=True)
class Keep:
    """Where the arrays of a row are: on a thread's `"stack"`, or in what it allocates, `"heap"`.

    `n_bytes`: what they take with room for a vector at their ends; None where that isn't known.
    """

    n_bytes: int | None
    machine: Machine

    @property
    def plain(self) -> Answer:
        """On the stack, if they fit."""
        return "stack" if self.allows("stack") else "heap"

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said."""
        return value == "heap" or (
            value == "stack" and self.n_bytes is not None and self.n_bytes <= self.machine.stack_bytes
        )


@dataclass(frozen=True, slots=True)
class Tile:
    """What is transposed: `"none"`, or what lies along a loop, in squares: `"<loop> <square>"`.

    `found`: for each loop that would help, what lies along it.
    """

    found: Mapping[int, tuple[Val | str, ...]]
    lanes: int
    plain: Answer = "none"

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said."""
        words = str(value).split()
        if value == "none":
            return True
        return (
            len(words) == 2
            and all(w.isdecimal() for w in words)
            and int(words[0]) in self.found
            and int(words[1]) > 0
            and int(words[1]) % self.lanes == 0
        )


@dataclass(frozen=True, slots=True)
class Pieces:
    """Into how many pieces the innermost loop is cut, so that threads find enough; 0: none.

    `others`: points of the loops around it; None where that isn't known.
    """

    others: int | None
    threads: int
    plain: Answer = 0

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said."""
        return isinstance(value, int) and value >= 0


@dataclass(frozen=True, slots=True)
class PointLane:
    """Which of a scatter's loops lanes run along: one whose `neighbours` are neighbours in memory, or the last."""

    loops: tuple[Atom, ...]
    neighbours: frozenset[int]

    @property
    def plain(self) -> Answer:
        """The last."""
        return max(len(self.loops) - 1, 0)

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said: no other loop may leave the order of points."""
        return value == self.plain or value in self.neighbours


@dataclass(frozen=True, slots=True)
class Split:
    """Which of a scatter's loops threads share: one of which each value has elements of its own, or -1."""

    loops: tuple[Atom, ...]
    own: frozenset[int]
    lane: int
    lanes: int
    threads: int
    plain: Answer = -1

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said."""
        return value == -1 or value in self.own


@dataclass(frozen=True, slots=True)
class Hoist:
    """Whether what doesn't depend on a loop is computed before it (1), or each value at each point (0)."""

    plain: Answer = 1

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said."""
        return value in (0, 1)


@dataclass(frozen=True, slots=True)
class Gather:
    """Whether `n` operands whose elements lie apart are read at once (1), or one element after the other (0)."""

    n: int
    plain: Answer = 1

    def allows(self, value: Answer) -> bool:
        """Tell whether this may be said."""
        return value in (0, 1)


Question = (
    Narrow | Vector | Least | Shape | Order | Lane | Accumulators | Lines | Chain | Carry | Who | Parts | Keep | Tile
    | Pieces | PointLane | Split | Hoist | Gather
)  # fmt: skip


class Ask(Protocol):
    """Who answers."""

    def __call__(self, word: str, question: Question) -> Answer:
        """Return what is chosen."""
