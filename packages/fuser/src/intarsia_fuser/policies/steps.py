"""What a search may do next: one legal move, or a map computed wherever it is read, which pays only as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from intarsia_fuser.decisions import Decision, Inline
from intarsia_fuser.graph import FusionGraph

__all__ = ["Step", "steps"]


@dataclass(frozen=True, slots=True)
class Step:
    """Decisions that are taken together.

    Args:
        decisions: In order; each is legal after those before it.
        saved_us: Microseconds that the cost model thinks they save.
    """

    decisions: tuple[Decision, ...]
    saved_us: float


def steps(graph: FusionGraph, *, of: str | None = None, every_depth: bool = False) -> Iterator[Step]:
    """Yield the legal moves of a graph, and the inlines of each map into all of its readers.

    Args:
        graph: As it stands.
        of: A buffer: only what the kernel that makes it takes part in; None: everything.
        every_depth: List a merge at each number of rows in common, not only the largest.
    """
    everywhere: dict[str, list[Inline]] = {}
    for move in graph.legal(of=of, every_depth=every_depth):
        yield Step((move.decision,), move.saved_us)
        if isinstance(move.decision, Inline):
            everywhere.setdefault(move.decision.producer, []).append(move.decision)
    for producer, inlines in everywhere.items():
        if len(inlines) == 1 or len(inlines) < len(graph.readers(producer)):
            continue
        saved = graph.saved_us(inlines)
        if saved is not None:
            yield Step(tuple(inlines), saved)
