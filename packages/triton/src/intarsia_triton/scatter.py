"""Scatters: a launch that stores the initial value everywhere, and one in which every point adds to its element.

    y = f; for each point r: y[p(r)] += g(r)      →      y[i] = f(i);   atomic: y[p(r)] += g(r), for blocks of points

Additions of one element happen in any order: sums of floats differ in their last digits from run to run, as those of
eager's kernels on a GPU do. Side condition: the element type has an atomic operation of this kind that is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from intarsia_ir.errors import UnsupportedError
from intarsia_loops.ops import FLOATS
from intarsia_loops.program import Buffer, Kernel, const, scatter, scatter_of
from intarsia_triton.blocks import choose_blocks
from intarsia_triton.writer import Writer

__all__ = ["Scatter", "is_scatter", "scatter_launches"]

# what atomics there are for each element type
ATOMICS = {
    "f32": ("scatter_sum",),
    "f64": ("scatter_sum",),
    "i32": ("scatter_sum", "scatter_max", "scatter_min"),
    "i64": ("scatter_sum", "scatter_max", "scatter_min"),
}
NAMES = {"scatter_sum": "add", "scatter_max": "max", "scatter_min": "min"}


def is_scatter(kernel: Kernel) -> bool:
    """Tell whether a kernel is a scatter, which is its only step."""
    return len(kernel.steps) == 1 and scatter_of(kernel.steps[0]) is not None


def scatter_launches(kernel: Kernel) -> tuple[Kernel, Kernel]:
    """Return the kernel that stores the initial value, and the one whose points add to it.

    Args:
        kernel: A scatter. The second result is it without an initial value; its function does nothing about that.

    Raises:
        UnsupportedError: The element type has no such atomic operation.
    """
    (step,) = kernel.steps
    parts = scatter_of(step)
    assert parts is not None, "not a scatter"
    if step.kind not in ATOMICS.get(step.dtype, ()):
        raise UnsupportedError(f"{step.kind} of {step.dtype} has no Triton form", code="triton.atomic")
    start = replace(step, red=(), kind="map", body=parts.initial)
    nothing = const(0.0 if step.dtype in FLOATS else 0, step.dtype)
    return Kernel(step.axes, (start,)), Kernel((), (replace(step, body=scatter(nothing, parts.value, parts.places)),))


class Scatter(Writer):
    """A block of points, each of which adds to its element. The rows of the tile are the points."""

    def __init__(self, kernel: Kernel, buffers: Mapping[str, Buffer]) -> None:
        (self.step,) = kernel.steps
        blocks = choose_blocks(Kernel(self.step.red, ()), buffers, ())
        super().__init__(kernel, buffers, self.step.red, blocks)

    def grid(self) -> tuple[str, ...]:
        return (self._blocked(self.rows, self.blocks.rows),)

    def write(self) -> None:
        parts = scatter_of(self.step)
        assert parts is not None, "not a scatter"
        tile = self._tile(self._row_points())
        value = tile.value(parts.value)
        places = [tile.value(place) for place in parts.places]
        tile.atomic(NAMES[self.step.kind], self.step.out, places, value)
        self.lines += tile.lines
