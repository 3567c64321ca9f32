"""Schedules of one kernel, timed: built side by side, checked against the first, launched in turn.

    schedules -> launches -> source -> machine code -> launches, a round after the other, each schedule once a round

The clock is the CPU time of the calling thread where kernels run in one, so that other work on the machine costs
little, and wall time where they run in several.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

import intarsia_runtime
from intarsia_ir.errors import RuntimeFault
from intarsia_ir.records import KernelSource
from intarsia_loops import Program
from intarsia_loops.launches import Launches
from intarsia_runtime import Cache
from intarsia_scheduler import SchedulePlan, arrange

__all__ = ["Emit", "Times", "times_of"]

Emit = Callable[[Launches], KernelSource]
# microseconds of a launch, one for each round
Times = list[float]
ENOUGH_S = 2e-4  # a launch is repeated until it takes so long


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
        plans: For this very program; all for one target, a CPU.
        operands: One for each input.
        emit: Prints the launches.
        cache: Where machine code is kept.
        rounds: How often each runs.

    Returns:
        For each plan, microseconds of its launches in each round.

    Raises:
        RuntimeFault: `tuner.wrong_result`: a plan's results differ from the first's by more than the order of sums
            explains.
    """
    with ThreadPoolExecutor(min(len(plans), os.cpu_count() or 1)) as pool:
        built = list(pool.map(lambda plan: _Built(program, plan, emit, cache), plans))
    expected = built[0].run(*operands)
    for plan, one in zip(plans[1:], built[1:], strict=True):
        _check(plan, one.run(*operands), expected)
    for _ in range(rounds):
        for one in built:
            one.clock.keep(one.run, operands)
    return [one.clock.us for one in built]


class _Clock:
    """Times launches; those of one run are added up."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.us: Times = []
        self._now, self._keeps, self._sum = now, False, 0.0
        self._repeats: dict[str, int] = {}

    def launcher(self, entry: str, launch: Callable[..., None]) -> Callable[..., None]:
        """A call of a kernel, as often as the clock needs. Its results are the same each time."""

        def call(*arguments: int) -> None:
            launch(*arguments)
            n = self._repeats.get(entry, 1) if self._keeps else 1
            start = self._now()
            for _ in range(n):
                launch(*arguments)
            spent = self._now() - start
            self._repeats.setdefault(entry, 1 + int(ENOUGH_S / max(spent, 1e-7)))
            self._sum += 1e6 * spent / n

        return call

    def keep(self, run: Callable[..., Any], operands: Sequence[torch.Tensor]) -> None:
        """Keep the time of one run."""
        self._keeps, self._sum = True, 0.0
        run(*operands)
        self.us.append(self._sum)


class _Built:
    """A schedule, ready to run."""

    def __init__(self, program: Program, plan: SchedulePlan, emit: Emit, cache: Cache) -> None:
        launches = arrange(program, plan)
        source = emit(launches)
        self._library = intarsia_runtime.build(source, plan.target, cache=cache)
        self.clock = _Clock(time.thread_time if plan.target.threads == 1 else time.perf_counter)
        self.run = intarsia_runtime.link(program, source, self)  # type: ignore[arg-type]

    def launcher(self, entry: str, n_arguments: int) -> Callable[..., None]:
        """The library's, timed."""
        return self.clock.launcher(entry, self._library.launcher(entry, n_arguments))


def _check(plan: SchedulePlan, results: Sequence[Any], expected: Sequence[Any]) -> None:
    for position, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        rtol, atol = _tolerance(wanted)
        try:
            torch.testing.assert_close(result, wanted, equal_nan=True, rtol=rtol, atol=atol)
        except AssertionError as error:
            raise RuntimeFault(
                f"a schedule gives another result {position} than the policy's: {error}\n{plan.explain()}",
                code="tuner.wrong_result",
                hints=("mode='default' takes the policy's schedules; please report the kernel",),
            ) from error


def _tolerance(wanted: torch.Tensor) -> tuple[float | None, float | None]:
    """How far two orders of a sum may be apart: operands are positive, so some last bits of the largest number."""
    if not (wanted.is_floating_point() or wanted.is_complex()) or not wanted.isfinite().any():
        return None, None
    eps = torch.finfo(wanted.dtype).eps
    largest = float(wanted[wanted.isfinite()].abs().max())
    return max(1.3e-6, 2 * eps) if eps > 1e-10 else 1e-7, largest * eps * (64 if eps < 1e-5 else 4)
