"""Predicted time of a plan from what will be emitted: the walks that a schedule makes of its kernels.

    plan -> FX(kernels) -> launches (`schedule`) -> for each kernel, what is counted of its loops -> prices -> time

A fusion cost model prices kernels before they are scheduled; this prices the code: on a CPU which loop lanes run along,
what is strided there, how often a row's loops start; on a GPU how many programs there are, what they read again, and
how many launches a kernel is split into.
"""

from __future__ import annotations

import intarsia_fuser
from intarsia_fuser import FusionPlan
from intarsia_ir.records import Target
from intarsia_loops.launches import LaunchPlan
from intarsia_loops.program import Program
from intarsia_loops.vectors.walks import VectorWalk
from intarsia_scheduler import Measured, scheduled
from intarsia_study.grid_counts import grid_counts
from intarsia_study.prices import Counts, Tally, WalkPrices
from intarsia_study.vector_counts import vector_counts

__all__ = ["walk_counts", "walked_us"]


def walked_us(program: Program, plan: FusionPlan, target: Target, prices: WalkPrices | None = None) -> float:
    """Return the microseconds that a plan's generated kernels are predicted to take, from their schedule.

    Args:
        program: A loops program.
        plan: For this very program.
        target: A CPU with one thread, or a GPU.
        prices: What code costs; `WalkPrices.of(target)` when not given.

    Example:
        >>> import torch
        >>> from intarsia_fuser import Greedy, NoFusion
        >>> from intarsia_study import programs_of
        >>> (study,) = programs_of(lambda x: torch.relu(x) * 2 + 1, torch.randn(64, 64))
        >>> fused, apart = (walked_us(study.program, study.plan(p), study.target) for p in (Greedy(), NoFusion()))
        >>> fused < apart
        True
    """
    prices = prices or WalkPrices.of(target)
    return sum(map(prices.kernel_us, walk_counts(program, plan, target)))


def walk_counts(program: Program, plan: FusionPlan, target: Target) -> tuple[Counts, ...]:
    """Return what is counted of each kernel of a plan, in order; kernels are launches of their own, as in `measure`."""
    kernels = intarsia_fuser.apply_program(program, plan)
    found: dict[int, Tally] = {}
    for launch in scheduled(kernels, target, Measured(merges=False), check=False).launches.launches:
        found.setdefault(launch.items[0], Tally()).add(_counted(launch, target))
    if target.is_gpu:
        for counts in found.values():
            counts["kernel"] = 1.0
    return tuple(found.values())


def _counted(launch: LaunchPlan, target: Target) -> Tally:
    if isinstance(launch.walk, VectorWalk):
        return vector_counts(launch, launch.walk)
    return grid_counts(launch, target.machine)
