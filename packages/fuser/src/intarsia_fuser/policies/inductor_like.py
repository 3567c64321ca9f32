"""A policy in the manner of TorchInductor's scheduler: inline by thresholds, then rounds of pairwise fusion.

Phase 1, inline (Inductor: an op is "realized" or computed where it is read). A map is stored when it has several
readers and is large, when it reads very much, or when heavy work (an exponential) would be repeated, for several
readers or at a loss; otherwise its readers compute it.
Phase 2, up to ten rounds. All pairs that share a buffer are scored by (category, bytes saved, closeness) and tried from
the best down, each kernel in one merge a round:
  category    3 both pointwise or both reducing; 2 pointwise with reducing; 1 anything else
  bytes       what the two no longer move
  closeness   fewer items between them
A pair must loop over equal ranges: two of maps over equal rows, a reduction and a map over equal points.

Source: the behaviour described in the TorchInductor paper (ASPLOS 2024) and its documentation. Differs: rows are merged
by this package's one rule, so multi-pass reductions need no special case; no templates, no benchmarking.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from intarsia_fuser.decisions import Decision, Fuse, Inline
from intarsia_fuser.graph import FusionGraph, Neighbour
from intarsia_fuser.patterns import is_reduction

__all__ = ["InductorLike"]


@dataclass(frozen=True, slots=True)
class InductorLike:
    """Greedy by category, bytes saved, and distance.

    Args:
        max_reads: A map that reads more buffers than this is stored when it has several readers.
        max_nodes: So is a map with more scalar operations than this.
        max_loads: A map that reads more buffers than this is stored always.
        max_body: A map that makes its reader larger than this is stored always.
        max_steps: Nests in one kernel.
        rounds: Fusion rounds.
    """

    max_reads: int = 4
    max_nodes: int = 30
    max_loads: int = 8
    max_body: int = 256
    max_steps: int = 64
    rounds: int = 10

    @property
    def name(self) -> str:
        """Identifier kept in plans."""
        return "inductor_like"

    @property
    def version(self) -> str:
        """Version of the decisions."""
        return "3"

    def decide(self, graph: FusionGraph) -> Iterator[Decision]:
        """Yield inlines, then merges."""
        for name in graph.nests:
            if self._is_computed_where_read(graph, name):
                for reader in graph.readers(name):
                    yield Inline(name, reader, why="small or read once")
        for _ in range(self.rounds):
            merged = False
            for pair, depth in self._pairs(graph):
                if self._still_apart(graph, pair):
                    yield Fuse(pair.first, pair.second, depth, why=f"{pair.kind}, {pair.saved} bytes")
                    merged = True
            if not merged:
                return

    def _is_computed_where_read(self, graph: FusionGraph, name: str) -> bool:
        readers = graph.readers(name)
        if graph.nest(name).kind != "map" or graph.pinned(name) or not readers:
            return False
        if any(v.op == "gather" and v.args[0] == name for r in readers for v in graph.nest(r).body.loads):
            return False
        work = graph.nest_work(name)
        if len(work.reads) > self.max_loads:
            return False
        if any(work.nodes + graph.nest_work(r).nodes > self.max_body for r in readers):
            return False
        if work.heavy and sum(graph.evaluations(name, r) for r in readers) > graph.points(name):
            return len(readers) == 1 and (graph.saved_us([Inline(name, readers[0])]) or 0.0) > 0
        return len(readers) == 1 or (len(work.reads) <= self.max_reads and work.nodes <= self.max_nodes)

    def _pairs(self, graph: FusionGraph) -> list[tuple[Neighbour, int]]:
        """Every pair that may be tried this round with its depth, best first."""
        found: dict[tuple[str, str], tuple[Neighbour, int]] = {}
        for kernel in graph.kernels:
            for pair in graph.neighbours(kernel):
                key = (pair.first, pair.second)
                if key not in found and pair.saved > 0:
                    depth = graph.depth(pair.first, pair.second)
                    if self._same_ranges(graph, pair, depth):
                        found[key] = (pair, depth)
        place = {kernel: k for k, kernel in enumerate(graph.kernels)}
        return sorted(
            found.values(),
            key=lambda entry: (
                -self._category(graph, entry[0]),
                -entry[0].saved,
                entry[0].distance,
                place[entry[0].first],
                place[entry[0].second],
            ),
        )

    def _same_ranges(self, graph: FusionGraph, pair: Neighbour, depth: int) -> bool:
        a, b = graph.kernel(pair.first), graph.kernel(pair.second)
        if len(a.steps) + len(b.steps) > self.max_steps:
            return False
        if depth == len(a.rows) == len(b.rows):
            return True
        if depth == 0 or not (self._reduces(graph, pair.first) or self._reduces(graph, pair.second)):
            return False  # maps over as many points in another order, such as heads before or after positions
        return bool(self._points(graph, pair.first) & self._points(graph, pair.second))

    def _points(self, graph: FusionGraph, kernel: str) -> set[int]:
        return {graph.nest_work(s).points for s in graph.kernel(kernel).steps}

    def _category(self, graph: FusionGraph, pair: Neighbour) -> int:
        return 3 if self._reduces(graph, pair.first) == self._reduces(graph, pair.second) else 2

    def _reduces(self, graph: FusionGraph, kernel: str) -> bool:
        return any(is_reduction(graph.nest(s)) for s in graph.kernel(kernel).steps)

    def _still_apart(self, graph: FusionGraph, pair: Neighbour) -> bool:
        """Whether both kernels are as they were when the round was scored."""
        a, b = graph.maker(pair.first), graph.maker(pair.second)
        return a == pair.first and b == pair.second and a != b
