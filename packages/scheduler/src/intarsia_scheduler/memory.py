"""Memory plan: where intermediates live in one arena, so that buffers which are never alive together share bytes.

It is made of launches, when all else is decided: what is merged or run side by side is one launch then, and what
launches of one kernel share is a buffer. A buffer is alive from the first launch that touches it to the last one, both
included: what a launch reads and what it writes never share storage, so that it needs no care about the order of its
loads and stores, nor about that of its sets.

The arena is there for the whole call, and results of extern calls come and go beside it. So on a device whose
allocator keeps freed memory, which is every one but the CPU, large buffers may be left out of it: each is then
allocated before the run of kernels that writes it and freed after the one that reads it last, in memory that freed
results had before. How large is decided by the predicted peak (`peak`): the fewest allocations within 2% of the lowest.

Not in the arena: inputs, constants, graph outputs, results of extern calls (ATen allocates them), counters (which stay
from call to call), buffers whose size isn't known before the call, operands of extern calls that count elements from
the start of the storage, of those that send them to other processes, which may go on behind the call, and those whose
memory an extern call may take for its results.
Two strategies are tried and the smaller arena is taken: first fit by decreasing size (good, quadratic in the buffers
alive together; skipped for large programs) and best fit in program order (n log n).
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from intarsia_ir.aten import counts_from_storage, effects, form_of, written_operands
from intarsia_ir.dtypes import itemsize
from intarsia_loops.launches import Launches, LaunchPlan
from intarsia_loops.program import Buffer, Extern, Placement, TensorRef

__all__ = ["ALIGNMENT", "Lifetime", "best_fit", "by_size", "highest", "lifetimes", "peak", "place", "steps_of"]

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
_EXACT_LIMIT = 512  # buffers up to which placing by size is tried
_SLACK = 1.02  # of the lowest peak, for fewer allocations
_MOST_TRIED = 24  # sizes from which on buffers are left out of the arena


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer's stay in the arena.

    Args:
        buffer: Its name.
        start: Position, among launches and extern calls, of the first one that touches it.
        stop: Position of the last one.
        size: Bytes, rounded up to `ALIGNMENT`.
    """

    buffer: str
    start: int
    stop: int
    size: int


@dataclass(frozen=True, slots=True)
class _Step:
    """A launch or an extern call.

    Args:
        reads: Buffers that it reads.
        writes: Those that it writes, or that the call returns, in order.
        call: The call; None: it is a launch.
    """

    reads: frozenset[str]
    writes: tuple[str, ...]
    call: Extern | None = None


def place(launches: Launches, *, least: int = 1 << 18) -> Placement:
    """Return where the intermediates of launches live.

    Args:
        launches: In the order in which they run; what their program says of memory doesn't count.
        least: Bytes from which a buffer may have an allocation of its own: fewer aren't worth the host's time.

    Returns:
        Offsets in bytes, of buffers that aren't left out for a lower peak; `lower_bound_bytes` is the largest sum of
        the (rounded) bytes of those that are alive at one launch or call.
    """
    known = _Steps(launches)
    alive = known.lifetimes()
    whole = _placed(alive)
    free = [a for a in alive if a.size >= max(least, 1)] if launches.target.device != "cpu" else []
    if not free:
        return whole
    wide = {a.buffer: a for a in known.widened(alive)}
    others = known.widened(known.beside(alive))
    tried = [(0, whole, _peak(whole, others))]
    runs = known.runs()
    crossing = [a for a in free if runs[a.start] != runs[a.stop]]
    for candidates in (crossing, free):
        for size in sorted({a.size for a in candidates}, reverse=True)[:_MOST_TRIED]:
            own = {a.buffer for a in candidates if a.size >= size}
            placement = _placed([a for a in alive if a.buffer not in own])
            tried.append((len(own), placement, _peak(placement, [*others, *(wide[name] for name in own)])))
    lowest = min(bytes_ for *_, bytes_ in tried)
    return min((t for t in tried if t[2] <= lowest * _SLACK), key=lambda t: t[0])[1]


def peak(launches: Launches) -> int:
    """Return the most bytes that a call of placed launches is predicted to hold beyond its inputs and constants.

    That is the arena, and at each launch and call the results of extern calls, the buffers with an allocation of their
    own, and the graph's outputs made so far. Workspaces of libraries don't count, nor do sizes that aren't known.

    Args:
        launches: As they run; where their program has no placement, every buffer has its own allocation.
    """
    placement = launches.program.placement or Placement(0, MappingProxyType({}))
    known = _Steps(launches)
    alive = known.lifetimes()
    own = [a for a in alive if a.buffer not in placement.offsets]
    return _peak(placement, known.widened([*known.beside(alive), *own]))


def lifetimes(launches: Launches) -> tuple[Lifetime, ...]:
    """Return the lifetimes of the buffers that belong in the arena, by start."""
    return _Steps(launches).lifetimes()


def steps_of(launches: Launches) -> _Steps:
    """Return what runs, in order, and from where to where each buffer is used."""
    return _Steps(launches)


class _Steps:
    """What runs, in order, and which buffers it touches."""

    def __init__(self, launches: Launches) -> None:
        program = launches.program
        self.buffers = {**program.buffers, **launches.scratch}
        self.steps = _steps(launches)
        self.returned = {ref.buffer for ref in program.outputs if isinstance(ref, TensorRef)}
        self.never = {*program.inputs, *program.constants, *self.returned, launches.counters}
        self.first: dict[str, int] = {}
        self.last: dict[str, int] = {}
        for position, step in enumerate(self.steps):
            for name in step.writes:
                self.first.setdefault(name, position)
            self.last.update(dict.fromkeys((*step.writes, *step.reads), position))

    def lifetimes(self) -> tuple[Lifetime, ...]:
        outside, found = {*self.never, *self._taken()}, dict[str, Lifetime]()
        for position, step in enumerate(self.steps):
            for name in step.writes if step.call is None else ():
                size = _bytes(self.buffers[name])
                if name not in outside and name not in found and size is not None:
                    found[name] = Lifetime(name, position, self.last[name], size)
        return tuple(found.values())

    def _taken(self) -> set[str]:
        """Return the operands of calls that have storage of their own."""
        taken: set[str] = set()
        for position, step in enumerate(self.steps):
            if step.call is None:
                continue
            if counts_from_storage(step.call.target) or effects(step.call.target).communicates:
                taken |= step.call.reads()
            else:
                taken |= {name for name in _written_in_place(step.call) if self.last[name] == position}
        return taken

    def beside(self, alive: Sequence[Lifetime]) -> list[Lifetime]:
        """Return the stays of what is never in the arena: outputs, results of calls and what these must own."""
        kept, end = {a.buffer for a in alive}, len(self.steps)
        found = []
        for name, start in self.first.items():
            if name in self.buffers and name not in kept:
                stop = end if name in self.returned else self.last[name]
                found.append(Lifetime(name, start, stop, _bytes(self.buffers[name]) or 0))
        return found

    def widened(self, stays: Iterable[Lifetime]) -> list[Lifetime]:
        """Return stays of what is allocated by itself: launches between two extern calls are one call of the host."""
        runs = self.runs()
        return [replace(a, start=runs[a.start][0], stop=runs[a.stop][1]) for a in stays]

    def runs(self) -> list[tuple[int, int]]:
        """Map each position to the first and last one of its call, and the end, where outputs are, to itself."""
        runs: list[tuple[int, int]] = []
        for is_call, group in itertools.groupby(enumerate(self.steps), lambda entry: entry[1].call is not None):
            places = [position for position, _ in group]
            runs += [(k, k) if is_call else (places[0], places[-1]) for k in places]
        return [*runs, (len(self.steps), len(self.steps))]


def _steps(launches: Launches) -> tuple[_Step, ...]:
    """Return launches and the calls between them, in order; a call that a launch does is no step."""
    found = [(launch.items[0], _launched(launch)) for launch in launches.launches]
    done = {k for launch in launches.launches for k in range(*launch.items)}
    for k, item in enumerate(launches.program.items):
        if isinstance(item, Extern) and k not in done:
            found.append((k, _Step(item.reads(), tuple(filter(None, item.outs)), item)))
    return tuple(step for _, step in sorted(found, key=lambda entry: entry[0]))


def _launched(launch: LaunchPlan) -> _Step:
    asserted = {name for name, _ in launch.asserts}
    kernels = [launch.kernel, *([launch.finish.kernel] if launch.finish is not None else [])]
    writes = dict.fromkeys(name for kernel in kernels for name in kernel.writes() if name not in asserted)
    reads = {name for kernel in kernels for name in kernel.reads()} - asserted
    return _Step(
        frozenset(names[int(name[1:])] for names in launch.sets for name in reads),
        tuple(names[int(name[1:])] for names in launch.sets for name in writes),
    )


def _placed(alive: Sequence[Lifetime]) -> Placement:
    """Return the better arena of the two strategies."""
    plans = [best_fit(alive)]
    if len(alive) <= _EXACT_LIMIT:
        plans.append(by_size(alive))
    offsets = min(plans, key=lambda plan: highest(plan, alive))
    ordered = {a.buffer: offsets[a.buffer] for a in alive}
    return Placement(highest(offsets, alive), MappingProxyType(ordered), _lower_bound(alive))


def _peak(placement: Placement, others: Sequence[Lifetime]) -> int:
    return placement.arena_bytes + _lower_bound(others)


def _written_in_place(item: Extern) -> set[str]:
    """Return the operands whose memory a call may take for its results, once nobody else needs them."""
    op = form_of(item.target)
    return set() if op is None else {ref.buffer for ref in written_operands(op, item.args, dict(item.kwargs))}


def _bytes(buffer: Buffer) -> int | None:
    """Size from the first to the last element, rounded up; None when it is symbolic."""
    last = 0
    for extent, stride in zip(buffer.shape, buffer.strides):
        n, step = extent.const(), stride.const()
        if n == 0:
            return 0
        if n is None or step is None:
            return None
        last += (n - 1) * step
    return -(-(last + 1) * itemsize(buffer.dtype) // ALIGNMENT) * ALIGNMENT


def highest(offsets: Mapping[str, int], alive: Iterable[Lifetime]) -> int:
    """Return the end of the last buffer: the bytes that an arena with these offsets needs."""
    return max((offsets[a.buffer] + a.size for a in alive), default=0)


def _lower_bound(alive: Sequence[Lifetime]) -> int:
    change: dict[int, int] = {}
    for a in alive:
        change[a.start] = change.get(a.start, 0) + a.size
        change[a.stop + 1] = change.get(a.stop + 1, 0) - a.size
    now = peak = 0
    for position in sorted(change):
        now += change[position]
        peak = max(peak, now)
    return peak


def by_size(alive: Sequence[Lifetime]) -> dict[str, int]:
    """Largest first, each at the lowest offset that is free during its life."""
    placed: list[tuple[int, Lifetime]] = []  # by offset
    offsets: dict[str, int] = {}
    for a in sorted(alive, key=lambda a: (-a.size, a.start)):
        offset = 0
        for other_offset, other in placed:
            if other.start > a.stop or a.start > other.stop:
                continue
            if other_offset - offset >= a.size:
                break
            offset = max(offset, other_offset + other.size)
        offsets[a.buffer] = offset
        bisect.insort(placed, (offset, a), key=lambda entry: entry[0])
    return offsets


def best_fit(alive: Sequence[Lifetime]) -> dict[str, int]:
    """Walk the program; take the smallest hole that fits, else grow the arena."""
    holes = _Holes()
    offsets: dict[str, int] = {}
    ending = sorted(alive, key=lambda a: a.stop)
    done = 0
    for a in sorted(alive, key=lambda a: a.start):
        while done < len(ending) and ending[done].stop < a.start:
            holes.free(offsets[ending[done].buffer], ending[done].size)
            done += 1
        offsets[a.buffer] = holes.take(a.size)
    return offsets


class _Holes:
    """Free ranges below a growing top, by offset; neighbours are joined."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._sizes: list[int] = []
        self._top = 0

    def take(self, size: int) -> int:
        fitting = [(s, k) for k, s in enumerate(self._sizes) if s >= size]
        if size == 0:
            return 0
        if fitting:
            found, k = min(fitting)
            offset = self._offsets[k]
            if found == size:
                del self._offsets[k], self._sizes[k]
            else:
                self._offsets[k], self._sizes[k] = offset + size, found - size
            return offset
        offset = self._top
        if self._offsets and self._offsets[-1] + self._sizes[-1] == self._top:
            offset = self._offsets.pop()
            self._sizes.pop()
        self._top = offset + size
        return offset

    def free(self, offset: int, size: int) -> None:
        if size == 0:
            return
        k = bisect.bisect(self._offsets, offset)
        self._offsets.insert(k, offset)
        self._sizes.insert(k, size)
        self._join(k)
        self._join(k - 1)

    def _join(self, left: int) -> None:
        """Make one hole of the hole at this place and the next, if they touch."""
        right = left + 1
        if left >= 0 and right < len(self._offsets) and self._offsets[left] + self._sizes[left] == self._offsets[right]:
            self._sizes[left] += self._sizes.pop(right)
            del self._offsets[right]
