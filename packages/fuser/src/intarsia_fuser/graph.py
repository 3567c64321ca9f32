"""What a policy sees: a read-only, live picture of the program with its costs, and the legality check.

"Live": when the policy hands over a decision and it is accepted, the graph shows the program after it. "Read-only":
nothing here changes anything; answers are tuples, frozen records, and numbers, in an order that doesn't depend on
hashes. A policy that wants to look ahead forks the graph: a fork is its own to `apply` decisions to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from intarsia_fuser import legality
from intarsia_fuser.cost import CostModel, KernelWork, NestWork, Roofline, evaluations, points_of
from intarsia_fuser.decisions import Decision
from intarsia_fuser.draft import Draft, KernelInfo
from intarsia_fuser.fingerprint import fingerprint
from intarsia_fuser.moves import Move, Prices, legal_moves
from intarsia_fuser.structure import structure
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.records import Target
from intarsia_loops.index import Atom
from intarsia_loops.program import Buffer, Kernel, Nest, Program, Refused

__all__ = ["FusionGraph", "Neighbour"]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A pair of kernels with something to share.

    Args:
        first: Kernel whose steps would run first.
        second: The other kernel.
        kind: `"vertical"` when second reads what first makes, else `"horizontal"`.
        saved: Bytes that merging would save.
        distance: How many positions apart they are.
    """

    first: str
    second: str
    kind: str
    saved: int
    distance: int


class FusionGraph:
    """The program as it stands, for policies.

    Nests are named by the buffer that they make; kernels by the buffer of their founding nest (any buffer that a
    kernel makes is accepted as its name); extern calls by `"@k"`.
    """

    def __init__(self, draft: Draft, prices: Prices, *, live: bool = False) -> None:
        self._draft = draft
        self._prices = prices
        self._live = live

    @classmethod
    def of(cls, program: Program, *, target: Target | None = None, cost: CostModel | None = None) -> FusionGraph:
        """Return a graph of a loops program, to try decisions on.

        Args:
            program: A loops program; untouched.
            target: What the kernels will run on; one thread of a plain CPU when not given.
            cost: Time model; `Roofline.of(target)` when not given.
        """
        return cls(Draft(program), Prices(cost or Roofline.of(target or Target())))

    @property
    def cost(self) -> CostModel:
        """Return the cost model that predicted times come from."""
        return self._prices.cost

    def fork(self) -> FusionGraph:
        """Return a graph in the same state that `apply` may change; the two don't see each other's changes."""
        return FusionGraph(self._draft.fork(), self._prices)

    def apply(self, decision: Decision) -> legality.Accepted | Refused:
        """Carry out a decision if it is legal; `Refused` says why it isn't, and nothing has changed.

        Raises:
            InvalidArgumentError: `fuser.live`: this is the graph that a policy was given; it follows what the policy
                yields, and only its forks can be changed.
        """
        if self._live:
            raise InvalidArgumentError(
                "a policy's graph follows the decisions that it yields and can't be changed otherwise",
                code="fuser.live",
                hints=("apply decisions to graph.fork()",),
            )
        answer = self.check(decision)
        if isinstance(answer, legality.Accepted):
            legality.carry_out(self._draft, answer)
        return answer

    def legal(self, reach: int = 4, *, every_depth: bool = False, of: str | None = None) -> tuple[Move, ...]:
        """Return the inlines, and the merges of kernels with a buffer to share, that are legal now.

        Args:
            reach: See `neighbours`.
            every_depth: List a merge at each number of rows in common, not only the largest.
            of: A buffer: only what the kernel that makes it takes part in; None: everything.
        """
        kernels = self.kernels if of is None else (self._item(of),)
        nests = None if of is None else self._around(kernels[0])
        pairs = self._pairs(kernels, reach)
        return tuple(legal_moves(self._draft, self._prices, pairs, every_depth=every_depth, nests=nests))

    def move(self, decision: Decision) -> Move | Refused:
        """Return what an inline or a merge would save; `Refused` says why it isn't legal."""
        answer = self.check(decision)
        return self._prices.move(self._draft, answer) if isinstance(answer, legality.Accepted) else answer

    def saved_us(self, decisions: Iterable[Decision]) -> float | None:
        """Return the microseconds that inlines and merges would save one after the other; None if one isn't legal.

        Together they may save what none does alone: a map is stored until it is computed wherever it is read.
        """
        ahead, saved = self.fork(), 0.0
        for decision in decisions:
            move = ahead.move(decision)
            if isinstance(move, Refused):
                return None
            saved += move.saved_us
            ahead.apply(decision)
        return saved

    @property
    def total_us(self) -> float:
        """Return the cost model's time for all kernels, in microseconds."""
        return self._prices.total_us(self._draft)

    @property
    def fingerprint(self) -> str:
        """Return the digest of the loops program: what a plan calls its graph."""
        return fingerprint(self._draft.given)

    @property
    def structure(self) -> Mapping[str, str]:
        """Return name -> key for what the program started with; equal keys in a program of other sizes are the same."""
        return structure(self._draft.program)

    @property
    def nests(self) -> tuple[str, ...]:
        """Names of the nests, in the order of the loops program."""
        return tuple(name for name in self._draft.names if name in self._draft.nests)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels, in the order in which they run now."""
        return tuple(item for item in self._draft.order.items() if item in self._draft.kernels)

    @property
    def items(self) -> tuple[str, ...]:
        """Names of kernels and extern calls, in the order in which they run now."""
        return self._draft.order.items()

    def nest(self, name: str) -> Nest:
        """Return the nest that makes the buffer `name`, as it stands."""
        return self._draft.nests[name]

    def has_nest(self, name: str) -> bool:
        """Tell whether a nest makes the buffer `name`; not so for inputs, results of extern calls, inlined maps."""
        return name in self._draft.nests

    def kernel(self, name: str) -> KernelInfo:
        """Return the kernel that makes the buffer `name`."""
        return self._draft.info(self._item(name))

    def kernel_record(self, name: str) -> Kernel:
        """Return that kernel as the record which `apply` would build, with nothing local yet."""
        return self._draft.kernels[self._item(name)]

    def state(self) -> Hashable:
        """Return what graphs have in common that decisions, in whatever order, have fused alike.

        Which nests are in one kernel over how many rows, and what each of them reads.
        """
        draft = self._draft
        return frozenset(
            (len(kernel.rows), frozenset((s.out, s.body.size, tuple(draft.reads[s.out])) for s in kernel.steps))
            for kernel in draft.kernels.values()
        )

    def buffer(self, name: str) -> Buffer:
        """Return shape, strides and type of a buffer."""
        return self._draft.program.buffers[name]

    @property
    def buffers(self) -> Mapping[str, Buffer]:
        """Return every buffer by name."""
        return self._draft.program.buffers

    def maker(self, buffer: str) -> str | None:
        """Return the item that makes a buffer; None for inputs and constants."""
        return self._draft.find(buffer)

    def readers(self, buffer: str) -> tuple[str, ...]:
        """Return the nests and extern calls that read a buffer, in program order."""
        return tuple(self._draft.names[rank] for rank in self._draft.readers.get(buffer, ()))

    def pinned(self, buffer: str) -> bool:
        """Tell whether a buffer must reach memory: an output, or an operand of an extern call."""
        return buffer in self._draft.pinned

    def escapes(self, buffer: str, *kernels: str) -> bool:
        """Tell whether a nest's result must reach memory: it is pinned, or read outside these kernels.

        Args:
            buffer: Made by a nest.
            kernels: Kernels taken as one; the buffer's own when none is given.
        """
        inside = tuple(self._item(k) for k in kernels) or (self._draft.owner[buffer],)
        return self._draft.escapes(buffer, inside)

    def extent(self, axes: Iterable[Atom]) -> int:
        """Return the number of points of some axes (with hints for symbolic sizes)."""
        return self._draft.sizes.product(axes)

    def nest_work(self, name: str) -> NestWork:
        """Return the counts of a nest."""
        return self._draft.work(name)

    def evaluations(self, buffer: str, reader: str) -> int:
        """Return how often a nest reads a buffer: what inlining its maker there would evaluate the body.

        A read that is constant along the reader's innermost loop counts once a loop.
        """
        return evaluations(self._draft.nests[reader], buffer, self._draft.sizes)

    def points(self, name: str) -> int:
        """Return how often a nest evaluates its body: its share of `nest_work`, without walking the body."""
        return points_of(self._draft.nests[name], self._draft.sizes)

    def work(self, kernel: str) -> KernelWork:
        """Return the counts of the kernel that makes this buffer."""
        return self._draft.kernel_work(self._item(kernel))

    def predicted_us(self, kernel: str) -> float:
        """Return what the cost model says of the kernel that makes this buffer, in microseconds."""
        return self._prices.us(self._draft, self._item(kernel))

    def check(self, decision: Decision) -> legality.Accepted | Refused:
        """Tell whether a decision is legal now, and what it saves; `Refused` says why not and is falsy."""
        return legality.check(self._draft, decision)

    def depth(self, first: str, second: str) -> int:
        """Return the largest depth at which the rows of the two kernels fit; 0 when they only fit as one row."""
        return legality.deepest(self._draft, self._item(first), self._item(second))

    def saved(self, first: str, second: str) -> int:
        """Return the bytes that merging the kernels of two buffers would save."""
        return legality.saved_by_fusing(self._draft, self._item(first), self._item(second))

    def neighbours(self, kernel: str, reach: int = 4) -> tuple[Neighbour, ...]:
        """Return pairs of this kernel with others that read or make what it reads or makes, each once.

        Args:
            kernel: A buffer that the kernel makes.
            reach: How many of the readers of one buffer on either side (in program order) are paired; what keeps
                a program with one input and a thousand readers linear.
        """
        item = self._item(kernel)
        others = dict.fromkeys(self._others(item, reach))
        return tuple(self._neighbour(item, other) for other in others if other != item)

    def _around(self, item: str) -> tuple[str, ...]:
        """The nests that may be inlined into a kernel's, and its own."""
        draft = self._draft
        return tuple(dict.fromkeys([*draft.steps(item), *(b for b in draft.outside[item] if b in draft.nests)]))

    def _pairs(self, kernels: Iterable[str], reach: int) -> Iterator[tuple[str, str]]:
        """Pairs of these kernels and others with a buffer to share, each once, the one that runs first first."""
        position = self._draft.order.position
        seen: set[tuple[str, str]] = set()
        for item in kernels:
            for other in self._others(item, reach):
                pair = (item, other) if position[item] < position[other] else (other, item)
                if other != item and pair not in seen and other in self._draft.kernels:
                    seen.add(pair)
                    yield pair

    def _item(self, name: str) -> str:
        item = self._draft.find(name)
        if item is None:
            raise InvalidArgumentError(f"{name!r} names no kernel of the program as it stands", code="fuser.name")
        return item

    def _others(self, item: str, reach: int) -> Iterator[str]:
        draft = self._draft
        for buffer in draft.outside[item]:
            if draft.owner.get(buffer) in draft.kernels:
                yield draft.owner[buffer]
        for buffer in draft.steps(item):
            yield from self._kernels_of(draft.readers.get(buffer, ())[: 2 * reach])
        for step in draft.steps(item):
            for buffer in draft.reads[step]:
                ranks = draft.readers[buffer]
                here = bisect_left(ranks, draft.rank[step])
                yield from self._kernels_of(ranks[max(here - reach, 0) : here + reach + 1])

    def _kernels_of(self, ranks: Iterable[int]) -> Iterator[str]:
        for rank in ranks:
            name = self._draft.names[rank]
            if name in self._draft.owner:
                yield self._draft.owner[name]

    def _neighbour(self, item: str, other: str) -> Neighbour:
        draft = self._draft
        position = draft.order.position
        first, second = sorted((item, other), key=position.__getitem__)
        reads = draft.outside[second]
        kind = "vertical" if any(s in reads for s in draft.steps(first)) else "horizontal"
        saved = legality.saved_by_fusing(draft, first, second)
        return Neighbour(first, second, kind, saved, position[second] - position[first])
