"""The summary of one finished graph, for explanations."""

from __future__ import annotations

from intarsia_fuser import FusionPlan
from intarsia_report.exchanges import collectives_of
from intarsia_report.explanation import GraphSummary
from intarsia_report.watching import GraphWatch
from intarsia_runtime import group_size
from intarsia_runtime.report import GraphReport
from intarsia_scheduler import SchedulePlan

__all__ = ["summarise"]


def summarise(report: GraphReport) -> GraphSummary:
    """Return the summary of one finished graph.

    Args:
        report: What was noted while it was compiled, stage by stage or from a finished plan.
    """
    watch = report.watch if report.watch is not None else GraphWatch()
    return GraphSummary(
        report.kernels,
        tuple(str(e.target) for e in report.externs),
        sum(source.n_unique for source in report.sources),
        report.n_nests - sum(source.n_kernels for source in report.sources) if report.sources else 0,
        dict(report.seconds),
        report.facts,
        report.note,
        report.plans_of(FusionPlan),
        report.plans_of(SchedulePlan),
        report.name,
        tuple(watch.stages),
        watch.details,
        report.warm,
        collectives_of(report.program, group_size),
        watch.memory,
    )
