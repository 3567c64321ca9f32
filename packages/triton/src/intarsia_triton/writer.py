"""What all kernels share: the numbers of rows and inner points, their tiles, and what becomes of a step's value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from intarsia_loops.addresses import divides_axes, indices_of, product
from intarsia_loops.grid import GridWalk
from intarsia_loops.index import Atom, IndexExpr, lift
from intarsia_loops.launches import NOTHING
from intarsia_loops.ops import identity_of
from intarsia_loops.program import Buffer, Nest
from intarsia_loops.rewrites import postorder
from intarsia_triton.index import index_text
from intarsia_triton.ops import constant
from intarsia_triton.tile import Points, Tile

__all__ = ["INDENT", "Writer", "divides"]

INDENT = "    "
LARGEST_16_BIT = 1 << 16


class Writer:
    """Statements of one function. A program takes a block of rows: `x` is its tile of row numbers."""

    def __init__(self, given: GridWalk, buffers: Mapping[str, Buffer]) -> None:
        self.given, self.buffers, self.walk = given, buffers, given.walk
        self.rows, blocks = self.walk.rows, self.walk.blocks
        self.blocks = blocks
        self.lines: list[str] = []
        self.number = "tl.program_id(0)"
        self.checks = dict(given.asserts)
        self.pointers: dict[str, str] = {}
        self.sizes = _sizes(given, buffers) if self.walk.wide else ()  # numbers beside a size are wide
        self._divides = any(divides_axes(e) for body in given.bodies() for v in postorder(body) for e in indices_of(v))
        self.policies: Mapping[str, str] = NOTHING
        self._scalars: dict[str, str] = {}
        self.by_tile: frozenset[str] = frozenset()
        self.by_part: frozenset[Atom] = frozenset()
        steps = [step for step in given.steps() if step.out not in given.local]
        self._alone = all(step.kind == "map" for step in given.steps()) and len(steps) == 1
        self._counter = [0]
        self.parts = blocks.parts
        lanes = f"RBLOCK // {blocks.parts}"
        self.tile = "[XBLOCK, RBLOCK]" if blocks.parts == 1 else f"[{blocks.parts}, {lanes}]"
        self.lanes = "[XBLOCK, RBLOCK]" if blocks.parts == 1 else f"[1, {lanes}]"

    def grid(self) -> tuple[str, ...]:
        """Return how many programs there are in each dimension, as text over the size symbols."""
        return (self._blocked(self.rows, self.blocks.rows),)

    def _blocked(self, axes: Sequence[Atom], block: int) -> str:
        n = index_text(product([a.extent for a in axes]), {})
        return f"({n} + {block - 1}) // {block}"

    def _range(self, end: str, step: str = "") -> str:
        """Return what a loop over tiles counts through; with several stages, tiles to come are loaded ahead."""
        bounds = f"0, {end}" + (f", {step}" if step else "")
        stages = self.blocks.stages
        return f"range({bounds})" if stages == 1 else f"tl.range({bounds}, num_stages={stages})"

    def _row_points(self) -> Points:
        """Write the row indices and return the points of a tile `[XBLOCK, 1]`."""
        n_rows = product([a.extent for a in self.rows])
        self.lines.append(f"x = {self.number}{self._wide()} * XBLOCK + tl.arange(0, XBLOCK)[:, None]")
        mask = "" if divides(self.blocks.rows, n_rows) else "xmask"
        if mask:
            self.lines.append(f"xmask = x < {index_text(n_rows, {})}")
        names, flat = self._unflatten("x", self.rows, self.lines), self._flat("x", self.rows)
        return Points(names, row_mask=mask, flat=flat, ranges={tuple(self.rows): "x"})

    def _with_inner(
        self, points: Points, inner: Sequence[Atom], masked: bool, lines: list[str], start: str = ""
    ) -> Points:
        """Write the inner indices from `r` and return the points of a tile `[XBLOCK, RBLOCK]`."""
        if masked:
            lines.append(f"rmask = r < {index_text(product([a.extent for a in inner]), {})}")
        names = {**points.names, **self._unflatten("r", inner, lines, start)}
        flat = {**points.flat, **self._flat("r", inner)}
        ranges, mask = {**points.ranges, tuple(inner): "r"}, "rmask" if masked else ""
        return Points(names, frozenset(inner), points.row_mask, mask, self.tile, flat, ranges)

    def _tile(self, points: Points) -> Tile:
        return Tile(
            self.buffers, points, self._scalars, self.pointers, self._counter, self.policies, alone=self._alone,
        )  # fmt: skip

    def _write(self, tile: Tile, step: Nest, value: str) -> None:
        """Store the value of a step, or assert it."""
        if step.out in self.checks:
            tile.check(value, self.checks[step.out])
        else:
            tile.store(step.out, tuple(map(lift, step.axes)), value)

    def _filled(self, step: Nest, value: str, mask: str) -> str:
        """Return a value with the kind's neutral element in the points outside."""
        whole = f"tl.broadcast_to({value}, {self.tile})"
        kind = step.kind[3:] if step.kind in ("argmax", "argmin") else step.kind
        neutral = constant(identity_of(kind, step.body.dtype), step.body.dtype)
        return f"tl.where({mask}, {whole}, {neutral})" if mask else whole

    def _unflatten(self, flat: str, axes: Sequence[Atom], lines: list[str], start: str = "") -> dict[Atom, str]:
        """Write the index of each axis from a row-major number; a lone axis is the number itself.

        Args:
            flat: Name of the number.
            axes: Outermost first.
            lines: Grows.
            start: Name of where the lanes of each part start, a smaller tile, which the axes that are the same for all
                of them are computed from; "": they are computed for each.
        """
        names: dict[Atom, str] = {}
        below: IndexExpr = lift(1)
        for position in reversed(range(len(axes))):
            axis = axes[position]
            if len(axes) == 1:
                names[axis] = flat
                break
            number = start if start and axis in self.by_part else flat
            text = number if below is lift(1) else f"({number} // ({index_text(below, {})}))"
            if position:
                text = f"{text} % ({index_text(axis.extent, {})})"
            names[axis] = f"{flat}{position}"
            lines.append(f"{names[axis]} = {text}")
            below = below * axis.extent
        return names

    def _flat(self, flat: str, axes: Sequence[Atom]) -> dict[Atom, str]:
        """Return the axis that a row-major number has the same remainder as."""
        return {axes[-1]: flat} if axes else {}

    def _nothing(self, inner: Sequence[Atom]) -> str:
        """Text that adds 0 to a number that is to be divided, which LLVM can't tell.

        Knowing that a number is small it divides and compares in 16 bits, and of such code ptxas makes a wrong
        comparison: with 31 rows of 300 in one tile, `1 + r // 300 < r % 300` was true for equal numbers (CUDA 13.0).
        """
        constant = product([a.extent for a in inner]).const()
        small = constant is not None and constant <= LARGEST_16_BIT
        return " + (tl.num_programs(2) - 1) * RBLOCK" if small and (len(inner) > 1 or self._divides) else ""

    def _wide(self) -> str:
        """Text that makes indices 64 bits wide, where they are."""
        return ".to(tl.int64)" if self.walk.wide else ""


def divides(block: int, extent: IndexExpr) -> bool:
    constant = extent.const()
    return bool(constant) and constant % block == 0  # type: ignore[operator]  # None is falsy; so is 0, which needs masks


def _sizes(given: GridWalk, buffers: Mapping[str, Buffer]) -> tuple[str, ...]:
    """Return the size symbols that the text mentions, sorted."""
    extents = [a.extent for step in given.steps() for a in (*step.axes, *step.red)]
    numbers = [e for body in given.bodies() for v in postorder(body) for e in indices_of(v)]
    names = {v.args[0] for body in given.bodies() for v in body.loads}.union(s.out for s in given.steps())
    strides = [s for name in names if name in buffers for s in buffers[name].strides]
    return tuple(sorted({symbol for e in (*extents, *numbers, *strides) for symbol in e.symbols()}))
