"""A program while decisions are being carried out: nests, the kernels they are in, who reads what, and the order.

Mutable and private to one `plan` or `apply`; policies see it through `graph.FusionGraph`, `legality` asks it. Every
index is by buffer, so a step of fusion touches only what the buffers of the two kernels lead to.

What an item waits for besides buffers, a size that a call gives or a check of one, is among what it reads, with 0
bytes: see `waits`.

Terms. A nest is named by the buffer that it makes. An item is a kernel, named by the nest that founded it, or an extern
call, named `"@k"`. Its rank is its position in the program at the start and never changes; its position is where it
runs now.
"""

from __future__ import annotations

import bisect
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from intarsia_fuser.cost import WEIGHTS, KernelWork, NestWork, footprints, nest_work, written_bytes
from intarsia_fuser.effects import has_effect, must_run
from intarsia_fuser.emitted import Counter
from intarsia_fuser.order import ItemOrder
from intarsia_fuser.waits import Waits
from intarsia_ir.errors import InvalidArgumentError
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Extern, Kernel, Nest, Program, TensorRef
from intarsia_loops.rewrites import localise
from intarsia_loops.shown import makers, needed_symbols, returned_symbols
from intarsia_loops.sizes import Sizes

__all__ = ["Draft", "KernelInfo", "live_program", "shorten"]

_CHANGING = ("nests", "kernels", "owner", "readers", "reads", "outside", "_steps", "_work", "_info", "_kernel_work")


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """One kernel as it stands.

    Args:
        name: Buffer whose nest founded it.
        rows: Extents of its rows.
        steps: Buffers that its nests make, in order.
        reads: Buffer from outside -> bytes touched.
        flops: Weighted scalar operations.
        points: Body evaluations of all steps.
        nodes: Scalar operations in its text.
    """

    name: str
    rows: tuple[int, ...]
    steps: tuple[str, ...]
    reads: Mapping[str, int]
    flops: int
    points: int
    nodes: int

    @property
    def parallel(self) -> int:
        """Number of rows: what can run at once."""
        number = 1
        for extent in self.rows:
            number *= extent
        return number


class Draft:
    """See the module's docstring.

    Args:
        program: A loops program. Items that nothing needs are left out.

    Raises:
        InvalidArgumentError: The program has kernels already.
    """

    def __init__(self, program: Program) -> None:
        self.given = program
        self.program = live_program(program)
        self.sizes = Sizes(program.facts.hints)
        self.names: list[str] = []
        self.nests: dict[str, Nest] = {}
        self.kernels: dict[str, Kernel] = {}
        self.externs: dict[str, Extern] = {}
        self.owner: dict[str, str] = {}
        self.readers: dict[str, tuple[int, ...]] = {}  # buffer -> ranks, ascending
        self.rank: dict[str, int] = {}
        self.pinned = {ref.buffer for ref in self.program.outputs if isinstance(ref, TensorRef)}
        self.reads: dict[str, dict[str, int]] = {}  # nest -> buffer -> bytes
        self.outside: dict[str, dict[str, int]] = {}  # kernel -> buffer made elsewhere -> bytes
        self._steps: dict[str, tuple[str, ...]] = {}
        self._operands: dict[str, tuple[str, ...]] = {}  # extern call -> buffers
        self._work: dict[str, NestWork] = {}
        self._info: dict[str, KernelInfo] = {}
        self._kernel_work: dict[str, KernelWork] = {}
        self._counter = Counter(self.program.buffers, self.sizes, WEIGHTS)
        self.ordered: tuple[str, ...] | None = None
        self._waits = Waits(self.program)
        self._next_effect: dict[str, str] = {}
        self._previous_effect: dict[str, str] = {}
        for item in self.program.items:
            self._add(item)
        self._order_effects()
        self.answer: tuple[object, object] | None = None  # the last decision checked, and what came of it
        self.order = ItemOrder(self.names, self.before, self.after)

    def fork(self) -> Draft:
        """Return a draft in the same state; a change of either leaves the other as it is."""
        other = copy.copy(self)
        for name in _CHANGING:  # what is in these tables is replaced when it changes, never changed in place
            setattr(other, name, dict(getattr(self, name)))
        other.order = self.order.fork(other.before, other.after)
        return other

    # ---- questions -------------------------------------------------------------------------------------------------

    def item_of(self, name: str) -> str:
        """Return the item that the nest (or extern call) of this name is now in."""
        return name if name in self.externs else self.owner[name]

    def find(self, name: str) -> str | None:
        """Return the item that a name stands for: the one that makes this buffer, or the item of this name.

        A kernel keeps its name when its founding nest is inlined away, so the name may be no buffer any more.
        """
        item = self.owner.get(name)
        return item or (name if name in self.kernels or name in self.externs else None)

    def steps(self, item: str) -> tuple[str, ...]:
        """Return the nests of a kernel, by the buffers that they make."""
        return self._steps[item]

    def before(self, item: str) -> Iterator[str]:
        """Yield the items that must run before `item`; repeats are possible."""
        reads = self.outside[item] if item in self.kernels else self._operands[item]
        for buffer in reads:
            maker = self.owner.get(buffer)
            if maker is not None:
                yield maker
        if item in self._previous_effect:
            yield self._previous_effect[item]

    def after(self, item: str) -> Iterator[str]:
        """Yield the items that must run after `item`; repeats are possible."""
        for buffer in self.steps(item) if item in self.kernels else self._given(item):
            for rank in self.readers.get(buffer, ()):
                reader = self.item_of(self.names[rank])
                if reader != item:
                    yield reader
        if item in self._next_effect:
            yield self._next_effect[item]

    def _given(self, call: str) -> tuple[str, ...]:
        """Return what items may wait for that a call gives: its results, and names of sizes and checks."""
        return (*self.externs[call].outs, *self._waits.ended_by(self.rank[call]))

    def escapes(self, buffer: str, inside: tuple[str, ...]) -> bool:
        """Tell whether anybody but the items `inside` needs this buffer in memory."""
        return buffer in self.pinned or any(
            self.item_of(self.names[rank]) not in inside for rank in self.readers.get(buffer, ())
        )

    def written(self, name: str) -> int:
        """Return the bytes of a nest's result."""
        return written_bytes(self.nests[name], self.sizes)

    def work(self, name: str) -> NestWork:
        """Return the counts of a nest."""
        if name not in self._work:
            self._work[name] = nest_work(self.nests[name], self.reads[name], self.sizes)
        return self._work[name]

    def info(self, item: str) -> KernelInfo:
        """Return the record of a kernel for policies."""
        if item not in self._info:
            steps = self.steps(item)
            works = [self.work(s) for s in steps]
            rows = tuple(self.sizes(a.extent) for a in self.kernels[item].rows)
            reads = MappingProxyType(self.outside[item])
            flops, points = sum(w.flops for w in works), sum(w.points for w in works)
            self._info[item] = KernelInfo(item, rows, steps, reads, flops, points, sum(w.nodes for w in works))
        return self._info[item]

    def built(self, item: str) -> Kernel:
        """Return a kernel with the buffers that nobody else needs now local to it."""
        kernel = self.kernels[item]
        return localise(kernel, [s.out for s in kernel.steps if self.escapes(s.out, (item,))])

    def kernel_work(self, item: str) -> KernelWork:
        """Return the counts of a kernel, with what is local to it now; one object until they may have changed."""
        if item not in self._kernel_work:
            info = self.info(item)
            written = sum(self.written(s) for s in info.steps if self.escapes(s, (item,)))
            read = sum(info.reads.values())
            emitted = self._counter(self.kernels[item])
            work = KernelWork(read, written, info.flops, info.points, info.parallel, emitted)
            self._kernel_work[item] = work
        return self._kernel_work[item]

    def touched_by(self, producer: str, consumer: str) -> tuple[str, ...]:
        """Return the kernels whose counts an inline may change: the two, and those that make what the first reads."""
        makers = [self.owner.get(buffer) for buffer in self.reads[producer]]
        names = (self.owner[consumer], self.owner[producer], *makers)
        return tuple(dict.fromkeys([item for item in names if item in self.kernels]))

    # ---- changes, each already checked -----------------------------------------------------------------------------

    def put_inlined(self, producer: str, consumer: Nest) -> None:
        """Take `consumer` in place of the nest of that name; the producer goes when nobody needs it any more."""
        self.answer = None
        for touched in self.touched_by(producer, consumer.out):
            self._kernel_work.pop(touched, None)
        item = self.owner[consumer.out]
        kernel = self.kernels[item]
        self._forget_reads(consumer.out)
        self.nests[consumer.out] = consumer
        steps = tuple(consumer if s.out == consumer.out else s for s in kernel.steps)
        self.kernels[item] = replace(kernel, steps=steps)
        self._note_reads(consumer.out)
        self._recount(item)
        if producer not in self.pinned and not self.readers.get(producer):
            self._remove(producer)

    def put_fused(self, into: str, other: str, fused: Kernel, ancestors: list[str]) -> None:
        """Take `fused` in place of the two kernels."""
        self.answer = None
        self.order.merge(into, other, ancestors)
        self._drop(other)
        self.kernels[into] = fused
        for step in fused.steps:
            self.owner[step.out] = into
            self.nests[step.out] = step
        self._recount(into)

    # ---- construction ----------------------------------------------------------------------------------------------

    def _add(self, item: object) -> None:
        rank = len(self.names)
        if isinstance(item, Nest):
            self.names.append(item.out)
            self.rank[item.out] = rank
            self.nests[item.out] = item
            self.owner[item.out] = item.out
            self.kernels[item.out] = _alone(item)
            self._note_reads(item.out)
            self._recount(item.out)
        elif isinstance(item, Extern):
            name = f"@{rank}"
            self.names.append(name)
            self.rank[name] = rank
            self.externs[name] = item
            self.owner.update((out, name) for out in item.outs if out)
            self.owner.update((waited, name) for waited in self._waits.ended_by(rank))
            self._operands[name] = tuple(sorted(item.reads()))
            self.pinned.update(self._operands[name])
            self._operands[name] += self._waits.of(item, rank)
            for buffer in self._operands[name]:
                self.readers[buffer] = (*self.readers.get(buffer, ()), rank)
        else:
            raise InvalidArgumentError(
                f"the program has a {type(item).__name__} where a nest or an extern call is expected",
                code="fuser.already_fused",
                hints=("plan and apply take the loops dialect",),
            )

    def _order_effects(self) -> None:
        """Keep calls with effects in program order: each follows the one before it."""
        ordered = [name for name, item in self.externs.items() if has_effect(item.target)]
        self._next_effect = dict(pairwise(ordered))
        self._previous_effect = {second: first for first, second in pairwise(ordered)}

    def _note_reads(self, name: str) -> None:
        rank = self.rank[name]
        reads = footprints(self.nests[name], self.program.buffers, self.sizes)
        self.reads[name] = reads | dict.fromkeys(self._waits.of(self.nests[name], rank), 0)
        self._work.pop(name, None)
        for buffer in self.reads[name]:
            ranks = self.readers.get(buffer, ())
            here = bisect.bisect_left(ranks, rank)
            self.readers[buffer] = (*ranks[:here], rank, *ranks[here:])

    def _forget_reads(self, name: str) -> None:
        rank = self.rank[name]
        for buffer in self.reads.pop(name):
            ranks = self.readers[buffer]
            here = bisect.bisect_left(ranks, rank)
            self.readers[buffer] = ranks[:here] + ranks[here + 1 :]

    def _recount(self, item: str) -> None:
        self._steps[item] = tuple([s.out for s in self.kernels[item].steps])
        made: set[str] = set()
        reads: dict[str, int] = {}
        for name in self._steps[item]:
            for buffer, size in self.reads[name].items():
                if buffer not in made:
                    reads[buffer] = max(size, reads.get(buffer, 0))
            made.add(name)
        self.outside[item] = reads
        self._info.pop(item, None)
        self._kernel_work.pop(item, None)

    def _drop(self, item: str) -> None:
        """Forget a kernel that is gone."""
        del self.kernels[item], self.outside[item], self._steps[item]
        self._info.pop(item, None)
        self._kernel_work.pop(item, None)

    def _remove(self, name: str) -> None:
        self._forget_reads(name)
        item = self.owner.pop(name)
        del self.nests[name]
        kernel = self.kernels[item]
        steps = tuple(s for s in kernel.steps if s.out != name)
        if steps:
            self.kernels[item] = replace(kernel, steps=steps)
            self._recount(item)
        else:
            self._drop(item)
            self.order.drop(item)


def live_program(program: Program) -> Program:
    """Return the program without items that neither an output nor an effect needs."""
    live = {ref.buffer for ref in program.outputs if isinstance(ref, TensorRef)}
    made_at = makers(program)
    live_sizes = returned_symbols(program) if made_at else set()
    kept = []
    for position, item in reversed(list(enumerate(program.items))):
        made = item.outs if isinstance(item, Extern) else item.writes() if isinstance(item, Kernel) else (item.out,)
        gives_size = any(made_at[name] == position for name in live_sizes if name in made_at)
        if live.isdisjoint(made) and not gives_size and not (isinstance(item, Extern) and must_run(item.target)):
            continue
        live |= item.reads()
        live_sizes |= needed_symbols(item, program.buffers) if made_at else set()
        kept.append(item)
    return replace(program, items=tuple(reversed(kept)))


def shorten(kernel: Kernel, depth: int) -> Kernel:
    """Return the kernel over its first `depth` rows only.

    before: kernel rows (i, j): P        after: kernel rows (i): P over j

    Always legal: steps that kept to a point of (i, j) keep to a row of i.
    """
    return kernel if depth == len(kernel.rows) else Kernel(kernel.rows[:depth], kernel.steps, kernel.local)


def _alone(nest: Nest) -> Kernel:
    """The nest as a kernel with as many rows as it can have: all axes, those before a scanned one; a scatter, none."""
    if NEST_KINDS[nest.kind].scatter:
        return Kernel((), (nest,))
    depth = nest.axes.index(nest.red[0]) if NEST_KINDS[nest.kind].scan else len(nest.axes)
    return Kernel(nest.axes[:depth], (nest,))
