"""Every plan of a small graph, and the best one by the cost model: what other policies are held against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from intarsia_fuser.decisions import Decision
from intarsia_fuser.graph import FusionGraph
from intarsia_ir.errors import InvalidArgumentError

__all__ = ["Exhaustive", "reachable"]


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """The least predicted time over every graph that legal moves lead to.

    Args:
        max_states: Graphs looked at; where there are more, the policy refuses instead of guessing.
        every_depth: Merge kernels at each number of rows in common, not only the largest.
    """

    max_states: int = 10_000
    every_depth: bool = False

    @property
    def name(self) -> str:
        """Identifier kept in plans."""
        return "exhaustive"

    @property
    def version(self) -> str:
        """Version of the decisions."""
        return "1"

    def decide(self, graph: FusionGraph) -> Iterable[Decision]:
        """Return the decisions of the best graph.

        Raises:
            InvalidArgumentError: `fuser.too_large`: more than `max_states` graphs can be reached.
        """
        best, path = graph.total_us, tuple[Decision, ...]()
        for count, (decisions, state) in enumerate(reachable(graph, every_depth=self.every_depth)):
            if count >= self.max_states:
                raise InvalidArgumentError(
                    f"more than {self.max_states} graphs can be reached from {len(graph.nests)} nests",
                    code="fuser.too_large",
                    hints=("Search() looks at a part of them",),
                )
            if state.total_us < best - 1e-9:
                best, path = state.total_us, decisions
        return path


def reachable(graph: FusionGraph, *, every_depth: bool = False) -> Iterator[tuple[tuple[Decision, ...], FusionGraph]]:
    """Yield every graph that legal moves lead to, each once, with the decisions that lead there."""
    seen = {graph.state()}
    ahead: list[tuple[tuple[Decision, ...], FusionGraph]] = [((), graph.fork())]
    while ahead:
        path, state = ahead.pop()
        yield path, state
        for move in state.legal(every_depth=every_depth):
            other = state.fork()
            other.apply(move.decision)
            key = other.state()
            if key not in seen:
                seen.add(key)
                ahead.append(((*path, move.decision), other))
