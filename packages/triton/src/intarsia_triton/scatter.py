"""Scatters: every point of a block folds into its element, atomically and in any order."""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_loops.index import lift
from intarsia_loops.launches import Walk
from intarsia_loops.program import Buffer, Kernel, scatter_of
from intarsia_loops.rewrites import at
from intarsia_triton.writer import Writer

__all__ = ["Scatter"]

NAMES = {"scatter_sum": "add", "scatter_max": "max", "scatter_min": "min"}


class Scatter(Writer):
    """A block of points, each of which adds to its element. The rows of the tile are the points."""

    def __init__(self, kernel: Kernel, buffers: Mapping[str, Buffer], walk: Walk) -> None:
        super().__init__(kernel, buffers, walk)
        *self.asserted, self.step = kernel.steps

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
