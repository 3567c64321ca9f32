"""What a policy is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from intarsia_fuser.decisions import Decision, Declined
from intarsia_fuser.graph import FusionGraph

__all__ = ["FusionPolicy"]


class FusionPolicy(Protocol):
    """What decides. Any object with these three members; nothing is registered, nothing is subclassed."""

    @property
    def name(self) -> str:
        """Identifier kept in plans, such as `"greedy"`."""

    @property
    def version(self) -> str:
        """Changes whenever the same graph may get another plan."""

    def decide(self, graph: FusionGraph) -> Iterable[Decision | Declined]:
        """Yield decisions, best one at a time from a generator: each is checked and, when it is legal, carried out
        before the next is asked for, and `graph` shows the result. An illegal one is logged and has no effect.
        """
