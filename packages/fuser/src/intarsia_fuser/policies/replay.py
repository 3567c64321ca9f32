"""Several plans as one policy: each graph of a program gets the plan that was made for it, or for its like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from intarsia_fuser.decisions import Decision, Declined
from intarsia_fuser.graph import FusionGraph
from intarsia_fuser.policies.greedy import Greedy
from intarsia_fuser.policies.protocol import FusionPolicy, weighs_times
from intarsia_fuser.record import FusionPlan

__all__ = ["Replay"]


@dataclass(frozen=True, slots=True)
class Replay:
    """For a graph: the plan with its fingerprint, else the first one whose names all have a counterpart, else a policy.

    Args:
        plans: Of the graphs of a program: one after each graph break, a forward and a backward one in training.
        otherwise: Decides where no plan fits.
    """

    plans: tuple[FusionPlan, ...]
    otherwise: FusionPolicy = field(default_factory=Greedy)

    @property
    def name(self) -> str:
        """Identifier kept in plans."""
        return f"replay({', '.join(dict.fromkeys(p.name for p in self.plans))}; {self.otherwise.name})"

    @property
    def version(self) -> str:
        """Version of the decisions."""
        return "1"

    @property
    def weighs_times(self) -> bool:
        """Where no plan fits, as the other policy does."""
        return weighs_times(self.otherwise)

    def decide(self, graph: FusionGraph) -> Iterable[Decision | Declined]:
        """Return what the plan that fits decides."""
        made_for = [p for p in self.plans if p.graph == graph.fingerprint]
        fitting = made_for or [p for p in self.plans if p.fits(graph)]
        return (fitting[0] if fitting else self.otherwise).decide(graph)
