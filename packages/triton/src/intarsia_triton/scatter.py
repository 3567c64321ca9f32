"""Scatters: a launch that stores the initial value everywhere, and one in which every point folds into its element.

    y = f; for each point r: y[p(r)] += g(r)      →      y[i] = f(i);   atomic: y[p(r)] += g(r), for blocks of points

Folds of one element happen in any order: sums of floats differ in their last digits from run to run, as those of
eager's kernels on a GPU do. Extrema of floats fold the bits as integers (see `prelude`). What is shorter than any
atomic operation is folded as i32, and converted by a third launch: the same modulo the size of its type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from intarsia_ir.records import Machine
from intarsia_loops.index import lift, row_major
from intarsia_loops.ops import FLOATS
from intarsia_loops.program import Buffer, Kernel, Nest, Val, cast, const, load, scatter, scatter_of, val
from intarsia_loops.rewrites import at
from intarsia_triton.blocks import choose_blocks
from intarsia_triton.split import Split, new_name
from intarsia_triton.writer import Writer

__all__ = ["Scatter", "is_scatter", "scatter_launches"]

SHORT = frozenset({"i8", "i16", "u8"})
NAMES = {"scatter_sum": "add", "scatter_max": "max", "scatter_min": "min"}


def is_scatter(kernel: Kernel) -> bool:
    """Tell whether a kernel is a scatter, which is its last step; those before it are checks of its points."""
    return scatter_of(kernel.steps[-1]) is not None


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


class Scatter(Writer):
    """A block of points, each of which adds to its element. The rows of the tile are the points."""

    def __init__(self, kernel: Kernel, buffers: Mapping[str, Buffer], machine: Machine) -> None:
        *self.asserted, self.step = kernel.steps
        blocks = choose_blocks(Kernel(self.step.red, ()), buffers, (), machine)
        super().__init__(kernel, buffers, self.step.red, blocks)

    def grid(self) -> tuple[str, ...]:
        return (self._blocked(self.rows, self.blocks.rows),)

    def write(self) -> None:
        parts = scatter_of(self.step)
        assert parts is not None, "not a scatter"
        tile = self._tile(self._row_points())
        for check in self.asserted:
            body = at(check.body, dict(zip(check.axes, map(lift, self.step.red), strict=False)))
            tile.check(tile.value(body), self.checks[check.out])
        value = tile.value(parts.value)
        places = [tile.value(place) for place in parts.places]
        tile.atomic(NAMES[self.step.kind], self.step.out, places, value)
        self.lines += tile.lines
