"""Our policy: inline what costs nothing to repeat, then merge kernels by bytes saved, keeping to shapes that run fast.

Phase 1, inline, producers first. A map is computed where it is read when
  - it has one reader that evaluates it no more often than it would be evaluated on its own, or
  - it is light: at most one load that varies along the innermost loop, few operations, none heavy, or
  - it is read at places that depend on data, and at few of them, or
  - it has one reader, a map, and repeating the work is predicted to take less time than storing and loading it.
A value per row that comes out of a reduction is never repeated: phase 2 makes it a step of the row. Heavy work is not
moved into scans and arg reductions, which run one element at a time.
Phase 2, merge. Pairs of kernels that share a buffer wait in a heap, most bytes saved first; after a merge the pairs of
the merged kernel are scored anew. A pair is declined, with a reason in the log, when the merged kernel would
  `greedy.no_row`     have no row in common, though nothing is folded to a scalar, or one of them doesn't need it
  `greedy.pattern`    fold across rows and go along them: vector lanes would suit one only
  `greedy.layouts`    store results in different orders of memory
  `greedy.few_rows`   fold along some inner axes of a row, in few rows ...
  `greedy.wide_row`   ... or in rows that the cache can't hold (measured: 3 to 10 times slower)
  `greedy.size`       be too large
  `greedy.little`     for horizontal pairs: save too little of what the two move
  `greedy.scatter`    have a scatter in it
Ties go to what comes first in the program, so equal layers get equal kernels.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from intarsia_fuser.cost import KernelWork
from intarsia_fuser.decisions import Decision, Declined, Fuse, Inline
from intarsia_fuser.draft import KernelInfo
from intarsia_fuser.graph import FusionGraph
from intarsia_fuser.patterns import is_column, is_reduction, kernel_pattern, layout_order
from intarsia_ir import codes
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Kernel, Nest, Refused, Val

__all__ = ["Greedy"]

Reason = tuple[str, str]  # a code and a sentence


@dataclass(frozen=True, slots=True)
class Greedy:
    """Greedy by bytes saved.

    Args:
        max_steps: Nests in one kernel.
        max_nodes: Scalar operations in one kernel.
        max_body: Scalar operations in one nest.
        max_operands: Buffers that one kernel reads.
        max_results: Buffers that one kernel stores: more streams than the hardware follows cost more than they save.
        max_distance: Positions between two kernels that are merged.
        min_rows: Rows that a kernel with folds along inner axes must have.
        serial_points: Body evaluations up to which that doesn't matter: one thread does them all.
        max_row_bytes: What a row of such a kernel may hold: it should stay in the second-level cache.
        min_shared: Least part of the smaller kernel's bytes that a horizontal merge must save.
        light_nodes: Operations of a map that may be repeated without asking what it costs.
        few_places: A map read at places that depend on data is computed there when it has so many times more points.
    """

    max_steps: int = 48
    max_nodes: int = 1024
    max_body: int = 192
    max_operands: int = 32
    max_results: int = 12
    max_distance: int = 256
    min_rows: int = 8
    serial_points: int = 1 << 13
    max_row_bytes: int = 1 << 20
    min_shared: float = 0.2
    light_nodes: int = 6
    few_places: int = 4

    @property
    def name(self) -> str:
        """Identifier kept in plans."""
        return "greedy"

    @property
    def version(self) -> str:
        """Version of the decisions."""
        return "1"

    @property
    def weighs_times(self) -> bool:
        """By rules; a time is asked for where a map may be repeated, and any model will do."""
        return False

    def decide(self, graph: FusionGraph) -> Iterator[Decision | Declined]:
        """Yield inlines, then merges."""
        yield from self._inline(graph)
        yield from self._merge(graph)

    # ---- phase 1 ---------------------------------------------------------------------------------------------------

    def _inline(self, graph: FusionGraph) -> Iterator[Decision | Declined]:
        for name in graph.nests:
            readers = graph.readers(name)
            if graph.nest(name).kind != "map" or graph.pinned(name) or not readers:
                continue
            why = self._why_inline(graph, name, readers)
            if why:
                for reader in readers:
                    yield Inline(name, reader, why=why)

    def _why_inline(self, graph: FusionGraph, name: str, readers: tuple[str, ...]) -> str:
        """The reason to compute a map where it is read; "" to store it."""
        nests = [graph.nest(r) for r in readers]
        if any(v.op == "gather" for n in nests for v in _loads_of(n, name)):
            return self._why_gather(graph, name, readers)
        if not self._bodies_fit(graph, name, readers):
            return ""
        if any(_one_at_a_time(n) for n in nests) and graph.nest_work(name).heavy:
            return ""
        points = graph.points(name)
        if _is_row_result(graph, name) and any(graph.points(r) > points for r in readers):
            return ""
        evaluations = sum(graph.evaluations(name, r) for r in readers)
        if len(readers) == 1 and evaluations <= points:
            return "read once"
        work = graph.nest_work(name)
        if work.wide <= 1 and not work.heavy and work.nodes <= self.light_nodes:
            return "light"
        if len(readers) == 1 and nests[0].kind == "map":
            again = KernelWork(0, 0, work.flops * evaluations // max(points, 1), evaluations, evaluations)
            alone = KernelWork(0, 0, work.flops, points, points)
            extra = graph.cost.kernel_us(again) - graph.cost.kernel_us(alone)
            if extra < graph.predicted_us(name):
                return "cheaper to repeat"
        return ""

    def _why_gather(self, graph: FusionGraph, name: str, readers: tuple[str, ...]) -> str:
        """The reason to compute a map where it is read at places that depend on data: only a few of them are read."""
        if not self._bodies_fit(graph, name, readers):
            return ""
        evaluations = sum(graph.points(r) * len(_loads_of(graph.nest(r), name)) for r in readers)
        return "read in few places" if evaluations * self.few_places <= graph.points(name) else ""

    def _bodies_fit(self, graph: FusionGraph, name: str, readers: tuple[str, ...]) -> bool:
        """Whether every reader stays below `max_body` operations; counts shared parts once, but only when it must."""
        own = graph.nest(name).body.size
        if all(own + graph.nest(r).body.size <= self.max_body for r in readers):
            return True
        own = graph.nest_work(name).nodes
        return all(own + graph.nest_work(r).nodes <= self.max_body for r in readers)

    # ---- phase 2 ---------------------------------------------------------------------------------------------------

    def _merge(self, graph: FusionGraph) -> Iterator[Decision | Declined]:
        pairs = _Pairs(graph, self.max_distance)
        columns = _Columns(graph)
        declined: set[tuple[str, str]] = set()
        while (pair := pairs.pop()) is not None:
            first, second, saved = pair
            decision = self._judge(graph, first, second, saved, columns)
            if isinstance(decision, Declined):
                if (first, second) not in declined:
                    declined.add((first, second))
                    yield decision
                continue
            answer = graph.check(decision)
            yield decision
            if not isinstance(answer, Refused):
                pairs.merged(first, second)
            elif answer.code == codes.EXTERN_BETWEEN:
                pairs.never(first, second)

    def _judge(self, graph: FusionGraph, first: str, second: str, saved: int, columns: _Columns) -> Fuse | Declined:
        """Merge two kernels, or say why not."""
        scattered = next(
            (s for k in (first, second) for s in graph.kernel(k).steps if _is_scatter(graph.nest(s))), None
        )
        if scattered is not None:
            return Declined(first, second, "greedy.scatter", f"{scattered} is a scatter, a kernel of its own")
        depth = graph.depth(first, second)
        merged = _together(graph, first, second, depth)
        pattern = kernel_pattern(merged, columns)
        a, b = graph.kernel(first), graph.kernel(second)
        vertical = any(s in b.reads for s in a.steps)
        reason = (
            self._too_large(graph, a, b)
            or (None if vertical else self._too_little(graph, a, b, saved))
            or self._no_row(merged, vertical=vertical)
            or self._slow(graph, merged, pattern, (first, second), a.points + b.points)
        )
        if reason:
            code, why = reason
            return Declined(first, second, f"greedy.{code}", why)
        return Fuse(first, second, depth, why=f"{pattern}, {'vertical' if vertical else 'horizontal'}")

    def _too_large(self, graph: FusionGraph, a: KernelInfo, b: KernelInfo) -> Reason | None:
        if len(a.steps) + len(b.steps) > self.max_steps or a.nodes + b.nodes > self.max_nodes:
            return "size", f"{len(a.steps)} + {len(b.steps)} steps, {a.nodes} + {b.nodes} operations"
        operands = len((a.reads.keys() | b.reads.keys()) - set(a.steps))
        results = sum(graph.escapes(s, a.name, b.name) for s in a.steps + b.steps)
        if operands > self.max_operands or results > self.max_results:
            return "size", f"{operands} buffers read, {results} stored"
        return None

    def _too_little(self, graph: FusionGraph, a: KernelInfo, b: KernelInfo, saved: int) -> Reason | None:
        """For kernels that only share what they read."""
        least = min(_moved(graph.work(a.name)), _moved(graph.work(b.name)))
        return ("little", f"saves {saved} bytes of {least}") if saved < self.min_shared * least else None

    def _no_row(self, merged: Kernel, *, vertical: bool) -> Reason | None:
        """For kernels without a leading axis in common: one row does all, which only pays for a fold to a scalar."""
        if merged.rows or (vertical and any(is_reduction(s) and not s.axes for s in merged.steps)):
            return None
        if not vertical and all(not s.axes for s in merged.steps):
            return None
        return "no_row", "no leading axis in common"

    def _slow(
        self, graph: FusionGraph, merged: Kernel, pattern: str, pair: tuple[str, str], points: int
    ) -> Reason | None:
        """Why emitted code for the merged kernel would be slow."""
        if pattern == "mixed":
            return "pattern", "some folds go across rows, other steps along them"
        if pattern == "pointwise":
            stored = [s.out for s in merged.steps if graph.escapes(s.out, *pair)]
            if len({layout_order(graph.buffer(name)) for name in stored}) > 1:
                return "layouts", "the results are laid out in different orders"
        if pattern == "inner":
            rows = graph.extent(merged.rows)
            wide = [s.out for s in merged.steps if len(s.axes) > len(merged.rows)]
            held = sum(graph.nest_work(name).written for name in wide) // max(rows, 1)
            if rows < self.min_rows and points > self.serial_points:
                return "few_rows", f"{rows} rows for folds along inner axes"
            if held > self.max_row_bytes:
                return "wide_row", f"a row holds {held} bytes for folds along inner axes"
        return None


class _Pairs:
    """Pairs of kernels that may be merged, most bytes saved first; what a merge has outdated is passed over."""

    def __init__(self, graph: FusionGraph, max_distance: int) -> None:
        self._graph, self._max_distance = graph, max_distance
        kernels = graph.kernels
        self._place = {kernel: k for k, kernel in enumerate(kernels)}
        self._stamp = dict.fromkeys(kernels, 0)  # how often a kernel has grown
        self._heap: list[tuple[int, int, int, str, str, int, int]] = []
        self._tried: set[tuple[str, str, int, int]] = set()
        self._never: set[tuple[str, str]] = set()
        for kernel in kernels:
            self._push(kernel)

    def pop(self) -> tuple[str, str, int] | None:
        """Return (first, second, bytes saved) of the best pair that hasn't been tried as it is now."""
        while self._heap:
            saved, _, _, first, second, *stamps = heapq.heappop(self._heap)
            key = (first, second, stamps[0], stamps[1])
            if [self._stamp.get(first), self._stamp.get(second)] == stamps and key not in self._tried:
                self._tried.add(key)
                return first, second, -saved
        return None

    def merged(self, first: str, second: str) -> None:
        """Score the pairs of `first` anew: `second` is part of it now."""
        del self._stamp[second]
        self._stamp[first] += 1
        self._push(first)

    def never(self, first: str, second: str) -> None:
        """Forget a pair for good, however the two kernels grow."""
        self._never.add((first, second))

    def _push(self, kernel: str) -> None:
        for n in self._graph.neighbours(kernel):
            if n.saved > 0 and n.distance <= self._max_distance and (n.first, n.second) not in self._never:
                entry = (-n.saved, self._place[n.first], self._place[n.second], n.first, n.second)
                heapq.heappush(self._heap, (*entry, self._stamp[n.first], self._stamp[n.second]))


class _Columns:
    """Whether a reduction walks columns, remembered per body."""

    def __init__(self, graph: FusionGraph) -> None:
        self._graph = graph
        self._known: dict[tuple[str, Val], bool] = {}

    def __call__(self, nest: Nest) -> bool:
        key = (nest.out, nest.body)
        if key not in self._known:
            self._known[key] = is_column(nest, self._graph.buffers)
        return self._known[key]


def _together(graph: FusionGraph, first: str, second: str, depth: int) -> Kernel:
    """The steps of both, only to look at (axes aren't renamed)."""
    a, b = graph.kernel_record(first), graph.kernel_record(second)
    return Kernel(a.rows[:depth], a.steps + b.steps)


def _moved(work: KernelWork) -> int:
    return work.bytes_read + work.bytes_written


def _loads_of(nest: Nest, buffer: str) -> list[Val]:
    return [v for v in nest.body.loads if v.args[0] == buffer]


def _one_at_a_time(nest: Nest) -> bool:
    return nest.kind in ("argmax", "argmin") or NEST_KINDS[nest.kind].scan


def _is_scatter(nest: Nest) -> bool:
    return NEST_KINDS[nest.kind].scatter


def _is_row_result(graph: FusionGraph, name: str) -> bool:
    """Whether the map reads something that a reduction makes."""
    return any(is_reduction(graph.nest(b)) for b in graph.nest_work(name).reads if graph.has_nest(b))
