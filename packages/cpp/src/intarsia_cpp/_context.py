"""One kernel while it is being emitted: names of its parameters, its local arrays, its flat steps.

Before anything is written, every load and store is made flat: one element number into the storage of a buffer, instead
of one index per dimension. After that a loop can be merged, split or renamed by substitution alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from intarsia_cpp._index import c_text, size_symbols
from intarsia_cpp._ops import HEAVY, WIDTH, element
from intarsia_ir.records import Target
from intarsia_loops.addresses import address, product
from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr, lift
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Kernel, Nest, Val, index_value, load, val
from intarsia_loops.rewrites import at, operands, postorder, rebuild

__all__ = ["Array", "Block", "Context", "Step", "flat_steps", "lanes_of", "size_name"]


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
        return replace(
            self, body=at(self.body, env), address=self.address.subst(env), position=self.position.subst(env)
        )

    def addresses(self) -> list[IndexExpr]:
        """Return every expression over loop variables in it, loads first, in a fixed order."""
        found = [self.address, self.position]
        for v in postorder(self.body):
            if v.op == "index":
                found.append(v.args[0])
            elif v.op in ("load", "gather"):
                found.append(v.args[1][-1])
        return found


def lanes_of(kernel: Kernel, target: Target) -> int:
    """Return the vector width in elements: as many of the widest type computed with as fit a register."""
    widest = max((WIDTH[v.dtype] for s in kernel.steps for v in postorder(s.body) if element(v.dtype)), default=4)
    return target.machine.vector_bytes // max(widest, 4)


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
        return _without_units(found)

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


def size_name(symbol: str) -> str:
    """Return the C parameter that holds the value of a size symbol."""
    return f"size_{symbol}"


class Context:
    """What all scopes of one kernel share. Names are given out in the order in which text asks for them."""

    def __init__(
        self, kernel: Kernel, buffers: Mapping[str, Buffer], target: Target, block: Block | None = None
    ) -> None:
        self.kernel = kernel
        self.buffers = buffers
        self.target = target
        self.threads = target.threads
        self.lanes = lanes_of(kernel, target)
        self.block = block
        self.arrays = local_arrays(kernel, block)
        self.steps = flat_steps(kernel, buffers, self.arrays)
        self.params: dict[str, str] = {}
        self._sizes: set[str] = set()
        self._axis_names: dict[Atom, str] = {}
        self._taken = {"l", "n"}
        self._temps = 0
        self._axes: dict[Val, frozenset[Atom]] = {}

    @property
    def sizes(self) -> tuple[str, ...]:
        """Size symbols used so far, sorted."""
        return tuple(sorted(self._sizes))

    def share_parameters(self, other: Context) -> None:
        """Be a part of the function of another kernel: take, and add to, its parameters."""
        self.params, self._sizes = other.params, other._sizes

    def temp(self, prefix: str = "t") -> str:
        """Return a fresh C name."""
        self._temps += 1
        return f"{prefix}{self._temps}"

    def pointer(self, buffer: str) -> str:
        """Return the C name of a parameter or local array."""
        if buffer in self.arrays:
            return f"local_{buffer}"
        return self.params.setdefault(buffer, f"b{len(self.params)}")

    def c(self, expr: IndexExpr) -> str:
        """Return an index expression as C text."""
        self._sizes |= size_symbols(expr)
        return c_text(expr, self.name_of)

    def name_of(self, atom: Atom) -> str:
        """Return the C variable of an axis or size symbol."""
        if atom.kind == "sym":
            return size_name(atom.key)
        name = self._axis_names.get(atom)
        if name is None:
            name = base = atom.key if re.fullmatch(r"[ir]\d\w*|[lk]|start", atom.key) else f"x{len(self._axis_names)}"
            k = 1
            while name in self._taken and name != "l":
                k += 1
                name = f"{base}_{k}"
            self._taken.add(name)
            self._axis_names[atom] = name
        return name

    def axes_of(self, v: Val) -> frozenset[Atom]:
        """Return the loop variables that a flat value depends on."""
        if v not in self._axes:
            # asked bottom-up, operands are known already and nothing needs to be walked
            below = (v,) if all(a in self._axes for a in operands(v)) else postorder(v)
            for u in below:
                if u not in self._axes:
                    self._axes[u] = self._own_axes(u)
        return self._axes[v]

    def _own_axes(self, v: Val) -> frozenset[Atom]:
        if v.op == "index":
            return frozenset(v.args[0].axes())
        if v.op == "const":
            return frozenset()
        entries = v.args[1] if v.op in ("load", "gather") else v.args
        below = [self._axes[a] if type(a) is Val else frozenset(a.axes()) for a in entries]
        return frozenset[Atom]().union(*below)

    def is_padded(self, buffer: str, address: IndexExpr, lane: Atom | None) -> bool:
        """Whether whole vectors may be moved at the end of a local array, because it has room past the end."""
        return buffer in self.arrays and (self.block is not None or (lane is not None and address is lift(lane)))

    def cost(self, steps: tuple[Step, ...]) -> int:
        """Return the work at one point of the steps' loops, in additions."""
        distinct = {v for s in steps for v in postorder(s.body) if v.op != "const"}
        return len(steps) + sum(HEAVY.get(v.op, 1) for v in distinct)
