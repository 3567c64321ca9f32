"""What happened to one graph while it was compiled: noted stage by stage, or taken from a finished plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch

from intarsia_ir.aten import draws_random
from intarsia_ir.errors import InternalError
from intarsia_ir.records import GuardRecord, KernelSource, SizeFacts
from intarsia_ir.values import Half, Partition
from intarsia_ir.where import warn_user
from intarsia_loops import Buildable, Emitted, Extern, Loops
from intarsia_loops.kernels import KernelSummary, summarise
from intarsia_runtime.warm import Finished, Hit, Miss, PlanStore, Refused, buildable

__all__ = ["GraphReport", "Watch"]

P = TypeVar("P")


class Watch(Protocol):
    """Collects the stages of one graph (`intarsia_report.GraphWatch`)."""

    stages: list[Any]
    details: tuple[Any, ...]
    memory: tuple[Any, ...]

    def note(self, name: str, seconds: float, before: Any, after: Any, plans: tuple[Any, ...]) -> None:
        """Keep what a stage, which has just ended, made of a program."""


@dataclass(slots=True)
class GraphReport:
    """What happened to one graph; filled while it is compiled, read by `explain`.

    Args:
        seconds: Stage name -> wall seconds, with those of its checks where it is checked.
        sources: Source text of its kernels: of the graph and, in training, of its backward graphs.
        kernels: Generated kernels that are launched, in order: as many as launches, on any device.
        externs: Library calls of the graph, in order.
        n_nests: Loop nests before fusion.
        guards: What functionalization relied on: written inputs that share no memory with others.
        draws_random: Whether the graph advances a random generator.
        facts: What capture and all stages relied on about sizes.
        plans: Stage name -> what it decided, for the graph and, in training, its backward graphs.
        note: Why it wasn't compiled as asked for, or "".
        name: The function that it was captured in, "" when unknown.
        watch: Told of each stage, where somebody wants to know.
        warm: `"found"`: no stage ran, its finished plan was in the cache; `"kept"`: it is there now; `"off: ..."`: why
            neither; "": not asked for.
        program: What was built and linked.
        weights: What the compiler is given: name of an input -> its value, which may be folded in, and guards on it.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    sources: tuple[KernelSource, ...] = ()
    kernels: tuple[KernelSummary, ...] = ()
    externs: tuple[Extern, ...] = ()
    n_nests: int = 0
    guards: tuple[GuardRecord, ...] = ()
    draws_random: bool = True
    facts: SizeFacts = field(default_factory=SizeFacts)
    plans: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    note: str = ""
    name: str = ""
    watch: Watch | None = None
    warm: str = ""
    program: Partition[Buildable] | None = None
    weights: Mapping[str, tuple[torch.Tensor, tuple[GuardRecord, ...]]] = field(default_factory=dict, repr=False)

    def refuse(self, reason: str) -> None:
        """Note, and tell the user, that something which was asked for wasn't done."""
        self.note = reason
        warn_user(reason, RuntimeWarning)

    def plans_of(self, kind: type[P]) -> tuple[P, ...]:
        """Return the plans of a kind, in order."""
        return tuple(plan for plans in self.plans.values() for plan in plans if isinstance(plan, kind))

    def add_stage(self, value: Any, stage: str, plans: tuple[Any, ...]) -> None:
        """Keep what `explain` tells of what a stage gives, and decided."""
        self.plans[stage] = plans
        match value:
            case Partition(forward=Half() as half):
                self.guards, self.draws_random = half.guards, draws_random(half.graph_module)
            case Partition(forward=Loops()):
                nodes = [node for half in value.graphs for node in half.graph_module.graph.nodes]
                self.n_nests = sum(node.op == "call_function" for node in nodes)
            case Partition(forward=Emitted()):
                self._end(value.map(buildable))
                self.kernels = tuple(kernel for half in value.graphs for kernel in summarise(half.launches))
                self.n_nests -= len(self.externs)

    def _end(self, program: Partition[Buildable]) -> None:
        items = [item for half in program.graphs for item in half.program.items]
        self.program, self.sources = program, tuple(half.source for half in program.graphs)
        self.externs = tuple(item for item in items if isinstance(item, Extern))

    def settle(self, store: PlanStore, asked: Hit | Miss | Refused, facts: SizeFacts) -> None:
        """After the last stage: keep the plan where there was none, and note what became of the question.

        Args:
            store: Where plans are kept.
            asked: What it answered before the first stage.
            facts: What all stages relied on about sizes.
        """
        match asked:
            case Refused():
                self.warm = f"off: {asked.reason}"
            case Miss():
                why = store.keep(asked.key, self.finished(facts))
                self.warm = f"off: {why}" if why else "kept"

    def finished(self, facts: SizeFacts) -> Finished:
        if self.program is None:
            raise InternalError("no stage gave source text", code="runtime.warm")
        plans = {stage: tuple(p.to_json() for p in some if hasattr(p, "to_json")) for stage, some in self.plans.items()}
        kept = {stage: texts for stage, texts in plans.items() if texts}
        return Finished(self.program, facts, self.draws_random, self.n_nests, self.kernels, kept)

    def take(self, finished: Finished, kinds: Mapping[str, Any]) -> Partition[Buildable]:
        """Note what an earlier compilation of the graph noted, and return what it made.

        Args:
            finished: Its plan.
            kinds: Name of a stage -> the class of what it decides, which is read from JSON; others are left out.
        """
        self.warm, self.guards, self.facts = "found", finished.program.forward.contract.guards, finished.facts
        self.draws_random, self.n_nests, self.kernels = finished.draws_random, finished.n_nests, finished.kernels
        texts = {stage: finished.plans.get(stage, ()) for stage in kinds}
        self.plans = {stage: tuple(map(kinds[stage].from_json, some)) for stage, some in texts.items()}
        self._end(finished.program)
        return finished.program
