"""Policies compared on a program, as records that a table, a plot and a Parquet file are made of."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from intarsia_fuser import CostModel, FusionGraph, FusionPlan, FusionPolicy, features
from intarsia_ir.errors import UnsupportedError
from intarsia_scheduler import Walked
from intarsia_study.measure import PlanTime, measure
from intarsia_study.programs import StudyProgram
from intarsia_study.walks import walk_counts

__all__ = ["Record", "spearman", "study", "write_parquet"]


@dataclass(frozen=True, slots=True)
class Record:
    """One plan of one program.

    Args:
        program: Name of the program.
        policy: `"name version"` of what decided.
        cost: Name of the cost model.
        kernels: Generated kernels.
        mbytes: Megabytes that they read and write.
        predicted_us: The cost model's time for all of them.
        measured_us: Median CPU time of one thread; None when nothing was measured.
        best_us: That of the best rounds.
        plan_ms: Time of `plan`.
        plan: The plan, as JSON.
        features: JSON: for each kernel, what it stores and the counts that cost models of kernels price.
        walks: JSON: for each kernel, what is counted of its schedule, which `WalkPrices` price.
        kernel_us: JSON: for each kernel, its median microseconds; `[]` when nothing was measured.
    """

    program: str
    policy: str
    cost: str
    kernels: int
    mbytes: float
    predicted_us: float
    measured_us: float | None
    best_us: float | None
    plan_ms: float
    plan: str
    features: str
    walks: str
    kernel_us: str


def study(
    program: StudyProgram, policies: Sequence[FusionPolicy], *, cost: CostModel | None = None, rounds: int = 7
) -> tuple[Record, ...]:
    """Return what each policy decides for a program, and how long its kernels take.

    Args:
        program: As `programs_of` gives it.
        policies: Policies or plans.
        cost: Predicts; what the schedule makes, priced by the target's peaks, when not given.
        rounds: As `measure` takes them; 0 measures nothing.

    Raises:
        RuntimeFault: `study.wrong_result`, as `measure` raises it.
    """
    cost = cost or Walked.of(program.target)
    plans: list[FusionPlan] = []
    plan_ms: list[float] = []
    for policy in policies:
        start = time.thread_time()
        plans.append(program.plan(policy, cost=cost))
        plan_ms.append(1e3 * (time.thread_time() - start))
    times: Sequence[PlanTime | None] = [None] * len(plans)
    if rounds:
        times = measure(program.program, plans, program.inputs, target=program.target, rounds=rounds).plans
    return tuple(map(_record, [program] * len(plans), plans, times, plan_ms))


def _record(program: StudyProgram, plan: FusionPlan, timed: PlanTime | None, plan_ms: float) -> Record:
    graph = FusionGraph.of(program.program, target=program.target)
    for decision in plan.decisions:
        graph.apply(decision)
    counts = [{"kernel": k, "steps": graph.kernel(k).steps, **features(graph.work(k))} for k in graph.kernels]
    return Record(
        program=program.name,
        policy=plan.policy,
        cost=plan.cost,
        kernels=plan.after.kernels,
        mbytes=round(plan.after.bytes_moved / 1e6, 3),
        predicted_us=round(plan.after.predicted_us, 1),
        measured_us=None if timed is None else round(timed.us, 1),
        best_us=None if timed is None else round(timed.best_us, 1),
        plan_ms=round(plan_ms, 2),
        plan=plan.to_json(),
        features=json.dumps(counts),
        walks=json.dumps(walk_counts(program.program, plan, program.target)),
        kernel_us=json.dumps([] if timed is None else [[k.writes, k.us] for k in timed.kernels]),
    )


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the rank correlation of two lists of numbers; equal numbers share a rank. 0 where one list is constant.

    Example:
        >>> round(spearman([1.0, 2.0, 3.0], [10.0, 20.0, 90.0]), 6)
        1.0
    """
    ranks = torch.stack([_ranks(first), _ranks(second)])
    return float(torch.nan_to_num(torch.corrcoef(ranks)[0, 1]))


def _ranks(numbers: Sequence[float]) -> torch.Tensor:
    values = torch.tensor(numbers, dtype=torch.float64)
    below = (values[:, None] > values[None, :]).sum(1)
    equal = (values[:, None] == values[None, :]).sum(1)
    return below + (equal - 1) / 2


def write_parquet(records: Sequence[Record], path: str | Path) -> None:
    """Write records as a Parquet file, a column for each of their fields.

    Raises:
        UnsupportedError: `study.no_parquet`: PyArrow isn't installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UnsupportedError(
            "a Parquet file needs PyArrow", code="study.no_parquet", hints=("pip install intarsia-study[dataset]",)
        ) from error
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([asdict(r) for r in records]), path)
