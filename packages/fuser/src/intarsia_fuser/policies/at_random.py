"""Plans drawn at random from all legal ones: what cost models are held against, and datasets are made of."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from intarsia_fuser.decisions import Decision
from intarsia_fuser.graph import FusionGraph

__all__ = ["AtRandom"]


@dataclass(frozen=True, slots=True)
class AtRandom:
    """Legal moves, each as likely as any other, until a drawn number is taken or none is left.

    Args:
        seed: Of the draws; the same seed gives the same plan.
        every_depth: Draw merges at each number of rows in common, not only at the largest.
    """

    seed: int = 0
    every_depth: bool = False

    @property
    def name(self) -> str:
        """Identifier kept in plans."""
        return f"at_random({self.seed})"

    @property
    def version(self) -> str:
        """Version of the decisions."""
        return "1"

    @property
    def weighs_times(self) -> bool:
        """By draws."""
        return False

    def decide(self, graph: FusionGraph) -> Iterator[Decision]:
        """Yield moves from the list of all that are legal then."""
        rng = random.Random(self.seed)
        for _ in range(rng.randint(0, 2 * len(graph.nests))):
            moves = graph.legal(every_depth=self.every_depth)
            if not moves:
                return
            yield rng.choice(moves).decision
