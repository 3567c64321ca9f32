"""The shape of a kernel's tile: how many rows and inner points a program holds, in how many warps.

Rules, from measurements on an H200 (bandwidth of each form against the parameters):
  1. A row that fits the registers of a block is loaded once and reduced there ("persistent").
  2. A longer row is walked in tiles of 8192 points and more, a few of them in each thread, which reduces these first:
     per point that costs one exponential, not two. What is read again comes from the L2 cache.
  3. Pointwise kernels take 8 to 16 points a thread, without a loop.
  4. A pointwise kernel whose buffers run along different axes gets a square tile, so that both run along memory.
  5. A window, a few points around each of the rows', is folded point by point: a tile of windows leaves lanes idle,
     and doesn't load together what lies side by side in memory. Few windows a program where those run along memory.
  6. A walk over an element function with a slow path (a sine of any number) takes fewer points a thread: the registers
     of the slow paths of 16 points don't fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from intarsia_ir.dtypes import itemsize
from intarsia_ir.records import Machine
from intarsia_loops.addresses import address, product
from intarsia_loops.index import Atom, IndexExpr, lift
from intarsia_loops.launches import Blocks, Loop
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Val
from intarsia_loops.rewrites import postorder
from intarsia_scheduler.grid.loops import is_scan, is_scatter, loops_of
from intarsia_scheduler.grid.scan import rows_of_scan
from intarsia_scheduler.measured.limits import below, longest_row, most_warps

__all__ = ["SQUARE", "across", "blocks_of", "flat_points", "memory_order", "trailing"]

# points of a tile that 128 threads hold in 16 registers each
TILE = 2048
# points of a row that is scanned in one tile
LONGEST_SCAN = 4096
# a longer row: 16 bytes a load, and tiles of several loads a thread
LONG_WARPS = 16
PARTS = 4
# what has a slow path, for large numbers: a reduction by a table, or a long division
SLOW = frozenset({"sin", "cos", "tan", "fmod", "mod", "floordiv"})
SQUARE = 64
# elements side by side in memory that make a cache line worth fetching: half of one of floats
LEAST_ACROSS = 16
# points of the largest window that is folded point by point; windows of a program: along memory, and across it
WINDOW = 32
WINDOWS = (256, 1024)
# points of a row of unknown length
GUESS = 1024
# fewer points than a tile for each processor are spread over all of them, one point a thread at least
LEAST = 128
# blocks that a grid may have in its second dimension
LARGEST_SECOND_GRID = 65535


def blocks_of(kernel: Kernel, buffers: Mapping[str, Buffer], machine: Machine) -> Blocks:
    """Return the tile of a kernel that walks its rows: whoever decides by it, or prints it, asks here.

    Args:
        kernel: What is one launch, or may become one: maps and reductions, a scan, or a scatter.
        buffers: Layout of every buffer in memory; only the kernel's own count.
        machine: What it will run on.
    """
    step = kernel.steps[-1]
    names = {name for s in kernel.steps for name in (*s.reads(), s.out)}
    own = {name: layout for name, layout in buffers.items() if name in names}
    if is_scatter(kernel):
        return _tile(Kernel(step.red, ()), own, (), machine)
    if is_scan(kernel):
        return _tile(Kernel(rows_of_scan(step, buffers), (step,)), own, (Loop(step.red, (step,)),), machine)
    return _tile(kernel, own, loops_of(kernel), machine)


def _tile(kernel: Kernel, buffers: Mapping[str, Buffer], loops: Sequence[Loop], machine: Machine) -> Blocks:
    """The tile of a kernel that is laid out as these loops."""
    n_rows = _power_of_two(product([a.extent for a in kernel.rows]))
    inner = [_power_of_two(product([a.extent for a in loop.inner])) for loop in loops if loop.inner]
    if not inner:
        return Blocks(min(n_rows, flat_points(buffers), max(LEAST, n_rows // below(machine.processors))), 1)
    width = max(inner)
    along_rows = _along_rows(kernel, buffers, loops)
    if any(NEST_KINDS[s.kind].scan for s in kernel.steps):
        return _scan_blocks(n_rows, width, all(loop.inner[0].extent.const() for loop in loops), along_rows, machine)
    if width <= WINDOW and _walks_windows(loops):
        is_across = {a for loop in loops for a in loop.inner}.isdisjoint(_unit_axes(_offsets(kernel, buffers)))
        return Blocks(min(n_rows, WINDOWS[is_across]), 1)
    n_slow = _slow_functions(loops)
    if along_rows:
        return Blocks(min(n_rows, SQUARE), min(width, 32))
    if _fits_registers(loops, buffers, width, longest_row(machine)):
        rows = max(1, min(n_rows, TILE // width))
        return Blocks(rows, width, _warps(2 * rows * width if n_slow else rows * width, machine), True)
    if width > 2 * TILE:
        # as many lanes as all threads load at once: were they fewer, the parts would be spread over several warps
        parts = PARTS >> min(2, n_slow)
        warps = min(LONG_WARPS, most_warps(machine))
        return Blocks(1, parts * warps * machine.lanes * _points_a_load(loops, buffers), warps, parts=parts)
    rows = max(1, min(n_rows, TILE // width))
    return Blocks(rows, width, _warps(rows * width, machine))


def _scan_blocks(n_rows: int, width: int, is_known: bool, along_rows: bool, machine: Machine) -> Blocks:
    longest = 32 if along_rows else LONGEST_SCAN
    inner = min(width, longest)
    rows = min(n_rows, SQUARE if along_rows else max(1, TILE // 2 // inner))
    return Blocks(rows, inner, _warps(rows * inner, machine), is_known and width <= longest)


def across(kernel: Kernel, buffers: Mapping[str, Buffer]) -> tuple[Atom, int] | None:
    """Return an axis that some buffer runs along while another runs along the last ones, and how many those are.

    Such a kernel is a transposition: a tile over this axis and the last ones reads and writes whole cache lines. None
    when there is none.
    """
    if len(kernel.rows) < 2 or not _is_pointwise(kernel):
        return None
    last = kernel.rows[-1]
    offsets = _offsets(kernel, buffers)
    along = _unit_axes(offsets)
    # what doesn't vary along the last axis, such as a weight for each channel, is small: how it is read doesn't matter
    crossing = _unit_axes([offset for offset in offsets if last in offset.axes()])
    found = [a for a in crossing if a is not last and _at_least(a.extent, LEAST_ACROSS)]
    if not found or last not in along:
        return None
    n = _last_axes(kernel.rows[kernel.rows.index(found[0]) + 1 :])
    return (found[0], n) if n else None


def _last_axes(axes: Sequence[Atom]) -> int:
    """Return how many of the last axes side by side fill tiles, few of them; 0 where all of them fill half of none."""
    points = 1
    for n, axis in enumerate(reversed(axes), start=1):
        known = axis.extent.const()
        if known is None or points * known >= SQUARE * LARGEST_SECOND_GRID:
            return n - 1 if 2 * points >= SQUARE else 0
        points *= known
        if points >= SQUARE and (points % SQUARE == 0 or points >= 16 * SQUARE):
            return n
    return len(axes) if 2 * points >= SQUARE else 0


def trailing(kernel: Kernel, buffers: Mapping[str, Buffer]) -> int:
    """Return how many of the last axes are worth a tile of their own; 0 where a flat range of points serves.

    Where something is loaded that is the same for many neighbouring points, such as a statistic of a channel, a program
    that stays within one channel loads it once instead of at every point.
    """
    if not _is_pointwise(kernel):
        return 0
    offsets = [offset for offset in _offsets(kernel, buffers) if offset.axes()]
    for n in range(1, len(kernel.rows)):
        inner = kernel.rows[-n:]
        points = product([a.extent for a in inner]).const()
        whole = points and points % flat_points(buffers) == 0 and points < flat_points(buffers) * LARGEST_SECOND_GRID
        if whole and any(set(inner).isdisjoint(offset.axes()) for offset in offsets):
            return n
    return 0


def memory_order(kernel: Kernel, buffers: Mapping[str, Buffer]) -> tuple[Atom, ...]:
    """Return the rows of a kernel in the order in which its last result lies in memory, where that is what it walks.

    Neighbouring rows of a tile differ in the last axis: that of channels, where they come last in memory. A reduction
    that walks memory along its inner axes keeps its rows as they are; one over windows doesn't.
    """
    stored = [step for step in kernel.steps if step.out in buffers and step.out not in kernel.local]
    inner = {axis for step in kernel.steps for axis in step.red}
    if not stored or any(len(step.axes) != len(kernel.rows) for step in kernel.steps):
        return kernel.rows
    if inner and not inner.isdisjoint(_unit_axes(_offsets(kernel, buffers))):
        return kernel.rows
    last = stored[-1]
    offset = _known_offset(tuple(map(lift, last.axes)), buffers[last.out].strides)
    axis_of = dict(zip(kernel.rows, last.axes, strict=True))

    def place(row: Atom) -> tuple[bool, int]:
        split = offset.coef(axis_of[row])
        return row.extent is not lift(1), 0 if split is None else -split[0].hi

    return tuple(sorted(kernel.rows, key=place))


def _is_pointwise(kernel: Kernel) -> bool:
    """Whether every step is a map over the rows and nothing else."""
    return all(step.kind == "map" and len(step.axes) == len(kernel.rows) for step in kernel.steps)


def flat_points(buffers: Mapping[str, Buffer]) -> int:
    """Return how many points a program of a pointwise kernel takes."""
    return 1024 if any(itemsize(b.dtype) > 2 for b in buffers.values()) else TILE


def _offsets(kernel: Kernel, buffers: Mapping[str, Buffer]) -> list[IndexExpr]:
    """Return the element offsets of the kernel's accesses in memory."""
    accesses = []
    for step in kernel.steps:
        accesses += [(v.args[0], v.args[1]) for v in step.body.loads]
        accesses.append((step.out, tuple(map(lift, step.axes))))
    return [_known_offset(index, buffers[b].strides) for b, index in accesses if b in buffers and b not in kernel.local]


def _known_offset(index: Sequence[IndexExpr | Val], strides: Sequence[IndexExpr]) -> IndexExpr:
    """Return the part of an element offset that doesn't depend on data."""
    pairs = [(e, s) for e, s in zip(index, strides, strict=True) if isinstance(e, IndexExpr)]
    return address([e for e, _ in pairs], [s for _, s in pairs])


def _unit_axes(offsets: Sequence[IndexExpr]) -> list[Atom]:
    """Return the axes along which memory is contiguous in some of these accesses, in order."""
    units: dict[Atom, None] = {}
    for offset in offsets:
        for axis in offset.axes():
            coefficient = offset.coef(axis)
            if coefficient is not None and coefficient[0] is lift(1):
                units[axis] = None
    return list(units)


def _along_rows(kernel: Kernel, buffers: Mapping[str, Buffer], loops: Sequence[Loop]) -> bool:
    """Tell whether memory is contiguous along the last row axis, and not along an inner one.

    Only what varies along both counts: a number for each row, such as the index of a gather, is small, and so is one
    for each inner point, such as a weight.
    """
    if not kernel.rows:
        return False
    loads = [v for loop in loops for s in loop.steps for v in s.body.loads if v.args[0] in buffers]
    inner, last = {a for loop in loops for a in loop.inner}, kernel.rows[-1]
    offsets = [_known_offset(v.args[1], buffers[v.args[0]].strides) for v in loads]
    unit = _unit_axes([o for o in offsets if last in o.axes() and not inner.isdisjoint(o.axes())])
    return last in unit and inner.isdisjoint(unit)


def _walks_windows(loops: Sequence[Loop]) -> bool:
    """Tell whether each inner axis, of known extent, moves along a dimension that some row moves along as well."""
    inner = {a for loop in loops for a in loop.inner}
    if any(a.extent.const() is None for a in inner):
        return False
    loads = [v for loop in loops for s in loop.steps for v in s.body.loads]
    axes = [set(e.axes()) for v in loads for e in v.args[1] if isinstance(e, IndexExpr)]
    return inner == {a for along in axes if along - inner for a in along & inner}


def _fits_registers(loops: Sequence[Loop], buffers: Mapping[str, Buffer], width: int, longest: int) -> bool:
    """Tell whether a program can hold what it loads of its rows until the last step is done."""
    walks = [loop for loop in loops if loop.inner]
    if len({tuple(a.extent for a in loop.inner) for loop in walks}) > 1:
        return False
    if any(a.extent.const() is None for loop in walks for a in loop.inner):
        return False
    loaded = {v for loop in walks for s in loop.steps for v in s.body.loads if v.args[0] in buffers}
    return width <= longest and width * max(1, len({v.args[0] for v in loaded})) <= 3 * longest


def _points_a_load(loops: Sequence[Loop], buffers: Mapping[str, Buffer]) -> int:
    """Return how many points a thread gets with a load of 16 bytes, of the smallest elements; 8 at most."""
    loads = {v.args[0] for loop in loops for s in loop.steps for v in s.body.loads}
    sizes = [itemsize(buffers[name].dtype) for name in loads if name in buffers]
    return min(8, 16 // min(sizes, default=4))


def _slow_functions(loops: Sequence[Loop]) -> int:
    """Return how many functions with a slow path a point of some walk takes."""
    bodies = [[v for s in loop.steps for v in postorder(s.body)] for loop in loops]
    return max(len({v for v in body if v.op in SLOW and v.dtype in ("f32", "f64")}) for body in bodies)


def _warps(points: int, machine: Machine) -> int:
    most = most_warps(machine)
    wanted = max(1, min(most if points >= longest_row(machine) else 16, points // 512)) if points > 1024 else 4
    return min(wanted, most)


def _at_least(extent: IndexExpr, least: int) -> bool:
    known = extent.const()
    return known is not None and known >= least


def _power_of_two(extent: IndexExpr) -> int:
    """Return the least power of two that holds an extent; a guess for symbolic ones, which loops and masks serve."""
    known = extent.const()
    return GUESS if known is None else 1 << max(0, known - 1).bit_length()
