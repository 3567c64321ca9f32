"""Scatters on a grid: a launch that stores the initial value, and one in which every point folds into its element.

    y = f; for each point r: y[p(r)] += g(r)      →      y[i] = f(i);   atomic: y[p(r)] += g(r), for blocks of points

Folds of one element happen in any order: sums of floats differ in their last digits from run to run, as those of
eager's kernels on a GPU do. Extrema of floats fold the bits as integers. What is shorter than any atomic operation is
folded as i32, and converted by a third launch: the same modulo the size of its type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from intarsia_loops.index import lift, row_major
from intarsia_loops.ops import FLOATS
from intarsia_loops.program import Buffer, Kernel, Nest, Val, cast, const, load, scatter, scatter_of, val
from intarsia_scheduler.grid.split import Split, new_name

__all__ = ["SHORT", "scatter_launches"]

SHORT = frozenset({"i8", "i16", "u8"})


def scatter_launches(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Split:
    """Return the kernel that stores the initial value, and the one whose points fold into it, which has none.

    Args:
        kernel: A scatter.
        buffers: Layout of every buffer in memory.
    """
    *checks, step = kernel.steps
    if step.dtype not in SHORT:
        return Split(_launches(step, checks), {})
    wide = _widened(step, new_name(f"{step.out}_wide", buffers))
    here, shape = tuple(map(lift, step.axes)), tuple(a.extent for a in step.axes)
    body = cast(load(wide.out, here, wide.dtype), step.dtype)
    narrow = Kernel(step.axes, (replace(step, red=(), kind="map", body=body),))
    return Split((*_launches(wide, checks), narrow), {wide.out: Buffer(shape, row_major(shape), wide.dtype)})


def _widened(step: Nest, out: str) -> Nest:
    parts = scatter_of(step)
    assert parts is not None, "not a scatter"
    body = scatter(cast(parts.initial, "i32"), cast(parts.value, "i32"), parts.places)
    return replace(step, out=out, body=body, dtype="i32")


def _launches(step: Nest, checks: Sequence[Nest]) -> tuple[Kernel, Kernel]:
    parts = scatter_of(step)
    assert parts is not None, "not a scatter"
    start = replace(step, red=(), kind="map", body=_initial(step, parts.initial))
    nothing = const(0.0 if step.dtype in FLOATS else 0, step.dtype)
    points = replace(step, body=scatter(nothing, parts.value, parts.places))
    return Kernel(step.axes, (start,)), Kernel((), (*checks, points))


def _initial(step: Nest, value: Val) -> Val:
    """Return the initial value; where extrema of floats are folded, a NaN has the sign that lets it win."""
    if step.dtype not in FLOATS or step.kind == "scatter_sum":
        return value
    sign = const(1.0 if step.kind == "scatter_max" else -1.0, step.dtype)
    nan = val("copysign", const(float("nan"), step.dtype), sign, dtype=step.dtype)
    return val("where", val("isnan", value, dtype="b8"), nan, value, dtype=step.dtype)
