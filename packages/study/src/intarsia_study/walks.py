"""Predicted time from what will be emitted: the walks that a schedule makes of kernels.

    plan -> FX(kernels) -> launches (`schedule`) -> for each kernel, what is counted of its loops -> prices -> time

A fusion cost model prices kernels before they are scheduled; this prices the code: on a CPU which loop lanes run along,
what is strided there, how often a row's loops start; on a GPU how many programs there are, what they read again, and
how many launches a kernel is split into. `walked_us` does so for a plan; `Walked` is the same as a cost model, which
policies ask for each kernel that they weigh: kernels that do the same to other buffers are scheduled once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import intarsia_fuser
from intarsia_fuser import FusionPlan, KernelWork
from intarsia_ir.records import Target
from intarsia_loops.launches import LaunchPlan
from intarsia_loops.program import Buffer, Kernel, Program
from intarsia_loops.rewrites import canonical
from intarsia_loops.vectors.walks import VectorWalk
from intarsia_scheduler import Measured, scheduled
from intarsia_study.grid_counts import grid_counts
from intarsia_study.prices import Counts, Tally, WalkPrices
from intarsia_study.vector_counts import vector_counts

__all__ = ["Walked", "walk_counts", "walked_us"]

Form = tuple[Kernel, tuple[tuple[str, Buffer], ...]]


@dataclass(frozen=True, slots=True)
class Walked:
    """A cost model that prices the schedule of a kernel; give it to `plan(..., cost=)` or `compile(..., cost=)`.

    Args:
        target: What kernels are scheduled for: a CPU with one thread, or a GPU.
        prices: What code costs: of a calibration (`walks_of_json`), or `WalkPrices.of(target)`, as `of` takes them.

    Example:
        >>> import torch
        >>> from intarsia_study import programs_of
        >>> (study,) = programs_of(lambda x: torch.softmax(x * 2, -1), torch.randn(64, 64))
        >>> plan = study.plan(cost=Walked.of(study.target))
        >>> abs(plan.after.predicted_us - walked_us(study.program, plan, study.target)) < 0.01
        True
    """

    target: Target
    prices: WalkPrices
    _known: dict[Form, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, target: Target) -> Walked:
        """Return the model of a target by its peaks, without a calibration."""
        return cls(target, WalkPrices.of(target))

    @property
    def name(self) -> str:
        """Identifier kept in plans."""
        return f"walks({self.prices.machine})"

    def kernel_us(self, work: KernelWork) -> float:
        """Return the predicted time of work that is no kernel: its operations in full vectors, its bytes once."""
        moved = {"near": float(work.bytes_read + work.bytes_written)}
        if self.target.is_gpu:
            return self.prices.kernel_us({**moved, "light": float(work.flops), "launch": 1.0, "kernel": 1.0})
        lanes = self.target.machine.vector_bytes // 4
        return self.prices.kernel_us({**moved, "addition": work.flops / lanes, "kernel": 1.0})

    def predicted_us(self, kernel: Kernel, program: Program) -> float:
        """Return the predicted time of a kernel, a launch of its own."""
        form, names = canonical(kernel)
        layouts = {f"b{k}": program.buffers[name] for k, name in enumerate(names)}
        key = (form, tuple(layouts.items()))
        if key not in self._known:
            nothing = replace(program, inputs=(), constants={}, outputs=(), placement=None)
            alone = replace(nothing, buffers=layouts, items=(form,))
            self._known[key] = sum(map(self.prices.kernel_us, _counts(alone, self.target)))
        return self._known[key]


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
    return _counts(intarsia_fuser.apply_program(program, plan), target)


def _counts(kernels: Program, target: Target) -> tuple[Counts, ...]:
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
