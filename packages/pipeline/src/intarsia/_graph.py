"""Compile one FX(torch) graph: run the stages, watch them, and put the epilogue around the result."""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch.fx as fx

import intarsia_loops
import intarsia_runtime
import intarsia_scheduler
from intarsia._options import Options
from intarsia._stats import Stats
from intarsia.levels import Captured, Emitted, Half, Loops, Partition, verify
from intarsia_dispatch import Counters
from intarsia_ir import meta
from intarsia_ir.aten import draws_random
from intarsia_ir.interrupts import let_through
from intarsia_ir.pipeline import Pipeline
from intarsia_ir.records import GuardRecord, KernelSource, Signature, SizeFacts
from intarsia_loops.kernels import KernelSummary, summarise
from intarsia_loops.program import Extern
from intarsia_report import GraphWatch
from intarsia_runtime.dumps import Dumps
from intarsia_shapes import facts_behind

__all__ = ["GraphReport", "compile_graph"]

log = logging.getLogger("intarsia.graph")
_numbers = itertools.count()
P = TypeVar("P")


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
    watch: GraphWatch | None = None

    def plans_of(self, kind: type[P]) -> tuple[P, ...]:
        """Return the plans of a kind, in order."""
        return tuple(plan for plans in self.plans.values() for plan in plans if isinstance(plan, kind))


def compile_graph(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    signature: Signature,
    pipeline: Pipeline,
    options: Options,
    counters: Counters[Stats],
    report: GraphReport | None = None,
) -> Callable[..., list[Any]]:
    """Return a callable over the flat inputs of `gm` that gives its flat outputs.

    Args:
        gm: FX(torch); not changed.
        inputs: One real or fake tensor per placeholder.
        signature: What the front end knows about the inputs; may be empty.
        pipeline: Stages from `Captured` to `Linked`.
        options: See `Options`.
        counters: Told about the finished graph.
        report: Filled when given.

    Raises:
        UnsupportedError: Something in the graph can't be compiled.
    """
    report = report if report is not None else GraphReport()
    report.name = meta.function_of(gm)
    name = f"graph{next(_numbers)}_{re.sub(r'[^A-Za-z0-9]+', '_', report.name)}".rstrip("_")
    dumps = Dumps(Path(options.dump_dir) / name, _meaning) if options.dump_dir else None
    value: Any = Captured(gm, tuple(inputs), signature, facts_behind(inputs))
    for stage in pipeline.stages:
        start, checks, before = time.perf_counter(), options.verify_each or not stage.trusted, value
        value, plans = stage.checked(value, verify) if checks else stage(value)
        report.seconds[stage.name] = time.perf_counter() - start
        _note(value, stage.name, plans, report)
        if report.watch is not None:
            report.watch.note(stage.name, report.seconds[stage.name], before, value, plans)
        if dumps is not None:
            dumps.write(stage.name, value.graphs if isinstance(value, Partition) else (value,), plans)
        let_through()
        log.debug("stage %s took %.1f ms", stage.name, 1e3 * report.seconds[stage.name])
    counters.add(kernels_generated=len(report.kernels), extern_calls=len(report.externs))
    log.info("compiled a graph: %d kernels, %d extern calls", len(report.kernels), len(report.externs))
    again = intarsia_runtime.rerun_of(gm, value.forward.signature, draws_random=report.draws_random)
    return intarsia_runtime.assembled(value, cuda_graphs=options.cuda_graphs, rerun=again)


def _meaning(plan: Any, launches: Any) -> str:
    return intarsia_scheduler.Scheduled(plan, launches).text


def _note(value: Any, stage: str, plans: tuple[Any, ...], report: GraphReport) -> None:
    """Keep what `explain` tells of a value."""
    report.plans[stage] = plans
    match value:
        case Partition(forward=Half() as half):
            report.guards, report.draws_random = half.guards, draws_random(half.graph_module)
        case Partition(forward=Loops()):
            nodes = [node for half in value.graphs for node in half.graph_module.graph.nodes]
            report.n_nests = sum(node.op == "call_function" for node in nodes)
        case Partition(forward=Emitted()):
            items = [item for half in value.graphs for item in intarsia_loops.from_fx(half.graph_module).items]
            report.sources = tuple(half.source for half in value.graphs)
            report.kernels = tuple(kernel for half in value.graphs for kernel in summarise(half.launches))
            report.externs = tuple(item for item in items if isinstance(item, Extern))
            report.n_nests -= len(report.externs)
