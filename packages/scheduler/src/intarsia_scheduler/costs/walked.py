"""Predicted time from what will be emitted: the walks that a schedule makes of kernels.

    kernel -> launches (`scheduled`) -> what is counted of their loops -> prices -> time

A fusion cost model that sees kernels prices them before they are scheduled; this prices the code: on a CPU which loop
lanes run along, what is strided there, how often a row's loops start, and what threads share; on a GPU how many
programs there are, what they read again, and how many launches a kernel is split into.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from intarsia_ir.records import Target
from intarsia_loops.launches import LaunchPlan
from intarsia_loops.program import Buffer, Kernel, Program
from intarsia_loops.rewrites import canonical
from intarsia_loops.sizes import Sizes
from intarsia_loops.vectors.walks import VectorWalk
from intarsia_scheduler.costs.grid_counts import grid_counts
from intarsia_scheduler.costs.prices import Counts, Tally, WalkPrices
from intarsia_scheduler.costs.vector_counts import vector_counts
from intarsia_scheduler.measured import Measured
from intarsia_scheduler.schedule import scheduled

__all__ = ["Walked", "Work", "kernel_counts"]

# a kernel in canonical form, its layouts, and numbers for the sizes that aren't known
Form = tuple[Kernel, tuple[tuple[str, Buffer], ...], tuple[tuple[str, int], ...]]


class Work(Protocol):
    """What is counted of something that is no kernel, as fusion counts it."""

    @property
    def bytes_read(self) -> int:
        """Bytes that come from memory, each once."""

    @property
    def bytes_written(self) -> int:
        """Bytes of results that reach memory."""

    @property
    def flops(self) -> int:
        """Weighted scalar operations (an addition is 1)."""


@dataclass(frozen=True, slots=True)
class Walked:
    """A cost model that prices the schedule of a kernel: what policies of fusion are given (`compile(cost=)`).

    Kernels that do the same to other buffers are scheduled once.

    Args:
        target: What kernels are scheduled for.
        prices: What code costs: of a calibration (`walks_of_json`), or `WalkPrices.of(target)`, as `of` takes them.

    Example:
        >>> from intarsia_loops import from_fx, kernels
        >>> program = from_fx(kernels.parse_ir('''// dialect: kernels 1
        ... graph(%x: f32[64, 100]) {
        ...   kernel[i0: 64] {
        ...     %y: f32[64] = sum[i0: 64; r0: 100] load(%x, i0, r0)
        ...   }
        ...   return (%y,)
        ... }
        ... '''))
        >>> models = [Walked.of(Target(isa=isa)) for isa in ("avx2", "avx512")]
        >>> one, two = [model.predicted_us(program.items[0], program) for model in models]
        >>> 0 < two < one
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

    def kernel_us(self, work: Work) -> float:
        """Return the predicted time of work that is no kernel: its operations in full vectors, its bytes once.

        On a CPU all of its threads share it.
        """
        moved = {"near": (work.bytes_read + work.bytes_written) / (1 if self.target.is_gpu else self.target.threads)}
        if self.target.is_gpu:
            return self.prices.kernel_us({**moved, "light": float(work.flops), "launch": 1.0, "kernel": 1.0})
        lanes = self.target.machine.vector_bytes // 4 * self.target.threads
        return self.prices.kernel_us({**moved, "addition": work.flops / lanes, "kernel": 1.0})

    def predicted_us(self, kernel: Kernel, program: Program) -> float:
        """Return the predicted time of a kernel, a launch of its own."""
        form, names = canonical(kernel)
        layouts = {f"b{k}": program.buffers[name] for k, name in enumerate(names)}
        key = (form, tuple(layouts.items()), tuple(program.facts.hints.items()))
        if key not in self._known:
            nothing = replace(program, inputs=(), constants={}, outputs=(), placement=None)
            alone = replace(nothing, buffers=layouts, items=(form,))
            self._known[key] = sum(map(self.prices.kernel_us, kernel_counts(alone, self.target)))
        return self._known[key]


def kernel_counts(kernels: Program, target: Target) -> tuple[Counts, ...]:
    """Return what is counted of each kernel of a program, in order; none is merged with another.

    Args:
        kernels: Items are kernels, lone nests and extern calls, of which nothing is counted.
        target: What they are scheduled for.
    """
    sizes = Sizes(kernels.facts.hints)
    found: dict[int, Tally] = {}
    for launch in scheduled(kernels, target, Measured(merges=False), check=False).launches.launches:
        found.setdefault(launch.items[0], Tally()).add(_counted(launch, target, sizes))
    if target.is_gpu:
        for counts in found.values():
            counts["kernel"] = 1.0
    return tuple(found.values())


def _counted(launch: LaunchPlan, target: Target, sizes: Sizes) -> Tally:
    if isinstance(launch.walk, VectorWalk):
        return vector_counts(launch, launch.walk, sizes)
    return grid_counts(launch, target.machine, sizes)
