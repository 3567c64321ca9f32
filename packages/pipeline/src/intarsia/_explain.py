"""What happened when a function was compiled: graphs, kernels with the bytes they move, breaks, guards, recompiles."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

import intarsia_loops
from intarsia._graph import GraphReport
from intarsia._stats import Stats
from intarsia_ir.records import GraphBreak, GuardRecord, SizeFacts
from intarsia_loops.kernels import KernelSummary, summarise_kernel
from intarsia_loops.program import Kernel
from intarsia_shapes import describe_facts

__all__ = ["Explanation", "GraphSummary", "summarise"]


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """One compiled graph.

    Args:
        kernels: Generated kernels, in order.
        extern_calls: Library operations, in order.
        n_unique_kernels: Kernels emitted, after equal ones were merged.
        n_fused: Operations that share a kernel with another one.
        seconds: Stage name -> wall seconds.
        facts: What was relied on about sizes that are symbols.
    """

    kernels: tuple[KernelSummary, ...]
    extern_calls: tuple[str, ...]
    n_unique_kernels: int
    n_fused: int
    seconds: dict[str, float]
    facts: SizeFacts = field(default_factory=SizeFacts)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything known about the compilation of one call; `str` renders it.

    Args:
        graphs: In the order in which they were compiled.
        breaks: Why a graph ended before its function did.
        guards: What the captures relied on.
        recompiles: Which guard failed, for each recompilation.
        stats: Counters of this call.
    """

    graphs: tuple[GraphSummary, ...]
    breaks: tuple[GraphBreak, ...]
    guards: tuple[GuardRecord, ...]
    recompiles: tuple[str, ...]
    stats: Stats

    def __str__(self) -> str:
        out = io.StringIO()
        console = Console(file=out, width=120)
        console.print(f"{len(self.graphs)} graph(s), {len(self.breaks)} break(s), {len(self.guards)} guard(s)")
        for position, graph in enumerate(self.graphs):
            console.print(_graph_table(position, graph))
            console.print("\n".join(describe_facts(graph.facts)), markup=False)
        for b in self.breaks:
            console.print(f"break [{b.code}] {b.reason}\n  at {b.origin}\n  remedy: {b.remedy}", markup=False)
        for guard in self.guards:
            console.print(f"guard {guard.kind.value}: {guard.source or 'state'} = {guard.value!r}"[:118], markup=False)
        for reason in self.recompiles:
            console.print(f"recompiled: {reason}", markup=False)
        return out.getvalue()


def summarise(report: GraphReport) -> GraphSummary:
    """Return the summary of one finished graph."""
    program = report.program
    if program is None or program.source is None:
        return GraphSummary((), (), 0, 0, dict(report.seconds), report.facts)
    halves = [intarsia_loops.from_fx(half.graph_module) for half in program.halved()]
    kernels = tuple(summarise_kernel(k, half) for half in halves for k in half.items if isinstance(k, Kernel))
    return GraphSummary(
        kernels,
        tuple(str(e.target) for e in report.externs),
        sum(half.source.n_unique for half in program.halved() if half.source is not None),
        report.n_nests - len(kernels),
        dict(report.seconds),
        report.facts,
    )


def _graph_table(position: int, graph: GraphSummary) -> Table:
    seconds = sum(graph.seconds.values())
    calls = f"{len(graph.kernels)} kernels ({graph.n_unique_kernels} distinct), {len(graph.extern_calls)} extern calls"
    table = Table(title=f"graph {position}: {calls}, {graph.n_fused} operations fused away, {seconds:.2f} s")
    for head in ("kernel", "steps", "KB read", "KB written", "KB saved", "from"):
        table.add_column(head, justify="left" if head in ("kernel", "from") else "right")
    for k in graph.kernels:
        where = ", ".join(f"{o.file.rsplit('/', 1)[-1]}:{o.line}" for o in k.origins[:3])
        kilobytes = [f"{b / 1024:.1f}" for b in (k.bytes_read, k.bytes_written, k.bytes_saved)]
        table.add_row(", ".join(k.writes[:2]), str(k.n_steps), *kilobytes, where)
    return table
