"""What all kernels share: the numbers of rows and inner points, their tiles, and what becomes of a step's value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from intarsia_loops.addresses import divides_axes, product
from intarsia_loops.index import Atom, IndexExpr, lift
from intarsia_loops.launches import NOTHING, Walk
from intarsia_loops.ops import identity_of
from intarsia_loops.program import Buffer, Kernel, Nest, Val
from intarsia_loops.rewrites import postorder
from intarsia_triton.index import index_text
from intarsia_triton.ops import constant
from intarsia_triton.tile import Points, Tile

__all__ = ["INDENT", "Writer", "divides"]

INDENT = "    "
# grids are 31-bit numbers, and so are the offsets of most tensors; beyond, addresses need 64 bits
LARGEST_32_BIT = 1 << 31
LARGEST_16_BIT = 1 << 16


class Writer:
    """Statements of one function. A program takes a block of rows: `x` is its tile of row numbers."""

    def __init__(self, kernel: Kernel, buffers: Mapping[str, Buffer], walk: Walk) -> None:
        self.kernel, self.buffers, self.walk = kernel, buffers, walk
        self.rows, blocks = walk.rows, walk.blocks
        self.blocks = blocks
        self.lines: list[str] = []
        self.number = "tl.program_id(0)"
        self.checks: Mapping[str, str] = NOTHING
        self.chunk = 0
        self.pointers: dict[str, str] = {}
        self.sizes = _sizes(kernel, buffers)
        self._divides = any(map(_is_divided, kernel.steps))
        self.policies: Mapping[str, str] = NOTHING
        self._scalars: dict[str, str] = {}
        self._inverses: dict[str, str] = {}
        self.by_tile: frozenset[str] = frozenset()
        self._alone = all(step.kind == "map" for step in kernel.steps) and len(kernel.writes()) == 1
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
            self.buffers, points, self._scalars, self.pointers, self._counter, self.policies, self._inverses,
            alone=self._alone,
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
            start: Name of where the lanes of each part start, a smaller tile: what is the same in all lanes of a part,
                such as a channel's number and weight, is then computed and loaded once for them.
        """
        names: dict[Atom, str] = {}
        below: IndexExpr = lift(1)
        for position in reversed(range(len(axes))):
            axis = axes[position]
            if len(axes) == 1:
                names[axis] = flat
                break
            number = start if start and divides(self.blocks.inner // self.blocks.parts, below) else flat
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
        known = product([a.extent for a in inner]).const()
        small = known is not None and known <= LARGEST_16_BIT
        return " + (tl.num_programs(2) - 1) * RBLOCK" if small and (len(inner) > 1 or self._divides) else ""

    def _wide(self) -> str:
        """Text that makes indices 64 bits wide: where offsets or numbers of points need it, and beside sizes."""
        points = [product([a.extent for a in (*s.axes, *s.red)]).const() or 0 for s in self.kernel.steps]
        largest = max((*map(_last_offset, self.buffers.values()), *points), default=0)
        return ".to(tl.int64)" if self.sizes or largest >= LARGEST_32_BIT else ""


def divides(block: int, extent: IndexExpr) -> bool:
    known = extent.const()
    return bool(known) and known % block == 0  # type: ignore[operator]  # None is falsy; so is 0, which needs masks


def _last_offset(buffer: Buffer) -> int:
    sizes = [(n.const(), s.const()) for n, s in zip(buffer.shape, buffer.strides, strict=True)]
    if any(n is None or s is None for n, s in sizes):
        return LARGEST_32_BIT
    return sum((n - 1) * s for n, s in sizes if n and s)  # type: ignore[operator]


def _sizes(kernel: Kernel, buffers: Mapping[str, Buffer]) -> tuple[str, ...]:
    """Return the size symbols that the kernel's text mentions, sorted."""
    found: set[str] = set()
    for step in kernel.steps:
        for a in (*step.axes, *step.red):
            found |= a.extent.symbols()
        for v in postorder(step.body):
            found |= {s for e in _indices(v) for s in e.symbols()}
        for name in (*step.reads(), step.out):
            if name in buffers:
                found |= {s for e in buffers[name].strides for s in e.symbols()}
    return tuple(sorted(found))


def _is_divided(step: Nest) -> bool:
    """Tell whether some position in a step's body is a quotient or a remainder, or is computed from one."""
    return any(divides_axes(e) for v in postorder(step.body) for e in _indices(v))


def _indices(v: Val) -> tuple[IndexExpr, ...]:
    """Return the index expressions that a value is written with."""
    if v.op == "index":
        return v.args
    return tuple(e for e in v.args[1] if isinstance(e, IndexExpr)) if v.op in ("load", "gather") else ()
