"""What happened when a function was compiled: graphs, kernels with the bytes they move, breaks, guards, recompiles."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

import intarsia_loops
from intarsia._graph import GraphReport
from intarsia._stats import Stats
from intarsia_ir.dtypes import itemsize
from intarsia_ir.records import GraphBreak, GuardRecord, Origin
from intarsia_loops.program import Buffer, Kernel, Program

__all__ = ["Explanation", "GraphSummary", "KernelSummary", "summarise"]


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """One generated kernel.

    Args:
        writes: Buffers that it makes.
        n_steps: Loop nests that it fuses.
        bytes_read: Bytes of the buffers read, each once.
        bytes_written: Bytes of the buffers written.
        bytes_saved: Bytes that fusion kept out of memory: local results, not written and not read again.
        origins: User lines.
    """

    writes: tuple[str, ...]
    n_steps: int
    bytes_read: int
    bytes_written: int
    bytes_saved: int
    origins: tuple[Origin, ...]


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """One compiled graph.

    Args:
        kernels: Generated kernels, in order.
        extern_calls: Library operations, in order.
        n_unique_kernels: Kernels emitted, after equal ones were merged.
        n_fused: Operations that share a kernel with another one.
        seconds: Stage name -> wall seconds.
    """

    kernels: tuple[KernelSummary, ...]
    extern_calls: tuple[str, ...]
    n_unique_kernels: int
    n_fused: int
    seconds: dict[str, float]


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
        return GraphSummary((), (), 0, 0, dict(report.seconds))
    loops = intarsia_loops.from_fx(program.graph_module)
    kernels = tuple(_kernel(k, loops) for k in report.kernels)
    return GraphSummary(
        kernels,
        tuple(str(e.target) for e in report.externs),
        program.source.n_unique,
        report.n_nests - len(kernels),
        dict(report.seconds),
    )


def _kernel(kernel: Kernel, program: Program) -> KernelSummary:
    def n_bytes(names: Any) -> int:
        return sum(_bytes(program.buffers[n]) for n in names)

    local = [s for s in kernel.steps if s.out in kernel.local]
    return KernelSummary(
        kernel.writes(),
        len(kernel.steps),
        n_bytes(kernel.reads()),
        n_bytes(kernel.writes()),
        sum(2 * math.prod(a.extent.const() or 0 for a in s.axes) * itemsize(s.dtype) for s in local),
        kernel.origins,
    )


def _bytes(buffer: Buffer) -> int:
    return math.prod(n.const() or 0 for n in buffer.shape) * itemsize(buffer.dtype)


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
