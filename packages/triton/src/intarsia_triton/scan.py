"""Scans: a program walks the tiles of a row and carries what it has folded so far. Each is a kernel of its own.

    y[i, a] = fold of f(i, b) over b <= a

Few rows leave most of a GPU idle, so these are cut into chunks of L points, in three launches:

    t[k, i] = fold of f(i, b) over the points b of chunk k                    for each chunk that is full
    c[k, i] = fold of t[j, i] over j <= k                                     a scan of few points
    y[i, a] = c[k - 1, i] folded with f(i, b) over k L <= b <= a              for each chunk k

The last one is written as a scan with a map before it, which says what each chunk starts from.
"""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_ir.records import Machine
from intarsia_loops.index import Atom, lift, row_major
from intarsia_loops.ops import NEST_KINDS, identity_of
from intarsia_loops.program import Buffer, Kernel, Nest, Val, const, index_value, load, val
from intarsia_loops.rewrites import at
from intarsia_triton.blocks import Blocks, choose_blocks
from intarsia_triton.index import index_text, product
from intarsia_triton.plan import Loop
from intarsia_triton.split import IN_FLIGHT, Split, new_axis, new_name
from intarsia_triton.writer import INDENT, Writer, divides

__all__ = ["Scan", "is_scan", "scan_launches"]

# points of a chunk: several tiles, and few enough for every processor to have one
LONGEST_CHUNK = 8192
CHUNK = 4096  # where the length isn't known
TILES = 2


def is_scan(kernel: Kernel) -> bool:
    """Tell whether a kernel is a scan, which is its last step."""
    return bool(kernel.steps) and NEST_KINDS[kernel.steps[-1].kind].scan


def scan_launches(kernel: Kernel, buffers: Mapping[str, Buffer], machine: Machine) -> Split:
    """Return a scan as one launch, or as three where its rows are few and long.

    Args:
        kernel: A scan, which is its only step.
        buffers: Layout of every buffer in memory.
        machine: What it will run on.
    """
    (step,) = kernel.steps
    length = _chunk(step, buffers, machine)
    if not length:
        return Split((kernel,), {})
    (scanned,), others = step.red, _others(step, buffers)
    n_full, kind = scanned.extent // length, step.kind.removeprefix("cum")
    k, q = new_axis("k0", n_full, step.axes), new_axis("q0", lift(length), step.axes)
    total = Nest(
        new_name(f"{step.out}_totals", buffers),
        (k, *others),
        (q,),
        kind,
        at(step.body, {scanned: lift(k) * length + lift(q)}),
        step.body.dtype,
    )
    read = load(total.out, tuple(map(lift, total.axes)), total.dtype)
    running = Nest(new_name(f"{step.out}_before", buffers), total.axes, (k,), step.kind, read, total.dtype)
    start = _start(step, running, new_axis("k0", (scanned.extent + (length - 1)) // length, step.axes))
    shape = tuple(a.extent for a in total.axes)
    scratch = {one.out: Buffer(shape, row_major(shape), one.dtype) for one in (total, running)}
    first, last = Kernel(total.axes, (total,)), Kernel((), (start, step), frozenset({start.out}))
    return Split((first, Kernel((), (running,)), last), scratch)


def _start(step: Nest, running: Nest, k: Atom) -> Nest:
    """Return the map that says what each chunk of a scan starts from."""
    axes = (k, *running.axes[1:])
    before = load(running.out, (lift(k) - 1, *map(lift, axes[1:])), running.dtype)
    follows = val("lt", const(0, "i64"), index_value(lift(k)), dtype="b8")
    body = val("where", follows, before, _identity(step), dtype=running.dtype)
    return Nest(f"{running.out}_chunk", axes, (), "map", body, running.dtype)


def _chunk(step: Nest, buffers: Mapping[str, Buffer], machine: Machine) -> int:
    """Return the points of a chunk, a power of two; 0 where a program for each block of rows is enough."""
    n_rows, n = product([a.extent for a in _others(step, buffers)]).const(), step.red[0].extent.const()
    blocks = _blocks(step, buffers, machine)
    if not n_rows or n == 0 or blocks.persistent:
        return 0
    programs, shortest = -(-n_rows // blocks.rows), TILES * blocks.inner
    if programs >= machine.processors or (n is not None and n <= 2 * shortest):
        return 0
    return max(
        shortest,
        min(LONGEST_CHUNK, 1 << (n * programs // (IN_FLIGHT * machine.processors)).bit_length())
        if n is not None
        else CHUNK,
    )


def _others(step: Nest, buffers: Mapping[str, Buffer]) -> tuple[Atom, ...]:
    """Return the axes of the rows, in the order in which they lie in memory where that is known."""
    strides = {a: s.const() for a, s in zip(step.axes, buffers[step.out].strides, strict=True) if a not in step.red}
    return tuple(sorted(strides, key=lambda a: -(strides[a] or 0))) if None not in strides.values() else (*strides,)


def _blocks(step: Nest, buffers: Mapping[str, Buffer], machine: Machine) -> Blocks:
    return choose_blocks(Kernel(_others(step, buffers), (step,)), buffers, (Loop(step.red, (step,)),), machine)


def _identity(step: Nest) -> Val:
    return const(identity_of(step.kind, step.body.dtype), step.body.dtype)


class Scan(Writer):
    """A block of rows, or of chunks of rows, each with a walk along the scanned axis."""

    def __init__(self, kernel: Kernel, buffers: Mapping[str, Buffer], machine: Machine) -> None:
        *starts, self.step = kernel.steps
        (self.scanned,) = self.step.red
        rows = others = _others(self.step, buffers)
        self.first = _identity(self.step)
        self.chunk = 0
        for start in starts:
            rows = (new_axis("k0", start.axes[0].extent, self.step.axes), *others)
            self.first = at(start.body, dict(zip(start.axes, map(lift, rows), strict=True)))
            self.chunk = _chunk(self.step, buffers, machine)
        super().__init__(kernel, buffers, rows, _blocks(self.step, buffers, machine))
        self._alone = True  # each tile is for one body

    def grid(self) -> tuple[str, ...]:
        return (self._blocked(self.rows, self.blocks.rows),)

    def write(self) -> None:
        self.row_points = self._row_points()
        n, block = self.scanned.extent, self.blocks.inner
        if self.blocks.persistent:
            self.lines += self._step("", not divides(block, n), carries=False)
            return
        tile = self._tile(self.row_points)
        first = tile.value(self.first)
        self.lines += [*tile.lines, f"carry = tl.broadcast_to({first}, [XBLOCK, 1])"]
        known = n.const()
        if self.chunk:
            # rows outside are beyond the last chunk, so a mask of inner points leaves them out as well
            whole = divides(self.chunk, n) and divides(self.blocks.rows, product([a.extent for a in self.rows]))
            begin = f"{self.row_points.names[self.rows[0]]} * {self.chunk} + base + "
            self._tiles(str(self.chunk), begin, not whole)
        elif known is None:
            self._tiles(index_text(n, {}), "base + ", True)
        else:
            self._tiles(str(known // block * block), "base + ", False)
            if known % block:
                self.lines += self._step(f"{known // block * block} + ", True)

    def _tiles(self, end: str, begin: str, masked: bool) -> None:
        lines = self._step(begin, masked)
        self.lines += [f"for base in range(0, {end}, RBLOCK):", *(INDENT + line for line in lines)]

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
