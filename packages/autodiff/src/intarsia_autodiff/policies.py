"""Policies: which values to save between forward and backward. Any object with a `choose` method is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from intarsia_autodiff.dinic import Network
from intarsia_autodiff.problem import Problem, Recompute, Value

__all__ = ["Budget", "MinCut", "Policy", "RecomputeAll", "SaveAll", "read_of"]


class Policy(Protocol):
    """Chooses the values to save."""

    def choose(self, problem: Problem) -> set[str]:
        """Return the names of values to save; `problem.missing` of them must be empty."""


@dataclass(frozen=True, slots=True)
class SaveAll:
    """Save every value of the program that the backward pass reads; compute only views of them again."""

    def choose(self, problem: Problem) -> set[str]:
        """Return the names of values to save."""
        return _descend(problem, lambda value: not value.is_forward)


@dataclass(frozen=True, slots=True)
class RecomputeAll:
    """Save inputs and random numbers; compute everything else again."""

    def choose(self, problem: Problem) -> set[str]:
        """Return the names of values to save."""
        return _descend(problem, lambda value: value.recompute is not Recompute.NEVER)


@dataclass(frozen=True, slots=True)
class MinCut:
    """Save the fewest bytes from which cheap operations can compute all that the backward pass reads.

    Of several such choices, one that saves what is in memory anyway, such as results of library calls, rather than
    what has to be written for it, and that computes least again.

    Args:
        recompute: Names of costly values that may be computed again as well.
    """

    recompute: frozenset[str] = frozenset()

    def choose(self, problem: Problem) -> set[str]:
        """Return the names of values to save."""
        places = {value.name: position for position, value in enumerate(problem.values)}
        n, scale = len(places), 2 * len(places) + 1
        unlimited = 1 + sum(value.n_bytes * scale + 2 for value in problem.values)
        source, sink = 2 * n, 2 * n + 1
        network = Network(2 * n + 2)
        # value v is node 2v where it's computed and 2v + 1 where it's read: to cut between them is to save it
        for position, value in enumerate(problem.values):
            capacity = value.n_bytes * scale + _write_penalty(value) if value.saveable else unlimited
            network.add(2 * position, 2 * position + 1, capacity)
            if not self._may_recompute(value):
                network.add(source, 2 * position, unlimited)
            if value.needed:
                network.add(2 * position + 1, sink, unlimited)
            for operand in dict.fromkeys(value.operands):
                network.add(2 * places[operand] + 1, 2 * position, unlimited)
        network.flow(source, sink)
        late = network.sink_side(sink)
        cut = {v.name for p, v in enumerate(problem.values) if 2 * p not in late and 2 * p + 1 in late}
        return read_of(problem, cut)  # a value of no bytes is cut for nothing

    def _may_recompute(self, value: Value) -> bool:
        return value.recompute is Recompute.CHEAP or value.name in self.recompute


@dataclass(frozen=True, slots=True)
class Budget:
    """Save at most this many bytes, and compute as little as possible again for it.

    Everything is saved if that fits; else costly values are given up, those first that free most bytes for their
    arithmetic, until the minimum cut fits. A budget below what must be saved gives the least that can be.

    Args:
        n_bytes: The budget.
    """

    n_bytes: int

    def choose(self, problem: Problem) -> set[str]:
        """Return the names of values to save."""
        everything = SaveAll().choose(problem)
        if problem.n_bytes(everything) <= self.n_bytes:
            return everything
        costly = [value for value in problem.values if value.recompute is Recompute.COSTLY]
        costly.sort(key=lambda value: ((value.flops + 1) / (value.n_bytes + 1), value.name))
        low, high = 0, len(costly)
        while low < high:
            middle = (low + high) // 2
            if problem.n_bytes(_give_up(problem, costly[:middle])) <= self.n_bytes:
                high = middle
            else:
                low = middle + 1
        return _give_up(problem, costly[:low])


def _write_penalty(value: Value) -> int:
    """Break ties between choices of equal bytes."""
    return 0 if value.recompute is not Recompute.CHEAP else 1 if value.is_forward else 2


def _give_up(problem: Problem, values: list[Value]) -> set[str]:
    return MinCut(frozenset(value.name for value in values)).choose(problem)


def _descend(problem: Problem, passes_through: Callable[[Value], bool]) -> set[str]:
    """Save each needed value, but for those that `passes_through`, or can't be saved: their operands instead."""
    saved: set[str] = set()
    seen: set[str] = set()
    pending = [value.name for value in problem.values if value.needed]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        value = problem[name]
        if value.recompute is Recompute.NEVER or (value.saveable and not passes_through(value)):
            saved.add(name)
        else:
            pending += value.operands
    return saved


def read_of(problem: Problem, saved: set[str]) -> set[str]:
    """Return what the backward pass reads of these values, to compute others again or as they are."""
    read: set[str] = set()
    seen: set[str] = set()
    pending = [value.name for value in problem.values if value.needed]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in saved:
            read.add(name)
        else:
            pending += problem[name].operands
    return read
