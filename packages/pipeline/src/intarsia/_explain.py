"""What happened when a function was compiled: graphs, kernels with the bytes they move, breaks, guards, recompiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from intarsia._graph import GraphReport
from intarsia._stats import Stats
from intarsia_dispatch import FrameEvent, describe_frame, recompile_lines
from intarsia_fuser import FusionPlan
from intarsia_ir.records import GraphBreak, GuardRecord, SizeFacts
from intarsia_loops.kernels import KernelSummary, describe_kernels
from intarsia_scheduler import SchedulePlan
from intarsia_shapes import describe_facts

__all__ = ["Explanation", "GraphSummary", "summarise"]


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


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything known about the compilation of one call; `str` renders it.

    Args:
        graphs: In the order in which they were compiled.
        frames: What became of each Python frame, in order.
        stats: Counters of this call.
        result: What the call returned.
    """

    graphs: tuple[GraphSummary, ...]
    frames: tuple[FrameEvent, ...]
    stats: Stats
    result: Any = field(default=None, compare=False, repr=False)

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

    def __str__(self) -> str:
        counts = ", ".join(f"{len(getattr(self, what + 's'))} {what}(s)" for what in ("graph", "break", "guard"))
        lines = [f"{counts}, {len(self.eager)} frame(s) in eager"]
        for position, graph in enumerate(self.graphs):
            lines += [
                f"graph {position}: {_headline(graph)}",
                *describe_kernels(graph.kernels),
                *describe_facts(graph.facts),
            ]
        return "\n".join([*lines, *filter(None, map(describe_frame, self.frames)), ""])


def summarise(report: GraphReport) -> GraphSummary:
    """Return the summary of one finished graph."""
    if not report.sources:
        return GraphSummary((), (), 0, 0, dict(report.seconds), report.facts, report.note)
    return GraphSummary(
        report.kernels,
        tuple(str(e.target) for e in report.externs),
        sum(source.n_unique for source in report.sources),
        report.n_nests - sum(source.n_kernels for source in report.sources),
        dict(report.seconds),
        report.facts,
        report.note,
        report.plans_of(FusionPlan),
        report.plans_of(SchedulePlan),
    )


def _headline(graph: GraphSummary) -> str:
    calls = f"{len(graph.kernels)} kernels ({graph.n_unique_kernels} distinct), {len(graph.extern_calls)} extern calls"
    took = f"{graph.n_fused} operations fused away, {sum(graph.seconds.values()):.2f} s"
    return "\n".join(filter(None, (f"{calls}, {took}", graph.note)))
