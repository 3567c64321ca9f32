"""Kernels with flat addresses: one element number into the storage of a buffer, instead of an index per dimension.

After that a loop can be merged, split or renamed by substitution alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from intarsia_ir.dtypes import itemsize
from intarsia_loops.addresses import address, product
from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr, lift
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Nest, Val, index_value, load, val
from intarsia_loops.rewrites import at, postorder, rebuild

__all__ = ["Array", "Block", "Step", "accesses", "flat_steps", "lanes_of", "local_arrays", "row_positions"]


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring rows that are worked on together, one in each vector lane.

    Args:
        position: Which of the kernel's rows axes runs over the lanes.
        start: Loop variable: the first row of the block.
        width: Rows in a block, a multiple of the vector width.
    """

    position: int
    start: Atom
    width: int


@dataclass(frozen=True, slots=True)
class Array:
    """Scratch for the inner axes of a step that later loops of the same row read.

    Args:
        shape: Extents of the step's inner axes.
        strides: Element strides of the inner axes.
        dtype: Element type.
        block: The rows that it holds side by side; None: one row.
    """

    shape: tuple[IndexExpr, ...]
    strides: tuple[IndexExpr, ...]
    dtype: str
    block: Block | None = None

    @property
    def length(self) -> IndexExpr:
        """Elements, without padding."""
        return product(self.shape) * (self.block.width if self.block else 1)


@dataclass(frozen=True, slots=True)
class Step:
    """A nest with flat addresses: element `address` of `out` = kind over red of body.

    Args:
        out: Buffer or local array written.
        inner: Axes of `out` past the kernel's rows.
        red: Reduced axes, or the scanned one (which is in `inner` too).
        kind: Row of the nest kind table.
        body: Its loads have one entry, an element number; its gathers an i64 value and what is added to that.
        address: Element number that is written.
        dtype: Element type of `out`.
        in_memory: Whether `out` reaches memory.
        position: argmax and argmin only: number of the current point among the reduced ones.
        counted: argmax and argmin only: the integer type in which these numbers are kept while they are searched; of
            32 bits where the values are no wider and all numbers fit.
    """

    out: str
    inner: tuple[Atom, ...]
    red: tuple[Atom, ...]
    kind: str
    body: Val
    address: IndexExpr
    dtype: str
    in_memory: bool
    position: IndexExpr = ZERO
    counted: str = "i64"

    @property
    def is_scan(self) -> bool:
        """Whether it keeps a running value along one of its axes."""
        return NEST_KINDS[self.kind].scan

    @property
    def is_fold(self) -> bool:
        """Whether it reduces."""
        return bool(self.red) and not self.is_scan

    def substituted(self, env: Mapping[Atom, IndexExpr]) -> Step:
        """Return the step at other points; loops are the caller's business."""
        if not env:
            return self
        moved = replace(
            self, body=at(self.body, env), address=self.address.subst(env), position=self.position.subst(env)
        )
        return _counted(moved)

    def addresses(self) -> list[IndexExpr]:
        """Return every expression over loop variables in it, loads first, in a fixed order."""
        found = [self.address, self.position]
        for v in postorder(self.body):
            if v.op == "index":
                found.append(v.args[0])
            elif v.op in ("load", "gather"):
                found.append(v.args[1][-1])
        return found


def lanes_of(kernel: Kernel, vector_bytes: int) -> int:
    """Return the vector width in elements: as many of the widest type computed with as fit a register.

    Where rows have loops inside, what `row_positions` are doesn't count: a token's 64 bits leave all lanes for values.
    """
    depth, types = len(kernel.rows), set[str]()
    flat = all(s.kind == "map" and len(s.axes) == depth for s in kernel.steps)
    for s in kernel.steps:
        alone = frozenset[Val]() if flat else row_positions(s.axes[depth:] + s.red, s.body)
        types |= {v.dtype for v in postorder(s.body) if v not in alone}
    return max(1, vector_bytes // max(4, *map(itemsize, types)))


def row_positions(inside: tuple[Atom, ...], body: Val) -> frozenset[Val]:
    """Return the values that data-dependent reads get their places from and that no loop inside a row changes.

    Args:
        inside: The loops inside a row.
        body: What is computed at a point.
    """
    found: set[Val] = set()
    for v in postorder(body):
        for entry in v.args[1] if v.op == "gather" else ():
            if isinstance(entry, Val) and _axes_below(entry).isdisjoint(inside):
                found.update(postorder(entry))
    return frozenset(found)


def flat_steps(kernel: Kernel, buffers: Mapping[str, Buffer], arrays: Mapping[str, Array]) -> tuple[Step, ...]:
    """Return the steps of a kernel with flat addresses.

    Args:
        kernel: The kernel.
        buffers: Layout of every buffer in memory.
        arrays: Layout of the local ones.
    """
    depth = len(kernel.rows)

    def flat(buffer: str, index: tuple[IndexExpr, ...]) -> IndexExpr:
        if buffer in arrays:
            inside = address(index[depth:], arrays[buffer].strides)
            block = arrays[buffer].block
            return inside if block is None else inside + index[block.position] - lift(block.start)
        return address(index, buffers[buffer].strides)

    def leaf(v: Val) -> Val:
        if v.op == "index":
            return v
        if v.op == "load":
            return load(v.args[0], (flat(v.args[0], v.args[1]),), v.dtype)
        inside = v.args[0] in arrays
        entries = v.args[1][depth:] if inside else v.args[1]
        strides = arrays[v.args[0]].strides if inside else buffers[v.args[0]].strides
        block = arrays[v.args[0]].block if inside else None
        if block is not None:
            row: IndexExpr = v.args[1][block.position]
            entries, strides = (*entries, row - lift(block.start)), (*strides, ONE)
        return _flat_gather(v, entries, strides)

    def step(nest: Nest) -> Step:
        place = flat(nest.out, tuple(map(lift, nest.axes)))
        position = address(tuple(map(lift, nest.red)), _row_major(tuple(r.extent for r in nest.red)))
        found = Step(
            nest.out, nest.axes[depth:], nest.red, nest.kind, rebuild(nest.body, leaf), place, nest.dtype,
            nest.out not in kernel.local, position if nest.kind in ("argmax", "argmin") else ZERO,
        )  # fmt: skip
        return _counted(_without_units(found))

    return tuple(step(nest) for nest in kernel.steps)


def _without_units(step: Step) -> Step:
    """The step without loops that have one point, except a last reduced (or the scanned) one."""
    ones = {a for a in step.inner if a.extent is ONE and a not in step.red}
    reduced = {r for r in step.red if r.extent is ONE and not step.is_scan}
    ones |= reduced if len(reduced) < len(step.red) else reduced - set(step.red[-1:])
    if not ones:
        return step
    inner, red = (tuple(a for a in axes if a not in ones) for axes in (step.inner, step.red))
    return replace(step.substituted(dict.fromkeys(ones, ZERO)), inner=inner, red=red)


def _counted(step: Step) -> Step:
    """The step with the narrowest type that its positions fit in, beside its values."""
    is_search = step.kind in ("argmax", "argmin")
    narrow = is_search and step.position.hi < 1 << 31 and itemsize(step.body.dtype) <= 4
    return replace(step, counted="i32") if narrow else step


def local_arrays(kernel: Kernel, block: Block | None = None) -> dict[str, Array]:
    """Return the layout of every buffer that stays inside the kernel: row-major over the inner axes, then the block."""
    depth = len(kernel.rows)
    width = lift(block.width if block else 1)
    arrays = {}
    for nest in kernel.steps:
        if nest.out in kernel.local:
            shape = tuple(a.extent for a in nest.axes[depth:])
            arrays[nest.out] = Array(shape, tuple(s * width for s in _row_major(shape)), nest.dtype, block)
    return arrays


def _row_major(shape: tuple[IndexExpr, ...]) -> tuple[IndexExpr, ...]:
    return tuple(product(shape[k + 1 :]) for k in range(len(shape)))


def _flat_gather(v: Val, entries: tuple[IndexExpr | Val, ...], strides: tuple[IndexExpr, ...]) -> Val:
    """A data-dependent read at element (i64 value) + (index expression) of the buffer."""
    fixed, moving = ZERO, None
    for i, stride in zip(entries, strides, strict=True):
        if not isinstance(i, Val):
            fixed = fixed + i * stride
            continue
        term = i if stride is ONE else val("mul", i, index_value(stride), dtype="i64")
        moving = term if moving is None else val("add", moving, term, dtype="i64")
    return load(v.args[0], (moving, fixed), v.dtype) if moving is not None else v


def accesses(body: Val) -> list[tuple[Val, IndexExpr, frozenset[Atom]]]:
    """Return every flat read of a body: (read, element number, axes that a data-dependent part depends on)."""
    found = []
    for v in postorder(body):
        if v.op == "load":
            found.append((v, v.args[1][0], frozenset[Atom]()))
        elif v.op == "gather":
            found.append((v, v.args[1][1], _axes_below(v.args[1][0])))
    return found


def _axes_below(body: Val) -> frozenset[Atom]:
    """Every loop variable that a flat value depends on."""
    found: set[Atom] = set()
    for v in postorder(body):
        entries = v.args if v.op == "index" else v.args[1] if v.op in ("load", "gather") else ()
        found.update(*(e.axes() for e in entries if not isinstance(e, Val)))
    return frozenset(found)
