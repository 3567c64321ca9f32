"""A queue of decisions by predicted time: the one that saves most first, its neighbours priced anew after each.

In the manner of XLA's priority fusion for GPUs, where a producer goes into all of its consumers or stays. Differs: it
also merges kernels that only share what they read, and a map may go into some readers only.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from intarsia_fuser.decisions import Decision, Fuse, Inline, Order
from intarsia_fuser.graph import FusionGraph
from intarsia_fuser.policies.steps import Step, steps

__all__ = ["Priority"]


@dataclass(frozen=True, slots=True)
class Priority:
    """Greedy by predicted microseconds.

    Args:
        least_us: What a decision must save at least.
        max_nodes: Scalar operations in one kernel: where compile time ends.
    """

    least_us: float = 0.0
    max_nodes: int = 1024

    @property
    def name(self) -> str:
        """Identifier kept in plans."""
        return "priority"

    @property
    def version(self) -> str:
        """Version of the decisions."""
        return "1"

    def decide(self, graph: FusionGraph) -> Iterator[Decision]:
        """Yield what saves most by the cost model, until nothing saves anything."""
        queue = _Queue(graph, self)
        queue.add(steps(graph))
        while (best := queue.pop()) is not None:
            yield from best.decisions
            for name in dict.fromkeys(map(_result, best.decisions)):
                queue.add(steps(graph, of=name))


class _Queue:
    """Steps by what they save. Their prices are checked when they come up: others may have changed them."""

    def __init__(self, graph: FusionGraph, policy: Priority) -> None:
        self._graph, self._policy = graph, policy
        self._heap: list[tuple[float, int, Step]] = []
        self._number = 0  # equal prices: what was found first

    def add(self, found: Iterator[Step]) -> None:
        for step in found:
            self._push(step)

    def pop(self) -> Step | None:
        while self._heap:
            _, _, step = heapq.heappop(self._heap)
            if not self._fits(step):
                continue
            saved = self._graph.saved_us(step.decisions)
            if saved is None or saved <= self._policy.least_us:
                continue
            if saved < step.saved_us - 1e-9:
                self._push(Step(step.decisions, saved))
                continue
            return step
        return None

    def _push(self, step: Step) -> None:
        if step.saved_us > self._policy.least_us:
            heapq.heappush(self._heap, (-step.saved_us, self._number, step))
            self._number += 1

    def _fits(self, step: Step) -> bool:
        """Whether the kernels still exist and stay small enough together."""
        for decision in step.decisions:
            if isinstance(decision, Order):
                return False
            ends = _ends(decision)
            makers = [self._graph.maker(name) for name in ends]
            if None in makers:
                return False
            if sum(self._graph.kernel(name).nodes for name in ends) > self._policy.max_nodes:
                return False
        return True


def _ends(decision: Inline | Fuse) -> tuple[str, str]:
    if isinstance(decision, Inline):
        return decision.producer, decision.consumer
    return decision.first, decision.second


def _result(decision: Decision) -> str:
    """A buffer of the kernel that is left."""
    assert not isinstance(decision, Order), "never queued"
    return decision.consumer if isinstance(decision, Inline) else decision.first
