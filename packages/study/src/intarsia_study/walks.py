"""Predicted time of a plan, from what its schedule makes; `intarsia_scheduler.Walked` is the same as a cost model."""

from __future__ import annotations

import intarsia_fuser
from intarsia_fuser import FusionPlan
from intarsia_ir.records import Target
from intarsia_loops.program import Program
from intarsia_scheduler import WalkPrices, kernel_counts
from intarsia_scheduler.costs.prices import Counts

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
    return kernel_counts(intarsia_fuser.apply_program(program, plan), target)
