"""What a policy is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from intarsia_fuser.decisions import Decision, Declined
from intarsia_fuser.graph import FusionGraph

__all__ = ["FusionPolicy", "weighs_times"]


class FusionPolicy(Protocol):
    """What decides. Any object with these three members; nothing is registered, nothing is subclassed.

    One that decides by rules, and hardly asks for predicted times, may say so by an attribute `weighs_times = False`:
    see `weighs_times`.
    """

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


def weighs_times(policy: FusionPolicy) -> bool:
    """Tell whether a policy decides by predicted times, so that a dear cost model is worth its time.

    Example:
        >>> from intarsia_fuser import Greedy, Replay, Search
        >>> [weighs_times(policy) for policy in (Greedy(), Search(), Replay((), Search()))]
        [False, True, True]
    """
    return bool(getattr(policy, "weighs_times", True))
