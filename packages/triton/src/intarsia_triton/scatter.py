"""Scatters: every point of a block folds into its element, atomically and in any order."""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_loops.grid import GridWalk
from intarsia_loops.program import Buffer, scatter_of
from intarsia_triton.writer import Writer

__all__ = ["Scatter"]

NAMES = {"scatter_sum": "add", "scatter_max": "max", "scatter_min": "min"}


class Scatter(Writer):
    """A block of points, each of which adds to its element. The rows of the tile are the points."""

    def __init__(self, given: GridWalk, buffers: Mapping[str, Buffer]) -> None:
        super().__init__(given, buffers)
        *self.asserted, self.step = given.steps()

    def write(self) -> None:
        parts = scatter_of(self.step)
        assert parts is not None, "not a scatter"
        tile = self._tile(self._row_points())
        for check in self.asserted:
            tile.check(tile.value(check.body), self.checks[check.out])
        value = tile.value(parts.value)
        places = [tile.value(place) for place in parts.places]
        tile.atomic(NAMES[self.step.kind], self.step.out, places, value)
        self.lines += tile.lines
