"""The values of the levels that are graphs of torch and ATen: what a program is between two stages.

    Captured             FX(torch), as a front end captured it
    Recorded             FX(aten, effects): views, writes, random and check ops in program order
    Functional           FX(aten), pure: writes and output aliases are in the signature; all of a program, with its
                         gradients where it is trained
    Half                 FX(aten), pure: one of the graphs that are compiled
    Partition[Half]      these graphs, and how they fit together; later levels are partitions of theirs

A value holds what is true of the program at its level and nothing else: how it was made, and what was decided on the
way, is in the plans that stages give beside it. The levels below are `intarsia_loops.levels`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from intarsia_ir.records import GuardRecord, Halves, Signature, SizeFacts

__all__ = ["Captured", "Functional", "Half", "Partition", "Recorded"]

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Captured:
    """A graph as it was captured.

    Args:
        graph_module: FX(torch).
        inputs: Example inputs, one per placeholder, real or fake.
        signature: What the front end knows of the inputs; may be empty.
        facts: What it relies on about sizes so far. The environment of its symbols is open: later stages learn more.
    """

    graph_module: Any
    inputs: tuple[Any, ...]
    signature: Signature = field(default_factory=Signature)
    facts: SizeFacts = field(default_factory=SizeFacts)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A graph as it was recorded, with what its inputs and results mean, and the size facts it relies on.

    Args:
        graph_module: FX(aten, effects).
        signature: What inputs and results mean to the caller; with `joint`, gradients are among the results.
        facts: What it relies on about sizes.
    """

    graph_module: Any
    signature: Signature
    facts: SizeFacts = field(default_factory=SizeFacts)


@dataclass(frozen=True, slots=True)
class Functional(Recorded):
    """A functional graph: its effects on inputs, and outputs that share memory, are in the signature.

    Args:
        guards: What it relies on besides size facts: written inputs don't overlap inputs that are read later.
            An input without a source is named by `ArgumentSource(placeholder name)`.
    """

    guards: tuple[GuardRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Half(Functional):
    """One graph that is compiled: the whole program in inference, its forward graph or a backward graph in training.

    Results of a forward graph beyond those that its signature speaks of are saved for backward graphs.
    """


@dataclass(frozen=True, slots=True)
class Partition(Generic[T]):
    """The graphs that a program is compiled as, at one level.

    Args:
        forward: From the inputs of the program to its results and, in training, what the backward graphs need.
        backwards: In training, one for each part of the joint graph; empty in inference.
        halves: How each of `backwards` fits together with `forward`.

    Example:
        >>> Partition(1, (2, 3)).map(lambda n: n * 2).graphs
        (2, 4, 6)
    """

    forward: T
    backwards: tuple[T, ...] = ()
    halves: tuple[Halves, ...] = ()

    @property
    def graphs(self) -> tuple[T, ...]:
        """The forward graph, then the backward graphs."""
        return (self.forward, *self.backwards)

    def map(self, function: Callable[[T], U]) -> Partition[U]:
        """Return the partition with `function` applied to each of its graphs."""
        return Partition(function(self.forward), tuple(map(function, self.backwards)), self.halves)
