"""What happened when calls were compiled, as frozen values: graphs, kernels, breaks, guards, recompiles, times."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from intarsia_dispatch import FrameEvent, describe_frame, recompile_lines
from intarsia_fuser import FusionPlan, PlanPrices
from intarsia_ir.records import GraphBreak, GuardRecord, SizeFacts
from intarsia_loops.kernels import KernelSummary, describe_kernels
from intarsia_report.exchanges import Collective, describe_collectives
from intarsia_report.frame_source import frame_sources
from intarsia_scheduler import Held, SchedulePlan
from intarsia_shapes import describe_facts

__all__ = ["Explanation", "GraphSummary", "KernelDetail", "Span", "StageRecord", "joined"]


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of work, and when it was done.

    Args:
        name: `"capture"`, `"guards"`, or the name of a stage.
        about: What it was done to: a function, a graph.
        start: Seconds since 1970.
        seconds: How long it took by the wall clock.
    """

    name: str
    about: str
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class StageRecord:
    """One stage of the compilation of one graph.

    Args:
        name: Of the stage.
        start: Seconds since 1970.
        seconds: How long it took by the wall clock, with its checks where it is checked.
        level: Name of the level that it gave.
        before: Texts of the programs that it took: of the graph and, once it is partitioned, of its backward graphs.
            A program that has no text is a line that says why.
        after: Texts of the programs that it gave; none for what is linked, which is code.
        plans: What it decided: nothing, or a plan for each program.
        prices: Where it fused: what each plan costs by the cost model.
    """

    name: str
    start: float
    seconds: float
    level: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    plans: tuple[Any, ...] = ()
    prices: tuple[PlanPrices, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelDetail:
    """What is known of one launch besides its summary.

    Args:
        program: Which program it is in: 0 is the graph, from 1 on its backward graphs.
        buffers: What it computes: buffers that it writes, and those that it keeps to itself.
        predicted_us: Microseconds that the cost model of fusion predicts, overhead of the launch included; None where
            nothing is known. A kernel that became several launches counts at the first.
        source: Text of its function, "" where the emitter's text isn't of a known form.
        language: `"cpp"`, `"triton"`, or what an emitter of the user's writes.
    """

    program: int
    buffers: tuple[str, ...]
    predicted_us: float | None
    source: str
    language: str


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """One compiled graph.

    Args:
        kernels: Generated kernels that are launched, in order.
        extern_calls: Library operations, in order.
        n_unique_kernels: Kernels emitted, after equal ones were merged.
        n_fused: Operations that share a kernel with another one; parts of a kernel that is split count as one.
        seconds: Stage name -> wall seconds.
        facts: What was relied on about sizes that are symbols.
        note: Why it wasn't compiled as asked for, or "".
        plans: How it was fused: the plan of the graph and, in training, of its backward graphs.
        schedules: How the kernels run, and why: of the graph and, in training, of its backward graphs.
        name: The function that it was captured in, "" when unknown.
        stages: What each stage made of it, in order; none where a backend of the user's compiled it; `"warm start"`
            alone where its finished plan was found.
        details: For each of `kernels`, what else is known; its source alone where the plan was finished by then.
        warm: `"found"`: no stage ran, its finished plan was in the cache; `"kept"`: it is there now; `"off: ..."`: why
            neither; "": not asked for.
        collectives: What it exchanges with other processes, in order, and how long that is predicted to take.
        memory: What is held at each launch and library call: of the graph and, in training, of its backward graphs;
            none where its finished plan was found.
    """

    kernels: tuple[KernelSummary, ...]
    extern_calls: tuple[str, ...]
    n_unique_kernels: int
    n_fused: int
    seconds: dict[str, float]
    facts: SizeFacts = field(default_factory=SizeFacts)
    note: str = ""
    plans: tuple[FusionPlan, ...] = ()
    schedules: tuple[SchedulePlan, ...] = ()
    name: str = ""
    stages: tuple[StageRecord, ...] = field(default=(), repr=False)
    details: tuple[KernelDetail, ...] = field(default=(), repr=False)
    warm: str = ""
    collectives: tuple[Collective, ...] = ()
    memory: tuple[tuple[Held, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything known about the compilation of a call, or of several (`joined`); `str` renders it.

    Args:
        graphs: In the order in which they were compiled.
        frames: What became of each Python frame, in order.
        stats: Counters of this call: a frozen record of ints.
        result: What the call returned.
        spans: When frames were captured and their guards built, in order; `graphs` have the times of their stages.
    """

    graphs: tuple[GraphSummary, ...]
    frames: tuple[FrameEvent, ...]
    stats: Any
    result: Any = field(default=None, compare=False, repr=False)
    spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)

    @property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """Why a graph ended before its function did."""
        return tuple(b for e in self.frames if e.capture for b in e.capture.breaks)

    @property
    def guards(self) -> tuple[GuardRecord, ...]:
        """What the captures relied on."""
        return tuple(g for e in self.frames if e.capture for g in e.capture.guards)

    @property
    def recompiles(self) -> tuple[str, ...]:
        """What changed, where, and the remedy: a line for each recompilation, one for what changes again and again."""
        return recompile_lines(self.frames)

    @property
    def eager(self) -> tuple[FrameEvent, ...]:
        """The frames that ran in eager, with the line and the reason."""
        return tuple(e for e in self.frames if e.in_eager)

    @property
    def source(self) -> str:
        """What runs instead of each frame that was compiled, as Python where it can be written, and bytecode else.

        A compiled graph and the rest of a function behind a break are functions in it, of names said above it.
        """
        return frame_sources(self.frames)

    def html(self, path: str | os.PathLike[str]) -> None:
        """Write a page about it: one file, which loads nothing else.

        Raises:
            OSError: The file can't be written.
        """
        from intarsia_report.page import page  # which is made of explanations

        Path(path).write_text(page(self), encoding="utf-8")

    def trace(self, path: str | os.PathLike[str], run: str | os.PathLike[str] | None = None) -> None:
        """Write when what was done, as JSON for Perfetto and chrome://tracing.

        Args:
            path: The file to write.
            run: What `torch.profiler.profile.export_chrome_trace` wrote of calls in the same process: the file then
                shows both, on one clock.

        Raises:
            OSError: A file can't be written or read.
            InvalidArgumentError: `report.trace`: `run` is no trace of torch's profiler.
        """
        from intarsia_report.trace import trace

        profile = None if run is None else Path(run).read_text(encoding="utf-8")
        Path(path).write_text(trace(self, profile), encoding="utf-8")

    def structured(self, path: str | os.PathLike[str]) -> None:
        """Write structured logs, as readers of TORCH_TRACE know them; tlparse makes pages of them.

        Raises:
            OSError: The file can't be written.
        """
        from intarsia_report.structured import structured

        Path(path).write_text(structured(self), encoding="utf-8", errors="backslashreplace")

    def __str__(self) -> str:
        counts = ", ".join(f"{len(getattr(self, what + 's'))} {what}(s)" for what in ("graph", "break", "guard"))
        lines = [f"{counts}, {len(self.eager)} frame(s) in eager"]
        if n_warm := sum(graph.warm == "found" for graph in self.graphs):
            lines.append(f"warm: {n_warm} graph(s)")
        for position, graph in enumerate(self.graphs):
            lines += [
                f"graph {position}: {_headline(graph)}",
                *describe_kernels(graph.kernels),
                *describe_collectives(graph.collectives),
                *describe_facts(graph.facts),
            ]
        return "\n".join([*lines, *filter(None, map(describe_frame, self.frames)), ""])


def joined(explanations: Sequence[Explanation]) -> Explanation:
    """Return the explanation of several calls together, with the result of the last; at least one must be given."""
    first, *rest = [e.stats for e in explanations]
    names = [f.name for f in fields(first)]
    total = {name: sum(getattr(s, name) for s in (first, *rest)) for name in names}
    return Explanation(
        tuple(g for e in explanations for g in e.graphs),
        tuple(f for e in explanations for f in e.frames),
        type(first)(**total),
        explanations[-1].result,
        tuple(s for e in explanations for s in e.spans),
    )


def _headline(graph: GraphSummary) -> str:
    calls = f"{len(graph.kernels)} kernels ({graph.n_unique_kernels} distinct), {len(graph.extern_calls)} extern calls"
    took = f"{graph.n_fused} operations fused away, {sum(graph.seconds.values()):.2f} s"
    cold = f"warm start is {graph.warm}" if graph.warm.startswith("off") else ""
    prices = next((stage.prices for stage in reversed(graph.stages) if stage.prices), ())
    total = sum(plan.after_us for plan in prices)
    predicted = f"kernels are predicted to take {total:.1f} us by {prices[0].cost}" if total else ""
    return "\n".join(filter(None, (f"{calls}, {took}", predicted, graph.note, cold)))
