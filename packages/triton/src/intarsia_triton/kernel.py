"""One kernel of the dialect -> the text of one Triton function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from intarsia_loops.index import Atom, IndexExpr, lift
from intarsia_loops.ops import NEST_KINDS, identity_of
from intarsia_loops.program import Buffer, Kernel, Nest
from intarsia_triton.index import address, index_text, product
from intarsia_triton.ops import POINTED, TYPES, constant
from intarsia_triton.plan import Loop, loops_of
from intarsia_triton.tile import Tile

__all__ = ["Blocks", "Function", "function"]

INDENT = "    "
# elements of a tile: what a block of 128 threads holds in 16 registers each
TILE = 2048
# grids are 31-bit numbers, and so are the offsets of most tensors; beyond, addresses need 64 bits
LARGEST_32_BIT = 1 << 31


@dataclass(frozen=True, slots=True)
class Blocks:
    """Sizes of a tile, powers of two."""

    rows: int
    inner: int


@dataclass(frozen=True, slots=True)
class Function:
    """The text of one `@triton.jit` function.

    Args:
        text: Definition, under the name it was asked for.
        buffers: Buffers that it takes, in order.
        sizes: Size symbols that it takes after them, sorted.
        grid: Number of programs, as text over the size symbols.
        blocks: The tile it was emitted for.
        signature: Type of each parameter, in order, in Triton's spelling: `"*fp32"`, `"i64"`.
    """

    text: str
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    grid: str
    blocks: Blocks
    signature: tuple[tuple[str, str], ...]


def function(kernel: Kernel, buffers: Mapping[str, Buffer], name: str) -> Function:
    """Return the Triton function of a kernel that `plan.pieces` gave.

    Args:
        kernel: What to compute.
        buffers: Layout of every buffer in memory.
        name: Name of the function.
    """
    writer = _Writer(kernel, buffers, loops_of(kernel))
    writer.write()
    parameters = [*writer.pointers.values(), *writer.sizes]
    parameters += [f"XBLOCK: tl.constexpr = {writer.blocks.rows}", f"RBLOCK: tl.constexpr = {writer.blocks.inner}"]
    head = ["@triton.jit", f"def {name}({', '.join(parameters)}):"]
    n_rows = index_text(product([a.extent for a in kernel.rows]), {})
    grid = f"({n_rows} + {writer.blocks.rows - 1}) // {writer.blocks.rows}"
    text = "\n".join([*head, *(INDENT + line for line in writer.lines), ""])
    types = {name: f"*{POINTED[buffers[buffer].dtype]}" for buffer, name in writer.pointers.items()}
    signature = (*types.items(), *((size, "i64") for size in writer.sizes))
    return Function(text, tuple(writer.pointers), writer.sizes, grid, writer.blocks, signature)


class _Writer:
    """Statements of one function, loop by loop."""

    def __init__(self, kernel: Kernel, buffers: Mapping[str, Buffer], loops: Sequence[Loop]) -> None:
        self.kernel, self.buffers, self.loops = kernel, buffers, loops
        self.lines: list[str] = []
        self.pointers: dict[str, str] = {}
        self.sizes = _sizes(kernel, buffers)
        self.blocks = _blocks(kernel, buffers, loops)
        self._scalars: dict[str, str] = {}
        self._rows: dict[Atom, str] = {}
        self._counter = [0]

    def write(self) -> None:
        """Write the row indices, then each loop."""
        n_rows = index_text(product([a.extent for a in self.kernel.rows]), {})
        self.lines.append(f"x = tl.program_id(0){self._wide()} * XBLOCK + tl.arange(0, XBLOCK)[:, None]")
        self.lines.append(f"xmask = x < {n_rows}")
        self._rows = self._unflatten("x", self.kernel.rows, self.lines)
        for loop in self.loops:
            self._loop(loop)

    def _loop(self, loop: Loop) -> None:
        if not loop.inner:
            self._straight(loop)
            return
        n_inner = index_text(product([a.extent for a in loop.inner]), {})
        reductions = [s for s in loop.steps if s.kind != "map" and not NEST_KINDS[s.kind].scan]
        for step in reductions:
            self.lines += _accumulators(step)
        body: list[str] = []
        body.append("r = base + tl.arange(0, RBLOCK)[None, :]")
        body.append(f"mask = xmask & (r < {n_inner})")
        names = {**self._rows, **self._unflatten("r", loop.inner, body)}
        tile = Tile(self.buffers, names, self._scalars, self.pointers, "mask", self._counter)
        for step in loop.steps:
            self._inner_step(step, tile)
        self.lines.append(f"for base in range(0, {n_inner}, RBLOCK):")
        self.lines += [INDENT + line for line in (*body, *tile.lines)]
        for step in reductions:
            self._finish(step)

    def _inner_step(self, step: Nest, tile: Tile) -> None:
        value = tile.value(step.body)
        if step.kind == "map":
            tile.store(step.out, tuple(map(lift, step.axes)), value)
        elif NEST_KINDS[step.kind].scan:
            neutral = constant(identity_of(step.kind, step.dtype), step.dtype)
            filled = f"tl.where(mask, {value}, {neutral})"
            fold = "fold_sum" if step.kind == "cumsum" else "fold_prod"
            tile.store(step.out, tuple(map(lift, step.axes)), f"tl.associative_scan({filled}, 1, {fold})")
        elif step.kind in ("argmax", "argmin"):
            acc, better = f"acc_{step.out}", f"better_{step.kind[3:]}"
            tile.lines.append(f"new, at = {better}({value}, r.to(tl.int64), {acc}, {acc}_at)")
            tile.lines.append(f"{acc}, {acc}_at = tl.where(mask, new, {acc}), tl.where(mask, at, {acc}_at)")
        else:
            acc = f"acc_{step.out}"
            tile.lines.append(f"{acc} = tl.where(mask, fold_{step.kind}({acc}, {value}), {acc})")

    def _straight(self, loop: Loop) -> None:
        """Steps that have one point a row; a reduction over nothing is its body."""
        tile = Tile(self.buffers, self._rows, self._scalars, self.pointers, "xmask", self._counter)
        for step in loop.steps:
            value = tile.value(step.body)
            if step.kind != "map":
                self._scalars[step.out] = value
            if step.out not in self.kernel.local:
                tile.store(step.out, tuple(map(lift, step.axes)), value)
        self.lines += tile.lines

    def _finish(self, step: Nest) -> None:
        """Reduce the accumulators to a row scalar, and store it where it is wanted."""
        acc, scalar = f"acc_{step.out}", f"s_{step.out}"
        if step.kind in ("argmax", "argmin"):
            self.lines.append(f"_, {scalar} = tl.reduce(({acc}, {acc}_at), 1, better_{step.kind[3:]})")
        else:
            self.lines.append(f"{scalar} = tl.reduce({acc}, 1, fold_{step.kind})")
        self.lines.append(f"{scalar} = {scalar}[:, None]")
        self._scalars[step.out] = scalar
        if step.out not in self.kernel.local:
            tile = Tile(self.buffers, self._rows, self._scalars, self.pointers, "xmask", self._counter)
            tile.store(step.out, tuple(map(lift, step.axes)), scalar)
            self.lines += tile.lines

    def _unflatten(self, flat: str, axes: Sequence[Atom], lines: list[str]) -> dict[Atom, str]:
        """Write the index of each axis from a row-major number; a lone axis is the number itself."""
        names: dict[Atom, str] = {}
        below: IndexExpr = lift(1)
        for position in reversed(range(len(axes))):
            axis = axes[position]
            if len(axes) == 1:
                names[axis] = flat
                break
            text = flat if below is lift(1) else f"({flat} // ({index_text(below, {})}))"
            if position:
                text = f"{text} % ({index_text(axis.extent, {})})"
            names[axis] = f"{flat}{position}"
            lines.append(f"{names[axis]} = {text}")
            below = below * axis.extent
        return names

    def _wide(self) -> str:
        """Text that makes indices 64 bits wide, when some buffer's offsets need it."""
        largest = max((_last_offset(b) for b in self.buffers.values()), default=0)
        return ".to(tl.int64)" if largest >= LARGEST_32_BIT else ""


def _accumulators(step: Nest) -> list[str]:
    acc, kind, dtype = f"acc_{step.out}", step.kind, step.body.dtype
    if kind in ("argmax", "argmin"):
        worst = constant(identity_of(kind[3:], dtype), dtype)
        last = constant((1 << 63) - 1, "i64")
        return [f"{acc} = {worst} + tl.zeros([XBLOCK, RBLOCK], {TYPES[dtype]})",
                f"{acc}_at = tl.broadcast_to({last}, (XBLOCK, RBLOCK))"]  # fmt: skip
    return [f"{acc} = tl.broadcast_to({constant(identity_of(kind, dtype), dtype)}, (XBLOCK, RBLOCK))"]


def _blocks(kernel: Kernel, buffers: Mapping[str, Buffer], loops: Sequence[Loop]) -> Blocks:
    """Choose the tile: rows along memory for pointwise and column kernels, the inner range for row kernels."""
    n_rows = _power_of_two(product([a.extent for a in kernel.rows]))
    inner = [_power_of_two(product([a.extent for a in loop.inner])) for loop in loops if loop.inner]
    scans = any(NEST_KINDS[s.kind].scan for s in kernel.steps)
    if not inner:
        return Blocks(min(n_rows, 1024), 1)
    if scans:
        return Blocks(1, max(inner))  # the whole range at once
    if _along_rows(kernel, buffers, loops):
        return Blocks(min(n_rows, 64), min(max(inner), 32))
    width = min(max(inner), 1024)
    return Blocks(max(1, min(n_rows, TILE // width)), width)


def _along_rows(kernel: Kernel, buffers: Mapping[str, Buffer], loops: Sequence[Loop]) -> bool:
    """Tell whether memory is contiguous along the last row axis, and not along an inner one."""
    loads = [v for loop in loops for s in loop.steps for v in s.body.loads if v.op == "load" and v.args[0] in buffers]
    inner = {a for loop in loops for a in loop.inner}
    unit = [
        axis
        for v in loads
        for axis in address(v.args[1], buffers[v.args[0]].strides).axes()
        if (c := address(v.args[1], buffers[v.args[0]].strides).coef(axis)) is not None and c[0] is lift(1)
    ]
    return bool(kernel.rows) and kernel.rows[-1] in unit and inner.isdisjoint(unit)


def _power_of_two(extent: IndexExpr) -> int:
    """Return the least power of two that holds an extent; a guess for symbolic ones, which loops and masks serve."""
    known = extent.const()
    return 1024 if known is None else 1 << max(0, known - 1).bit_length()


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
        for v in step.body.loads:
            found |= {s for e in v.args[1] if isinstance(e, IndexExpr) for s in e.symbols()}
        for name in (*step.reads(), step.out):
            if name in buffers:
                found |= {s for e in buffers[name].strides for s in e.symbols()}
    return tuple(sorted(found))
