"""Plans of one program, measured: built side by side, run in turn, timed kernel by kernel, checked against the loops.

    plan -> FX(kernels), each kernel a launch of its own -> source -> machine code -> a call whose launches are timed

What is timed are the kernels, with the operands and the memory plan that they have in the program: library calls are
the same in every plan. On a CPU the clock is the CPU time of the calling thread, so that other work on the machine
costs little, and kernels are built for one thread; on a GPU it is that of events between launches. A launch is repeated
until it takes long enough for the clock, so its operands are in the caches as far as they fit. In each round every plan
runs once; a figure is the median over the rounds, beside the best round.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch

import intarsia_fuser
import intarsia_runtime
from intarsia import Pipeline, default_pipeline
from intarsia_fuser import FusionPlan
from intarsia_ir.aten import effects
from intarsia_ir.errors import InvalidArgumentError, RuntimeFault, UnsupportedError
from intarsia_ir.records import Signature, Target
from intarsia_loops import Contract, Emitted, Kernels, loops, to_fx
from intarsia_loops.program import Extern, Item, Kernel, Program
from intarsia_runtime import Cache, build, link, segments
from intarsia_tuner import Clock, TimedLibrary, clock_of, first_difference

__all__ = ["KernelTime", "Measured", "PlanTime", "measure"]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel of a plan.

    Args:
        writes: The buffers that it stores.
        us: Median microseconds over the rounds.
        best_us: Those of the best round.
    """

    writes: tuple[str, ...]
    us: float
    best_us: float


@dataclass(frozen=True, slots=True)
class PlanTime:
    """One plan.

    Args:
        plan: The plan.
        kernels: Its kernels, in the order in which they run.
    """

    plan: FusionPlan
    kernels: tuple[KernelTime, ...]

    @property
    def us(self) -> float:
        """Microseconds of all kernels, by their medians."""
        return sum(k.us for k in self.kernels)

    @property
    def best_us(self) -> float:
        """Microseconds of all kernels, by their best rounds."""
        return sum(k.best_us for k in self.kernels)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured, and how.

    Args:
        plans: In the order in which they were given.
        target: What the kernels were built for.
        rounds: How often each plan ran.
    """

    plans: tuple[PlanTime, ...]
    target: Target
    rounds: int

    @property
    def best(self) -> PlanTime:
        """The plan of the least median time; of equal ones the first."""
        return min(self.plans, key=lambda p: p.us)


def measure(
    program: Program,
    plans: Sequence[FusionPlan],
    inputs: Sequence[Any],
    *,
    target: Target | None = None,
    cache: Cache | None = None,
    rounds: int = 7,
    workers: int | None = None,
) -> Measured:
    """Build plans of a program, check their results, and time their kernels.

    Args:
        program: A loops program.
        plans: For this very program.
        inputs: One for each input of the program.
        target: A CPU with one thread, or the current GPU; None: this machine's CPU.
        cache: Where built plans are kept; None: a folder that lives as long as the call.
        rounds: How often each plan runs.
        workers: Plans that are built at the same time; None: one for each processor.

    Raises:
        RuntimeFault: `study.wrong_result`: a plan's results differ from the loops interpreter's by more than the order
            of sums explains. It says which plan and which result.
        InvalidArgumentError: A plan is for another program, or `rounds` isn't positive.
        UnsupportedError: `study.target`: the target is no GPU, and no CPU with one thread. `study.random`: the program
            draws random numbers, so its results can't be compared.
    """
    target = target or intarsia_runtime.detect_target(threads=1)
    _check_supported(program, target, rounds)
    expected = loops.interpret(to_fx(program), *inputs)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        built = list(pool.map(lambda plan: _built(program, plan, target, cache or Cache(folder)), plans))
        for number, one in enumerate(built):
            _check_results(number, plans[number], one.run(*inputs), expected)
        for _ in range(rounds):
            for one in built:
                one.clock.keeps = True
                one.run(*inputs)
    return Measured(tuple(map(_times, plans, built)), target, rounds)


def _check_supported(program: Program, target: Target, rounds: int) -> None:
    if rounds < 1:
        raise InvalidArgumentError(f"rounds must be at least 1, not {rounds}", code="study.rounds")
    if not target.is_gpu and (target.device != "cpu" or target.threads != 1):
        raise UnsupportedError(
            f"kernels are timed on a GPU, or on a CPU with one thread, not on {target.device} with {target.threads}",
            code="study.target",
        )
    for item in program.items:
        if isinstance(item, Extern) and effects(item.target).random and not _is_attention(item):
            raise UnsupportedError("the program draws random numbers", code="study.random")


def _is_attention(item: Extern) -> bool:
    """Whether a call is attention without dropout, which draws nothing although its schema says that it may."""
    named = dict(zip((a.name for a in item.target._schema.arguments), item.args, strict=False)) | dict(item.kwargs)
    return "attention" in str(item.target) and named.get("dropout_p", 0.0) == 0.0


@dataclass(frozen=True, slots=True)
class _Built:
    """A plan, ready to run.

    Args:
        run: The program's inputs -> its results.
        clock: What times its launches.
        kernels: Entry -> the buffers that its kernel stores, in order.
    """

    run: Callable[..., tuple[Any, ...]]
    clock: Clock
    kernels: dict[str, tuple[str, ...]]


def _built(program: Program, plan: FusionPlan, target: Target, cache: Cache) -> _Built:
    kernels = _apart(intarsia_fuser.apply_program(program, plan))
    pipeline = default_pipeline(target)
    middle = Pipeline(pipeline.stages[pipeline.index("fuse") + 1 : pipeline.index("build")])
    device = torch.device(target.device)
    staged: Emitted = middle.run(Kernels(to_fx(kernels), Contract(Signature(), (), target, device), apart=True))
    source = staged.source
    clock = clock_of(target)
    library: Any = TimedLibrary(build(source, target, cache=cache), clock)
    run = link(staged.launches.program, source, library, device=device if target.is_gpu else None)
    items = staged.launches.program.items
    native = segments(source) if target.is_gpu else source.launches
    return _Built(run, clock, {launch.entry: _stored(items, launch.items) for launch in native})


def _apart(program: Program) -> Program:
    """The program with a library call that does nothing between kernels, so that each is a launch of its own."""
    nothing = Extern(("",), torch.ops.aten.empty.memory_format, ((0,),))
    items: list[Item] = []
    for item in program.items:
        if isinstance(item, Kernel) and items and isinstance(items[-1], Kernel):
            items.append(nothing)
        items.append(item)
    return replace(program, items=tuple(items))


def _stored(items: Sequence[Item], covered: tuple[int, int]) -> tuple[str, ...]:
    return tuple(name for item in items[slice(*covered)] if isinstance(item, Kernel) for name in item.writes())


def _check_results(number: int, plan: FusionPlan, results: Sequence[Any], expected: Sequence[Any]) -> None:
    found = first_difference(results, expected)
    if found is not None:
        raise RuntimeFault(
            f"plan {number} ({plan.policy}) gives another result {found[0]} than the loops program: {found[1]}",
            code="study.wrong_result",
            hints=("bisect it: apply_program(program, plan, fuel=n) for the first n that goes wrong",),
        )


def _times(plan: FusionPlan, built: _Built) -> PlanTime:
    built.clock.read()
    kernels = [
        KernelTime(writes, statistics.median(us), min(us))
        for entry, writes in built.kernels.items()
        for us in [built.clock.us[entry]]
    ]
    return PlanTime(plan, tuple(kernels))
