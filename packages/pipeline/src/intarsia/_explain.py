"""What happened when a function was compiled: graphs, kernels with the bytes they move, breaks, guards, recompiles."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from intarsia._graph import GraphReport
from intarsia._stats import Stats
from intarsia_dispatch import EventKind, FrameEvent, describe_frame
from intarsia_fuser import FusionPlan
from intarsia_ir.records import GraphBreak, GuardRecord, SizeFacts
from intarsia_loops.kernels import KernelSummary
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
    """

    graphs: tuple[GraphSummary, ...]
    frames: tuple[FrameEvent, ...]
    stats: Stats

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
        """Which guard failed, for each recompilation."""
        return tuple(e.reason for e in self.frames if e.kind is EventKind.RECOMPILED)

    @property
    def eager(self) -> tuple[FrameEvent, ...]:
        """The frames that ran in eager, with the line and the reason."""
        return tuple(e for e in self.frames if e.in_eager)

    def __str__(self) -> str:
        out = io.StringIO()
        console = Console(file=out, width=120)
        counts = {n: len(getattr(self, n + "s")) for n in ("graph", "break", "guard")}
        console.print(*(f"{n} {what}(s)," for what, n in counts.items()), f"{len(self.eager)} frame(s) in eager")
        for position, graph in enumerate(self.graphs):
            console.print(f"graph {position}: {_headline(graph)}", markup=False)
            console.print(*[_kernel_table(graph)] * bool(graph.kernels), *describe_facts(graph.facts), sep="\n")
        console.print(*filter(None, map(describe_frame, self.frames)), sep="\n", markup=False, soft_wrap=True)
        return out.getvalue()


def summarise(report: GraphReport) -> GraphSummary:
    """Return the summary of one finished graph."""
    program = report.program
    if program is None or program.source is None:
        return GraphSummary((), (), 0, 0, dict(report.seconds), report.facts, report.note)
    halves = program.halved()
    n_kernels, n_unique = (
        sum(getattr(half.source, name) for half in halves if half.source is not None)
        for name in ("n_kernels", "n_unique")
    )
    return GraphSummary(
        report.kernels,
        tuple(str(e.target) for e in report.externs),
        n_unique,
        report.n_nests - n_kernels,
        dict(report.seconds),
        report.facts,
        report.note,
        report.plans,
        tuple(half.schedule for half in halves if half.schedule is not None),
    )


def _headline(graph: GraphSummary) -> str:
    calls = f"{len(graph.kernels)} kernels ({graph.n_unique_kernels} distinct), {len(graph.extern_calls)} extern calls"
    seconds = sum(graph.seconds.values())
    return f"{calls}, {graph.n_fused} operations fused away, {seconds:.2f} s{graph.note and chr(10)}{graph.note}"


def _kernel_table(graph: GraphSummary) -> Table:
    table = Table()
    for head in ("kernel", "steps", "KB read", "KB written", "KB saved", "from"):
        table.add_column(head, justify="left" if head in ("kernel", "from") else "right")
    for k in graph.kernels:
        kilobytes = [f"{b / 1024:.1f}" for b in (k.bytes_read, k.bytes_written, k.bytes_saved)]
        table.add_row(", ".join(k.writes[:2]), str(k.n_steps), *kilobytes, k.where())
    return table
