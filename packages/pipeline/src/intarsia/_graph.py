"""Compile one FX(torch) graph: run the stages, watch them, and put the epilogue around the result."""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch.fx as fx

import intarsia_runtime
import intarsia_scheduler
from intarsia._options import Options
from intarsia._stats import Stats
from intarsia.levels import Captured, Partition, verify
from intarsia_dispatch import Counters
from intarsia_fuser import FusionPlan
from intarsia_ir import meta
from intarsia_ir.interrupts import let_through
from intarsia_ir.pipeline import Pipeline
from intarsia_ir.records import Signature
from intarsia_runtime import warm
from intarsia_runtime.dumps import Dumps
from intarsia_runtime.report import GraphReport
from intarsia_scheduler import SchedulePlan
from intarsia_shapes import facts_behind, promises_behind

__all__ = ["compile_graph"]

log = logging.getLogger("intarsia.graph")
_numbers = itertools.count()
_PLANS: dict[str, Any] = {"fuse": FusionPlan, "schedule": SchedulePlan}  # by the stages that make them


def compile_graph(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    signature: Signature,
    pipeline: Pipeline,
    options: Options,
    counters: Counters[Stats],
    report: GraphReport | None = None,
    store: warm.PlanStore | None = None,
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
        store: Finished plans of the default pipeline: with the one of this graph, no stage runs.

    Raises:
        UnsupportedError: Something in the graph can't be compiled.
    """
    report = report if report is not None else GraphReport()
    report.name = meta.function_of(gm)
    name = f"graph{next(_numbers)}_{re.sub(r'[^A-Za-z0-9]+', '_', report.name)}".rstrip("_")
    dumps = Dumps(Path(options.dump_dir) / name, _meaning) if options.dump_dir else None
    value: Any = Captured(gm, tuple(inputs), signature, facts_behind(inputs))
    start, asked = perf_counter(), store.look_up(value, promises_behind(inputs)) if store else None
    if store and isinstance(asked, warm.Hit):
        found = report.take(asked.finished, _PLANS)
        if report.watch is not None:
            report.watch.note("warm start", perf_counter() - start, value, found, ())
        value = found.map(functools.partial(warm.finish, cache=store.cache))
        report.seconds["warm start"] = perf_counter() - start
    for stage in () if report.warm == "found" else pipeline.stages:
        start, checks, before = perf_counter(), options.verify_each or not stage.trusted, value
        value, plans = stage.checked(value, verify) if checks else stage(value)
        report.seconds[stage.name] = perf_counter() - start
        report.add_stage(value, stage.name, plans)
        if report.watch is not None:
            report.watch.note(stage.name, report.seconds[stage.name], before, value, plans)
        if dumps is not None:
            dumps.write(stage.name, value.graphs if isinstance(value, Partition) else (value,), plans)
        let_through()
        log.debug("stage %s took %.1f ms", stage.name, 1e3 * report.seconds[stage.name])
    if store and asked:
        report.settle(store, asked, facts_behind(inputs))
    counters.add(kernels_generated=len(report.kernels), extern_calls=len(report.externs))
    counters.add(warm_graphs=report.warm == "found")
    log.info("compiled a graph: %d kernels, %d extern calls", len(report.kernels), len(report.externs))
    again = intarsia_runtime.rerun_of(gm, value.forward.signature, draws_random=report.draws_random)
    return intarsia_runtime.assembled(value, cuda_graphs=options.cuda_graphs, rerun=again)


def _meaning(plan: Any, launches: Any) -> str:
    return intarsia_scheduler.Scheduled(plan, launches).text
