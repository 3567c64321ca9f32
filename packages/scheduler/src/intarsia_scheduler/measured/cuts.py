"""When a kernel is worth more than one launch: rules from measurements on an H200.

Two reasons: few rows leave most of a GPU idle, and a long chain of additions in one register loses digits that a tree
keeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from intarsia_ir.dtypes import itemsize
from intarsia_ir.records import Machine
from intarsia_loops.addresses import product
from intarsia_loops.index import Atom
from intarsia_loops.program import Buffer, Kernel
from intarsia_scheduler.grid.loops import loops_of
from intarsia_scheduler.grid.scan import rows_of_scan
from intarsia_scheduler.grid.split import Cut, cut_steps
from intarsia_scheduler.measured.blocks import blocks_of
from intarsia_scheduler.measured.limits import below, most_programs

__all__ = ["chunk_of", "cut_of", "is_idle", "only_meet"]

# programs that keep a processor busy
IN_FLIGHT = 4
# the fewest points that are worth a program
SHORTEST = 128
# rows of a program whose lanes lie across rows, twice as many where each point is four bytes or more: where there are
# more parts than keep processors busy with such programs, folding them takes longer than they save (14 sums and batch
# norms, H200)
ACROSS = 64
# points of a part where the length isn't known
PART = 8192
# a guess of the size of a second axis of unknown size
UNKNOWN = 256
# points of a chunk of a scan: several tiles, and few enough for every processor to have one
LONGEST_CHUNK = 8192
CHUNK = 4096  # where the length isn't known
TILES = 2


def is_idle(kernel: Kernel, buffers: Mapping[str, Buffer], machine: Machine) -> bool:
    """Tell whether one program a block of rows leaves most of a GPU without work, while rows are walked again."""
    blocks = blocks_of(kernel, buffers, machine)
    if blocks.persistent:
        return False
    inner = next(loop.inner for loop in loops_of(kernel) if loop.inner)
    n_rows, n_inner = (product([a.extent for a in axes]).const() for axes in (kernel.rows, inner))
    if n_rows is None or n_inner is None:
        return False
    return n_inner >= 16 * SHORTEST and 0 < -(-n_rows // blocks.rows) < machine.processors


def only_meet(kernel: Kernel, buffers: Mapping[str, Buffer], machine: Machine) -> bool:
    """Tell whether rows and points of maps are one kernel because a size is the same, such as images and channels.

    What the rows make is computed again at each point, so a program a block of rows shares nothing; it takes its points
    in the order of their axes, where that of memory may be another one.
    """
    if any(step.kind != "map" for step in kernel.steps) or blocks_of(kernel, buffers, machine).persistent:
        return False
    inner = max((product([a.extent for a in loop.inner]).hi for loop in loops_of(kernel)), default=0)
    return inner >= 16 * SHORTEST


def cut_of(kernel: Kernel, buffers: Mapping[str, Buffer], machine: Machine) -> Cut | None:
    """Return how the reductions of a kernel are cut; None when it stays whole.

    Args:
        kernel: One of which `cut_steps` gives something.
        buffers: Layout of every buffer in memory.
        machine: What it will run on.
    """
    blocks = blocks_of(kernel, buffers, machine)
    if blocks.persistent:
        return None
    red = cut_steps(kernel)[0].red
    n_rows = product([a.extent for a in kernel.rows]).const()
    programs = -(-n_rows // blocks.rows) if n_rows is not None else None
    n_inner, outer = product([a.extent for a in red]).const(), red[0].extent.const()
    if n_inner is None or outer is None:
        return _cut_unknown(red, blocks.rows) if programs is None or 0 < programs < machine.processors else None
    if (
        n_rows is None
        or programs is None
        or not 0 < programs < IN_FLIGHT * machine.processors
        or n_inner < 16 * SHORTEST
    ):
        return None
    read = [itemsize(buffers[name].dtype) for name in kernel.reads() if name in buffers]
    across = 2 * ACROSS if max(read, default=0) >= 4 else ACROSS
    busy = IN_FLIGHT * below(machine.processors) * across // n_rows
    most = min(most_programs(machine) // programs, n_inner // SHORTEST, max(1, busy))
    n_parts = max((d for d in range(1, min(outer, most) + 1) if outer % d == 0), default=1)
    return Cut(0, outer // n_parts) if n_parts > 1 else None


def _cut_unknown(red: Sequence[Atom], block: int) -> Cut | None:
    """Return how a reduction over a size that isn't known is cut: a part is enough work for a program.

    Where there is less than a part, all is left over, and the first launch has no program.
    """
    if product([a.extent for a in red]).hi < 16 * SHORTEST:
        return None
    position = next(k for k, a in enumerate(red) if a.extent.const() is None)
    others = math.prod(a.extent.const() or UNKNOWN for k, a in enumerate(red) if k != position)
    length = max(1, PART // (block * others))
    return Cut(position, 1 << length.bit_length() - 1)


def chunk_of(kernel: Kernel, buffers: Mapping[str, Buffer], machine: Machine) -> int:
    """Return the points of a chunk of a scan, a power of two; 0 where a program a block of rows is enough."""
    step = kernel.steps[-1]
    n_rows, n = product([a.extent for a in rows_of_scan(step, buffers)]).const(), step.red[0].extent.const()
    blocks = blocks_of(kernel, buffers, machine)
    if not n_rows or n == 0 or blocks.persistent:
        return 0
    programs, shortest = -(-n_rows // blocks.rows), TILES * blocks.inner
    if programs >= machine.processors or (n is not None and n <= 2 * shortest):
        return 0
    if n is None:
        return max(shortest, CHUNK)
    even: int = 1 << (n * programs // (IN_FLIGHT * machine.processors)).bit_length()
    return max(shortest, min(LONGEST_CHUNK, even))
