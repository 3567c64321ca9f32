"""Predicted time of a plan from what will be emitted: the walks that a schedule makes of its kernels.

    plan -> FX(kernels) -> launches (`schedule`) -> for each nest of loops: vectors computed, moved, and taken apart

A fusion cost model prices kernels before they are scheduled; this prices the code: which loop lanes run along, what is
strided there, how often a row's loops start. A nest takes as long as the dearer of computing and moving.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import intarsia_fuser
from intarsia_fuser import FusionPlan
from intarsia_ir.dtypes import itemsize
from intarsia_ir.records import Target
from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr
from intarsia_loops.launches import LaunchPlan
from intarsia_loops.program import Program
from intarsia_loops.vectors.axes import lane_step
from intarsia_loops.vectors.steps import Step, accesses
from intarsia_loops.vectors.walks import Maps, Part, Points, Rows, VectorWalk
from intarsia_loops.vectors.work import work_of
from intarsia_scheduler import scheduled

__all__ = ["WalkPrices", "walked_us"]

TYPICAL = 64  # extent taken for one that is known at run time only


@dataclass(frozen=True, slots=True)
class WalkPrices:
    """Nanoseconds of what code does.

    Args:
        addition: One addition on a vector.
        move: Moving a vector between a register and the first-level cache.
        lane: Moving one element of a vector whose lanes lie apart.
        loop: Starting a nest of loops in a row.
        kernel: Starting a kernel.
        byte: Moving a byte between the last cache that holds a kernel's buffers and the first one.
    """

    addition: float
    move: float
    lane: float
    loop: float
    kernel: float
    byte: float

    @classmethod
    def of(cls, target: Target) -> WalkPrices:
        """Return what the target's peaks say: a vector takes as long as its share of the peak arithmetic."""
        machine = target.machine.scaled(1)
        vector = machine.vector_bytes / 4 / machine.gflop_per_s
        return cls(vector, vector, vector, 8 * vector, 1e3 * machine.launch_us, 1 / machine.l2_gb_per_s)


def walked_us(program: Program, plan: FusionPlan, target: Target, prices: WalkPrices | None = None) -> float:
    """Return the microseconds that a plan's generated kernels are predicted to take, from their schedule.

    Args:
        program: A loops program.
        plan: For this very program.
        target: A CPU with one thread.
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
    launches = scheduled(intarsia_fuser.apply_program(program, plan), target, check=False).launches.launches
    return sum(_launch_ns(launch, prices) for launch in launches) / 1e3


def _launch_ns(launch: LaunchPlan, prices: WalkPrices) -> float:
    walk = launch.walk
    assert isinstance(walk, VectorWalk), "a CPU's launches are walked in vectors"
    bytes_moved = sum(
        math.prod(map(_extent, launch.layouts[b].shape)) * itemsize(launch.layouts[b].dtype)
        for b in set().union(*walk.touched())
    )
    code = sum(_nest_ns(nest, part.lanes, prices) for part in walk.parts for nest in _nests(part))
    return prices.kernel + max(code, prices.byte * bytes_moved)


@dataclass(frozen=True, slots=True)
class _Nest:
    """Steps in one nest: how often it starts, its loops, and the one that lanes run along."""

    starts: int
    points: int
    steps: Sequence[Step]
    lane: Atom | None


def _nests(part: Part) -> Iterator[_Nest]:
    if isinstance(part, Maps):
        *outer, lane = part.loops
        yield _Nest(_points(outer), _points(part.loops), part.steps, lane)
    elif isinstance(part, Points):
        yield _Nest(1, _points(part.loops), (part.step,), part.lane if part.neighbours else None)
    else:
        yield from _row_nests(part)


def _row_nests(part: Rows) -> Iterator[_Nest]:
    rows, block = _points(part.rows), part.block
    for inner in part.inner:
        points = rows * _points(inner.outer) * _points(inner.loops)
        if block is not None:
            yield _Nest(-(-rows // block.width) * _points(inner.loops), points, inner.steps, part.rows[block.position])
        else:
            lane = inner.outer[-1] if inner.kind == "across" else inner.loops[-1] if inner.loops else None
            yield _Nest(rows * _points(inner.outer), points, inner.steps, lane)


def _nest_ns(nest: _Nest, lanes: int, prices: WalkPrices) -> float:
    """Vectors of a nest, each of which is computed and moved; ends that aren't full are as dear."""
    if nest.lane is None:
        vectors, lanes = nest.points, 1
    else:
        n = _extent(nest.lane.extent)
        vectors = nest.points // max(n, 1) * -(-n // lanes)
    computed = prices.addition * work_of(nest.steps)
    moved = sum(_move_ns(step, nest.lane, lanes, prices) for step in nest.steps)
    return prices.loop * nest.starts + vectors * max(computed, moved)


def _move_ns(step: Step, lane: Atom | None, lanes: int, prices: WalkPrices) -> float:
    """What the reads of a step's value, and its store, cost for one vector."""
    places = [(address, bool(lane in moving)) for _, address, moving in accesses(step.body)]
    places += [(step.address, False)] if not step.is_fold else []
    total = 0.0
    for address, by_lane in places:
        walk = ZERO if lane is None else None if by_lane else lane_step(address, lane, lanes)
        total += prices.move if walk is ONE or lane is None else 0.0 if walk is ZERO else prices.lane * lanes
    return total


def _points(axes: Sequence[Atom]) -> int:
    return math.prod(_extent(a.extent) for a in axes)


def _extent(extent: IndexExpr) -> int:
    known = extent.const()
    return TYPICAL if known is None else known
