"""Compile one FX(torch) graph: run the stages, watch them, and put the epilogue around the result."""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch.fx as fx

import intarsia_loops
import intarsia_runtime
from intarsia._options import Options
from intarsia._pipeline import Pipeline, Stage
from intarsia._program import Program
from intarsia._stages import dialect_module
from intarsia._stats import Stats
from intarsia_dispatch import Counters
from intarsia_fuser import FusionPlan
from intarsia_ir import meta
from intarsia_ir.aten import draws_random
from intarsia_ir.choices import instance_of
from intarsia_ir.errors import naming_stage
from intarsia_ir.interrupts import let_through
from intarsia_ir.records import GuardRecord, Signature, SizeFacts
from intarsia_loops.kernels import KernelSummary, summarise
from intarsia_loops.program import Extern

__all__ = ["GraphReport", "compile_graph"]

log = logging.getLogger("intarsia.graph")
_numbers = itertools.count()


@dataclass(slots=True)
class GraphReport:
    """What happened to one graph; filled while it is compiled, read by `explain`.

    Args:
        seconds: Stage name -> wall seconds.
        program: The program after the last stage.
        kernels: Generated kernels that are launched, in order: as many as launches, on any device.
        externs: Library calls of the graph, in order.
        n_nests: Loop nests before fusion.
        guards: What functionalization relied on: written inputs that share no memory with others.
        draws_random: Whether the graph advances a random generator.
        facts: What capture and all stages relied on about sizes.
        plans: How it was fused: the plan of the graph and, in training, of its backward graphs.
        note: Why it wasn't compiled as asked for, or "".
    """

    seconds: dict[str, float] = field(default_factory=dict)
    program: Program | None = None
    kernels: tuple[KernelSummary, ...] = ()
    externs: tuple[Extern, ...] = ()
    n_nests: int = 0
    guards: tuple[GuardRecord, ...] = ()
    draws_random: bool = True
    facts: SizeFacts = field(default_factory=SizeFacts)
    plans: tuple[FusionPlan, ...] = ()
    note: str = ""


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
        pipeline: Stages from "torch" to "callable".
        options: See `Options`.
        counters: Told about the finished graph.
        report: Filled when given.

    Raises:
        UnsupportedError: Something in the graph can't be compiled.
    """
    report = report if report is not None else GraphReport()
    name = f"graph{next(_numbers)}_{re.sub(r'[^A-Za-z0-9]+', '_', meta.function_of(gm))}".rstrip("_")
    folder = Path(options.dump_dir) / name if options.dump_dir else None
    program = Program(gm, tuple(inputs), signature)
    for position, stage in enumerate(pipeline.stages):
        with naming_stage(stage.name, ours=stage.trusted):
            start = time.perf_counter()
            backward, others, program = program.backward, program.others, stage.run(program)
            if backward is not None:
                program = replace(program, backward=stage.run(backward), others=tuple(map(stage.run, others)))
            report.seconds[stage.name] = time.perf_counter() - start
            for n, half in enumerate(program.halved()):
                _watch(f"{position:02d}_{stage.name}{f'_backward{n}' * (n > 0)}", stage, half, options, folder)
        let_through()
        log.debug("stage %s took %.1f ms", stage.name, 1e3 * report.seconds[stage.name])
        if stage.gives == "aten":
            report.guards, report.draws_random = program.guards, draws_random(program.graph_module)
        elif stage.gives == "loops":
            graphs = [half.graph_module.graph for half in program.halved()]
            report.n_nests = sum(n.op == "call_function" for graph in graphs for n in graph.nodes)
    report.program, report.plans = program, tuple(half.plan for half in program.halved() if half.plan is not None)
    _count(program, report, counters)
    assert program.run is not None  # a pipeline ends in "callable"
    back, on = (program.backward.run if program.backward else None), (program.device if options.cuda_graphs else None)
    pairs = [(other.run, other.halves) for other in program.others if other.run and other.halves]
    again = intarsia_runtime.rerun_of(gm, program.signature, draws_random=report.draws_random)
    return intarsia_runtime.assembled(program.run, program.signature, program.halves, back, on, pairs, again)


def _watch(name: str, stage: Stage, program: Program, options: Options, folder: Path | None) -> None:
    """Verify and dump the program after a stage, where the options ask for it; what others' stages give, always."""
    instance_of("what a stage gives", program.graph_module, fx.GraphModule)
    if stage.gives == "callable":  # the graph was the same before
        return
    dialect = dialect_module(stage.gives)
    if options.verify_each or not stage.trusted:
        aten = stage.gives in ("effects", "aten")
        rules = {"functional": stage.gives == "aten", "values": True} if aten else {}
        dialect.verify(program.graph_module, **rules)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        source = {"launches": program.scheduled, "source": program.source}.get(stage.gives)
        text = source.text if source else dialect.print_ir(program.graph_module)
        plans: Any = {"loops": program.plan, "kernels": program.scheduled and program.scheduled.plan}
        suffix = "cpp" if source is not None and stage.gives == "source" else "ir"
        (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8")
        if plans.get(stage.takes) is not None:
            (folder / f"{name}.plan.json").write_text(plans[stage.takes].to_json(), encoding="utf-8")


def _count(program: Program, report: GraphReport, counters: Counters[Stats]) -> None:
    """Tell kernels and library calls of a finished graph."""
    if program.source is not None:
        graphs = [(half.scheduled, intarsia_loops.from_fx(half.graph_module)) for half in program.halved()]
        report.kernels = tuple(k for s, graph in graphs for k in summarise(s.launches if s else graph))
        report.externs = tuple(i for _, graph in graphs for i in graph.items if isinstance(i, Extern))
        report.n_nests -= len(report.externs)
    counters.add(kernels_generated=len(report.kernels), extern_calls=len(report.externs))
    log.info("compiled a graph: %d kernels, %d extern calls", len(report.kernels), len(report.externs))
