"""Scans: a program walks the tiles of a row, or of a chunk of it, and carries what it has folded so far."""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_loops.addresses import product
from intarsia_loops.grid import GridWalk
from intarsia_loops.index import lift
from intarsia_loops.ops import identity_of
from intarsia_loops.program import Buffer, const
from intarsia_triton.index import index_text
from intarsia_triton.writer import INDENT, Writer, divides

__all__ = ["Scan"]


class Scan(Writer):
    """A block of rows, or of chunks of rows, each with a walk along the scanned axis."""

    def __init__(self, given: GridWalk, buffers: Mapping[str, Buffer]) -> None:
        super().__init__(given, buffers)
        *starts, self.step = given.steps()
        (self.scanned,) = self.step.red
        self.chunk = given.chunk
        nothing = const(identity_of(self.step.kind, self.step.body.dtype), self.step.body.dtype)
        self.first = starts[0].body if starts else nothing
        self._alone = True  # each tile is for one body

    def write(self) -> None:
        self.row_points = self._row_points()
        n, block = self.scanned.extent, self.blocks.inner
        if self.blocks.persistent:
            self.lines += self._step("", not divides(block, n), carries=False)
            return
        tile = self._tile(self.row_points)
        first = tile.value(self.first)
        self.lines += [*tile.lines, f"carry = tl.broadcast_to({first}, [XBLOCK, 1])"]
        constant = n.const()
        if self.chunk:
            # rows outside are beyond the last chunk, so a mask of inner points leaves them out as well
            whole = divides(self.chunk, n) and divides(self.blocks.rows, product([a.extent for a in self.rows]))
            begin = f"{self.row_points.names[self.rows[0]]} * {self.chunk} + base + "
            self._tiles(str(self.chunk), begin, not whole)
        elif constant is None:
            self._tiles(index_text(n, {}), "base + ", True)
        else:
            self._tiles(str(constant // block * block), "base + ", False)
            if constant % block:
                self.lines += self._step(f"{constant // block * block} + ", True)

    def _tiles(self, end: str, begin: str, masked: bool) -> None:
        lines = self._step(begin, masked)
        self.lines += [f"for base in {self._range(end, 'RBLOCK')}:", *(INDENT + line for line in lines)]

    def _step(self, begin: str, masked: bool, *, carries: bool = True) -> list[str]:
        """Return the statements of one tile.

        Args:
            begin: Text that is added to the number of a lane.
            masked: Whether some lanes may be outside.
            carries: Whether other tiles come before and after it.
        """
        lines = [f"r = ({begin}tl.arange(0, RBLOCK)[None, :]{self._nothing((self.scanned,))}){self._wide()}"]
        tile = self._tile(self._with_inner(self.row_points, (self.scanned,), masked, lines))
        fold = f"fold_{self.step.kind.removeprefix('cum')}"
        tile.lines.append(f"value = {self._filled(self.step, tile.value(self.step.body), tile.points.inner_mask)}")
        result = f"tl.associative_scan(value, 1, {fold})"
        if carries:
            result = f"{fold}(carry, {result})"
        tile.store(self.step.out, tuple(map(lift, self.step.axes)), result)
        if carries:
            tile.lines.append(f"carry = {fold}(carry, tl.reduce(value, 1, {fold})[:, None])")
        return [*lines, *tile.lines]
