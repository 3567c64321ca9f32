"""The policy that decides nothing: every nest is a kernel. The baseline that the others are compared with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from intarsia_fuser.decisions import Decision, Declined
from intarsia_fuser.graph import FusionGraph

__all__ = ["NoFusion"]


@dataclass(frozen=True, slots=True)
class NoFusion:
    """Every nest is a kernel of its own."""

    @property
    def name(self) -> str:
        """Identifier kept in plans."""
        return "no_fusion"

    @property
    def version(self) -> str:
        """Version of the decisions."""
        return "1"

    @property
    def weighs_times(self) -> bool:
        """Nothing is decided."""
        return False

    def decide(self, graph: FusionGraph) -> Iterable[Decision | Declined]:
        """Decide nothing."""
        return ()
