"""Schedules of one kernel, timed: built side by side, checked against the first, launched in turn.

    schedules -> launches -> source -> machine code -> launches, a round after the other, each schedule once a round

A schedule of a GPU's space may need more registers or scratchpad than there are: it is no candidate, and takes for
ever.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

import intarsia_runtime
from intarsia_ir.errors import InternalError, RuntimeFault, UnsupportedError
from intarsia_ir.records import KernelSource, Target
from intarsia_loops import Program
from intarsia_loops.launches import Launches
from intarsia_runtime import Cache
from intarsia_scheduler import SchedulePlan, arrange
from intarsia_tuner.clock import TimedLibrary, clock_of
from intarsia_tuner.comparing import first_difference

__all__ = ["Emit", "Times", "times_of"]

Emit = Callable[[Launches], KernelSource]
# microseconds of a launch, one for each round
Times = list[float]
_log = logging.getLogger("intarsia.tuner")


def times_of(
    program: Program,
    plans: Sequence[SchedulePlan],
    operands: Sequence[torch.Tensor],
    *,
    emit: Emit,
    cache: Cache,
    rounds: int,
) -> list[Times]:
    """Build schedules of a program, check their results against those of the first, and time their launches.

    Args:
        program: Of kernels, without calls.
        plans: For this very program; all for one target.
        operands: One for each input.
        emit: Prints the launches.
        cache: Where machine code is kept.
        rounds: How often each runs.

    Returns:
        For each plan, microseconds of its launches in each round; infinite where a GPU can't run it, except the first.

    Raises:
        RuntimeFault: `tuner.wrong_result`: a plan's results differ from the first's by more than the order of sums
            explains.
    """
    with ThreadPoolExecutor(min(len(plans), os.cpu_count() or 1)) as pool:
        first, *others = pool.map(lambda plan: _built(program, plan, emit, cache, plan is not plans[0]), plans)
    assert first is not None, "a policy's own schedule that can't be built raises"
    expected = first.run(*operands)
    built = [first, *(one if one is not None and _runs(one, operands, expected) else None for one in others)]
    for one in built * rounds:  # in turn
        if one is not None:
            one.clock.keeps = True
            one.run(*operands)
    return [[math.inf] * rounds if one is None else one.times() for one in built]


class _Built:
    """A schedule, ready to run."""

    def __init__(self, program: Program, plan: SchedulePlan, emit: Emit, cache: Cache) -> None:
        launches = arrange(program, plan)
        source = emit(launches)
        library = intarsia_runtime.build(source, plan.target, cache=cache)
        self.plan, self.clock = plan, clock_of(plan.target)
        timed: Any = TimedLibrary(library, self.clock)
        self.run = intarsia_runtime.link(launches.program, source, timed, device=device_of(plan.target))

    def times(self) -> Times:
        """Return the microseconds of each round, of all launches together."""
        self.clock.read()
        return [sum(us) for us in zip(*self.clock.us.values(), strict=True)]


def device_of(target: Target) -> torch.device | None:
    """Return the device that kernels run on, as `link` takes it: the current GPU, or None, the CPU."""
    return torch.device(target.device) if target.is_gpu else None


def _built(program: Program, plan: SchedulePlan, emit: Emit, cache: Cache, may_fail: bool) -> _Built | None:
    try:
        return _Built(program, plan, emit, cache)
    except (InternalError, UnsupportedError) as error:
        if not (may_fail and plan.target.is_gpu):
            raise
        _log.info("a schedule can't be built: %s\n%s", error, plan.explain())
        return None


def _runs(one: _Built, operands: Sequence[torch.Tensor], expected: Sequence[Any]) -> bool:
    """Run a schedule; tell whether a GPU accepts its launches, with the results of the first."""
    try:
        results = one.run(*operands)
    except RuntimeError as error:  # the driver refuses a launch
        if isinstance(error, RuntimeFault) or not one.plan.target.is_gpu:
            raise
        _log.info("a schedule can't be launched: %s\n%s", error, one.plan.explain())
        return False
    found = first_difference(results, expected)
    if found is not None:
        raise RuntimeFault(
            f"a schedule gives another result {found[0]} than the policy's: {found[1]}\n{one.plan.explain()}",
            code="tuner.wrong_result",
            hints=("mode='default' takes the policy's schedules; please report the kernel",),
        )
    return True
