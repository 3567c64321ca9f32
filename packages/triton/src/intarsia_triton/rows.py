"""Rows, each with a walk over inner points: in one tile that holds the row, or tile by tile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from intarsia_loops.addresses import product
from intarsia_loops.index import lift
from intarsia_loops.launches import ExpSum, Loop, Shift, SquareSum
from intarsia_loops.ops import identity_of
from intarsia_loops.program import Nest
from intarsia_triton.index import index_text
from intarsia_triton.ops import TYPES, constant, inverse_name
from intarsia_triton.tile import Points, Tile
from intarsia_triton.writer import INDENT, Writer, divides

__all__ = ["Rows"]

# Names of what a tile computes for itself. A smaller tile has others: a loop takes a name that was assigned before it
# for a variable that it carries, and those keep their shape.
_OF_A_TILE = re.compile(r"\b(lane|r|rmask|value|at|wins|inside|size|middle|apart|part|delta|largest|finite)\b")


class Rows(Writer):
    """Rows, each with a walk over inner points: in one tile that holds the row, or tile by tile."""

    def write(self) -> None:
        """Write the row indices, then each loop."""
        self.row_points = self._row_points()
        if self.blocks.persistent:
            self._persistent(self.walk.loops)
            return
        for loop in self.walk.loops:
            if loop.inner:
                self._walk(loop)
            else:
                self._straight(loop, self._tile(self.row_points))

    # ---- one tile ----------------------------------------------------------------------------------------------

    def _persistent(self, loops: Sequence[Loop]) -> None:
        """All steps over one tile that spans the inner range: every load is done once."""
        inner = next(loop.inner for loop in loops if loop.inner)
        self.lines.append(f"r = (tl.arange(0, RBLOCK)[None, :]{self._nothing(inner)}){self._wide()}")
        masked = not divides(self.blocks.inner, product([a.extent for a in inner]))
        points = self._with_inner(self.row_points, inner, masked, self.lines)
        tile, rows = self._tile(points), self._tile(self.row_points)
        for loop in loops:
            if not loop.inner:
                self._straight(loop, rows)
                continue
            for step in loop.steps:
                self._whole_step(step, tile)
            self.lines += tile.lines
            tile.lines = []

    def _whole_step(self, step: Nest, tile: Tile) -> None:
        value = tile.value(step.body)
        if step.kind == "map":
            self._write(tile, step, value)
            return
        filled = self._filled(step, value, tile.points.inner_mask)
        scalar = f"s_{step.out}"
        if step.kind in ("argmax", "argmin"):
            at = "tl.broadcast_to(r, [XBLOCK, RBLOCK])"
            tile.lines.append(f"_, {scalar} = tl.reduce(({filled}, {at}), 1, better_{step.kind[3:]})")
            tile.lines.append(f"{scalar} = {scalar}.to(tl.int64)")
        else:
            tile.lines.append(f"{scalar} = tl.reduce({filled}, 1, fold_{step.kind})")
        tile.lines.append(f"{scalar} = {scalar}[:, None]")
        self._keep(step, scalar, tile.lines)

    # ---- tile by tile ------------------------------------------------------------------------------------------

    def _walk(self, loop: Loop) -> None:
        """Walk the inner range: full tiles without a mask, then what is left."""
        reductions = [s for s in loop.steps if s.kind != "map"]
        self.policies, self.by_tile, self.by_part = dict(loop.keep), loop.by_tile, loop.by_part
        for step in (*reductions, *(s.step for s in loop.sums)):
            self.lines += self._accumulators(step)
        for s in loop.sums:
            least = constant(float("-inf"), s.exponent.dtype)
            self.lines.append(f"base_{s.step.out} = tl.broadcast_to({least}, {self.lanes})")
        for q in loop.squares:
            zeros = f"tl.zeros({self.lanes}, {TYPES[q.value.dtype]})"
            self.lines.append(f"acc_{q.step.out}, mean_{q.step.out} = {zeros}, {zeros}")
            self.lines.append(f"n_{q.step.out} = {constant(0.0, q.value.dtype)}")
        if loop.shift is not None:
            self._shifted_tiles(loop, loop.shift)
        else:
            self._tiles(loop)
        for step in reductions:
            self._finish(step)
        for s in loop.sums:
            self._finish_sum(s)
        for q in loop.squares:
            self._finish_squares(q)

    def _tiles(self, loop: Loop) -> None:
        """Full tiles without a mask, then what is left; with a mask always where the extent is a symbol."""
        extent, block = product([a.extent for a in loop.inner]), self.blocks.inner
        constant = extent.const()
        if constant is None:
            self.lines.append(f"for base in {self._range(index_text(extent, {}), 'RBLOCK')}:")
            self.lines += [INDENT + line for line in self._body(loop, masked=True)]
            return
        self._full_tiles(constant // block, self._body(loop, masked=False), backwards=loop.back)
        if constant % block:
            self.lines += [f"base = {constant // block * block}", *self._body(loop, masked=True)]

    def _full_tiles(self, n: int, body: list[str], *, backwards: bool) -> None:
        if n:
            number = f"({n - 1} - tile)" if backwards else "tile"
            self.lines.append(f"for tile in {self._range(str(n))}:")
            self.lines += [INDENT + line for line in (f"base = {number} * RBLOCK", *body)]

    def _shifted_tiles(self, loop: Loop, shift: Shift) -> None:
        """Tiles from the first aligned point on, one that ends at an aligned point, and the points around these."""
        (inner,) = loop.inner
        extent, block, n = inner.extent.const() or 0, self.blocks.inner, shift.points
        # numbers, not tiles: the hints would be lost on tiles of one element
        self.lines.append(f"row = {self.number}{self._wide()}")
        start = index_text(shift.start, self._unflatten("row", self.rows, self.lines))
        self.lines += [
            f"head = ({n} - ({start}) % {n}) % {n}",
            f"begin = tl.multiple_of({start} + head, {n})",
            f"end = tl.multiple_of(({extent} - head) // {n} * {n}, {n})",
        ]
        aligned = {shift.start + lift(inner): f"(begin + lane + tl.zeros({self.tile}, tl.int32))"}
        lines = [f"lane = base + {self._lanes()}", f"r = (head + lane{self._nothing(loop.inner)}){self._wide()}"]
        points = replace(self._with_inner(self.row_points, loop.inner, False, lines), aligned=aligned)
        n_full = (extent - n + 1) // block
        self._full_tiles(n_full, self._steps(loop, points, lines), backwards=loop.back)
        last = replace(points, inner_mask="rmask")
        lines.append("rmask = lane < end")
        self.lines += [f"base = {n_full * block}", *self._steps(loop, last, lines)]
        self.parts, tile, self.tile = 1, self.tile, self.lanes
        lines = [f"lane = tl.arange(0, RBLOCK // {self.blocks.parts})[None, :]"]
        lines.append(f"r = (tl.where(lane < head, lane, lane + end){self._nothing(loop.inner)}){self._wide()}")
        around = replace(self._with_inner(self.row_points, loop.inner, False, lines), inner_mask="rmask")
        lines.append(f"rmask = lane < {extent} - end")
        self.lines += [_OF_A_TILE.sub(r"\1_around", line) for line in self._steps(loop, around, lines)]
        self.parts, self.tile = self.blocks.parts, tile

    def _lanes(self) -> str:
        lanes = f"tl.arange(0, RBLOCK // {self.parts})[None, :]"
        return lanes if self.parts == 1 else f"tl.arange(0, {self.parts})[:, None] * (RBLOCK // {self.parts}) + {lanes}"

    def _body(self, loop: Loop, *, masked: bool) -> list[str]:
        lines = [f"r = (base + {self._lanes()}{self._nothing(loop.inner)}){self._wide()}"]
        start = "" if masked or self.parts == 1 else "start"  # a mask has the shape of the whole tile
        if start and len(loop.inner) > 1:
            parts = f"tl.arange(0, {self.parts})[:, None] * (RBLOCK // {self.parts})"
            lines.append(f"start = (base + {parts}{self._nothing(loop.inner)}){self._wide()}")
        points = self._with_inner(self.row_points, loop.inner, masked, lines, start)
        return self._steps(loop, points, lines)

    def _steps(self, loop: Loop, points: Points, lines: list[str]) -> list[str]:
        """Return the statements of one tile, after those in `lines`."""
        tile = self._tile(points)
        for s in loop.sums:
            self._exp_sum(s, tile)
        for q in loop.squares:
            self._squares(q, tile)
        for step in loop.steps:
            self._inner_step(step, tile)
        return [*lines, *tile.lines]

    def _exp_sum(self, s: ExpSum, tile: Tile) -> None:
        """Add a tile to a sum of exponentials, which each lane keeps relative to the largest value it has seen.

        A lane that has seen none yet is relative to minus infinity, not to 0: that may be far above all values.
        """
        value = f"tl.broadcast_to({tile.value(s.exponent)}, {self.tile})"
        mask, acc, base = tile.points.inner_mask, f"acc_{s.step.out}", f"base_{s.step.out}"
        if mask:
            value = f"tl.where({mask}, {value}, {constant(float('-inf'), s.exponent.dtype)})"
        tile.lines += [
            f"value = {value}",
            f"largest = fold_max(acc_{s.top}, {self._folded('value', 'max')})",
            'finite = tl.where(tl.abs(largest) == float("inf"), 0.0, largest)',
            f"{acc} = {acc} * tl.exp({base} - finite) + {self._folded('tl.exp(value - finite)', 'sum')}",
            f"{base} = largest",
        ]

    def _squares(self, q: SquareSum, tile: Tile) -> None:
        """Merge the squared distances of a tile, from the mean of each lane's points, with those so far."""
        name, dtype, mask = q.step.out, TYPES[q.value.dtype], tile.points.inner_mask
        acc, mean, n = f"acc_{name}", f"mean_{name}", f"n_{name}"
        lines = [f"value = tl.broadcast_to({tile.value(q.value)}, {self.tile})"]
        if mask:
            lines += [
                f"inside = tl.broadcast_to({mask}, {self.tile})",
                f"size = {self._folded(f'inside.to({dtype})', 'sum')}",
                f"middle = {self._folded('tl.where(inside, value, 0)', 'sum')} / tl.where(size == 0, 1, size)",
                "apart = tl.where(inside, value - middle, 0)",
                f"part = tl.where({n} + size == 0, 0, size / tl.where({n} + size == 0, 1, {n} + size))",
            ]
        else:
            lines += [
                f"size = {constant(float(self.parts), q.value.dtype)}",
                f"middle = {self._folded('value', 'sum')} * {1.0 / self.parts}",
                "apart = value - middle",
                f"part = size / ({n} + size)",
            ]
        lines += [
            f"delta = middle - {mean}",
            f"{acc} = {acc} + {self._folded('apart * apart', 'sum')} + delta * delta * ({n} * part)",
            f"{mean} = {mean} + delta * part",
            f"{n} = {n} + size",
        ]
        tile.lines += lines

    def _finish_squares(self, q: SquareSum) -> None:
        """Take the lanes' squares from the common point, and add them."""
        name, scalar, tile = q.step.out, f"s_{q.step.out}", self._tile(self.row_points)
        shift = tile.value(q.shift)
        self.lines += tile.lines
        self.lines.append(f"delta = tl.where(n_{name} == 0, 0, mean_{name} - {shift})")
        self.lines.append(f"{scalar} = tl.reduce(acc_{name} + n_{name} * delta * delta, 1, fold_sum)[:, None]")
        self._keep(q.step, scalar, self.lines)

    def _folded(self, value: str, kind: str) -> str:
        """Return the text of a tile reduced to one value a lane; each thread has the parts of its lanes."""
        return value if self.parts == 1 else f"tl.reduce({value}, 0, fold_{kind})[None, :]"

    def _finish_sum(self, s: ExpSum) -> None:
        """Bring the lanes' sums to the common base, and add them."""
        acc, scalar, tile = f"acc_{s.step.out}", f"s_{s.step.out}", self._tile(self.row_points)
        shift = tile.value(s.shift)
        self.lines += tile.lines
        self.lines.append(f"{acc} = {acc} * tl.exp(base_{s.step.out} - {shift})")
        self.lines.append(f"{scalar} = tl.reduce({acc}, 1, fold_sum)[:, None]")
        self._keep(s.step, scalar, self.lines)

    def _accumulators(self, step: Nest) -> list[str]:
        acc, kind, dtype = f"acc_{step.out}", step.kind, step.body.dtype
        kind = kind[3:] if kind in ("argmax", "argmin") else kind
        lines = [f"{acc} = tl.broadcast_to({constant(identity_of(kind, dtype), dtype)}, {self.lanes})"]
        if step.out in self.by_tile:
            lines.append(f"{acc}_tile = tl.zeros({self.lanes}, tl.int32)")
        elif kind != step.kind:
            # an index beyond all others: the first point wins even where it is the worst value
            lines.append(f"{acc}_at = tl.broadcast_to({self._beyond()}, {self.lanes})")
        return lines

    def _beyond(self) -> str:
        """Return an index that is larger than all others."""
        return constant((1 << 63) - 1, "i64") if self._wide() else "tl.full([1, 1], 2147483647, tl.int32)"

    def _inner_step(self, step: Nest, tile: Tile) -> None:
        value = tile.value(step.body)
        mask, acc = tile.points.inner_mask, f"acc_{step.out}"
        if step.kind == "map":
            self._write(tile, step, value)
        elif step.out in self.by_tile:
            kind = step.kind[3:]
            tile.lines += [
                f"value = {self._folded(self._filled(step, value, mask), kind)}",
                f"wins = beyond_{kind}(value, {acc})",
                f"{acc} = tl.where(wins, value, {acc})",
                f"{acc}_tile = tl.where(wins, base // RBLOCK, {acc}_tile)",
            ]
        elif step.kind in ("argmax", "argmin"):
            kind = step.kind[3:]
            tile.lines += [f"value = {self._filled(step, value, mask)}", f"at = tl.broadcast_to(r, {self.tile})"]
            if self.parts > 1:
                tile.lines.append(f"value, at = tl.reduce((value, at), 0, better_{kind})")
                tile.lines.append("value, at = value[None, :], at[None, :]")
            tile.lines.append(f"wins = first_{kind}(value, {acc}, at < {acc}_at)")
            tile.lines.append(f"{acc}, {acc}_at = tl.where(wins, value, {acc}), tl.where(wins, at, {acc}_at)")
        else:
            part = self._folded(self._filled(step, value, mask), step.kind)
            tile.lines.append(f"{acc} = fold_{step.kind}({acc}, {part})")

    def _straight(self, loop: Loop, tile: Tile) -> None:
        """Steps that have one point a row; a reduction over nothing is its body."""
        for step in loop.steps:
            value = tile.value(step.body)
            if step.kind != "map":
                self._scalars[step.out] = value
            if step.out not in self.given.local:
                self._write(tile, step, value)
        self.lines += tile.lines
        tile.lines = []

    def _finish(self, step: Nest) -> None:
        """Reduce the accumulators to a row scalar, and store it where it is wanted."""
        acc, scalar = f"acc_{step.out}", f"s_{step.out}"
        if step.out in self.by_tile:
            self._search(step)
        elif step.kind in ("argmax", "argmin"):
            self.lines.append(f"_, {scalar} = tl.reduce(({acc}, {acc}_at), 1, better_{step.kind[3:]})")
            self.lines.append(f"{scalar} = {scalar}.to(tl.int64)")
        else:
            self.lines.append(f"{scalar} = tl.reduce({acc}, 1, fold_{step.kind})")
        self.lines.append(f"{scalar} = {scalar}[:, None]")
        self._keep(step, scalar, self.lines)

    def _search(self, step: Nest) -> None:
        """Find where the extremum is: in the first tile of any lane that has it, which is read once more.

        Keeping the tile's number costs an instruction a lane, keeping an index several a point: 333 us instead of 278
        for rows of 32768 floats on an H200, of a floor of 252.
        """
        acc, kind, constant = f"acc_{step.out}", step.kind[3:], product([a.extent for a in step.red]).const()
        lines = [
            f"best = tl.reduce({acc}, 1, fold_{kind})[:, None]",
            f"number = tl.where(same({acc}, best), {acc}_tile, {(constant or 0) // self.blocks.inner + 1})",
            "base = tl.reduce(number, 1, fold_min)[:, None] * RBLOCK",
            f"r = (base + {self._lanes()}{self._nothing(step.red)}){self._wide()}",
        ]
        points = self._with_inner(self.row_points, step.red, bool(constant and constant % self.blocks.inner), lines)
        tile = self._tile(points)
        value = f"tl.broadcast_to({tile.value(step.body)}, {self.tile})"
        matches = f"same({value}, best)" + (f" & {points.inner_mask}" if points.inner_mask else "")
        self.lines += [*lines, *tile.lines, f"at = {self._folded(f'tl.where({matches}, r, {self._beyond()})', 'min')}"]
        self.lines.append(f"s_{step.out} = tl.reduce(at, 1, fold_min).to(tl.int64)")

    def _keep(self, step: Nest, scalar: str, lines: list[str]) -> None:
        """Remember a row scalar, and store it when others want it."""
        self._scalars[step.out] = scalar
        if step.out in self.walk.weights and step.dtype == "f32":
            lines.append(f"{inverse_name(step.out)} = tl.div_rn(1.0, {scalar})")
        if step.out not in self.given.local:
            tile = self._tile(self.row_points)
            tile.store(step.out, tuple(map(lift, step.axes)), scalar)
            lines += tile.lines
