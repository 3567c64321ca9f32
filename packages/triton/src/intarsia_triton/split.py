"""Split a long reduction of few rows over many programs: partial results in memory, then a second launch.

    y[i] = sum over r of f(i, r)      →      p[s, i] = sum over q of f(i, s * L + q);   y[i] = sum over s of p[s, i]

Side condition: the reduction is associative (not an argmax, not a scan), its extents are known, and nothing walks the
row again afterwards. Two reasons: few rows leave most of a GPU idle, and a long chain of additions in one register
loses digits that a tree keeps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from intarsia_loops.index import Atom, IndexExpr, axis, lift, row_major
from intarsia_loops.program import Buffer, Kernel, Nest, load
from intarsia_loops.rewrites import at
from intarsia_triton.blocks import choose_blocks
from intarsia_triton.index import product
from intarsia_triton.plan import loops_of

__all__ = ["BUSY", "Split", "new_axis", "new_name", "split_reductions", "spread"]

KINDS = frozenset({"sum", "prod", "max", "min", "any", "all"})
# programs that keep a large GPU busy: four for each of its 132 processors
BUSY = 528
# programs to aim for, and the fewest points that are worth one
WANTED = 4096
SHORTEST = 128


@dataclass(frozen=True, slots=True)
class Split:
    """A kernel as one that makes partial results and one that finishes.

    Args:
        kernels: In order.
        scratch: Layout of the partial results.
    """

    kernels: tuple[Kernel, ...]
    scratch: Mapping[str, Buffer]


def spread(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Split:
    """Return `kernel` as one launch for each walk, where its rows are too few to keep a GPU busy.

    A map over rows and inner points then has a program for each block of points; row scalars go through memory.

    Args:
        kernel: What `plan.pieces` gave.
        buffers: Layout of every buffer in memory.
    """
    loops = loops_of(kernel)
    walks = [loop for loop in loops if loop.inner]
    blocks = choose_blocks(kernel, buffers, loops)
    if blocks.persistent or len(walks) < 2 or not _idle(kernel, walks[0].inner, blocks.rows):
        return Split((kernel,), {})
    kernels: list[Kernel] = []
    scratch: dict[str, Buffer] = {}
    for loop in loops:
        rows = tuple(s for s in loop.steps if s.kind != "map" or not loop.inner)
        if rows and not loop.inner and kernels and kernels[-1].rows == kernel.rows:
            kernels[-1] = replace(kernels[-1], steps=(*kernels[-1].steps, *rows))
        elif rows:
            kernels.append(Kernel(kernel.rows, rows))
        kernels += [Kernel(s.axes, (s,)) for s in loop.steps if s not in rows]
        scratch.update({s.out: _layout(s) for s in rows if s.out in kernel.local})
    return Split(tuple(kernels), scratch)


def _idle(kernel: Kernel, inner: Sequence[Atom], block: int) -> bool:
    """Tell whether one program a block of rows leaves most of a GPU without work."""
    n_rows, n_inner = (product([a.extent for a in axes]).const() for axes in (kernel.rows, inner))
    if n_rows is None or n_inner is None:
        return False
    return n_inner >= 16 * SHORTEST and 0 < -(-n_rows // block) < BUSY // 4


def split_reductions(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Split:
    """Return `kernel` split where that pays, or alone.

    Args:
        kernel: What `plan.pieces` gave.
        buffers: Layout of every buffer in memory.
    """
    loops = loops_of(kernel)
    first = next((loop for loop in loops if loop.inner), None)
    steps = [s for s in first.steps if s.kind != "map"] if first is not None else []
    walks_again = sum(bool(loop.inner) for loop in loops) > 1
    blocks = choose_blocks(kernel, buffers, loops)
    if not steps or walks_again or blocks.persistent or any(s.kind not in KINDS for s in steps):
        return Split((kernel,), {})
    red = steps[0].red
    n_parts = _parts(kernel, red, blocks.rows)
    if n_parts < 2:
        return Split((kernel,), {})
    names = [new_name(f"{step.out}_partial", buffers) for step in steps]
    partials = tuple(_partial(step, kernel.rows, red, n_parts, name) for step, name in zip(steps, names, strict=True))
    scratch = {p.out: _layout(p) for p in partials}
    done = {step.out: _finished(step, partial) for step, partial in zip(steps, partials, strict=True)}
    finish = replace(kernel, steps=tuple(done.get(step.out, step) for step in kernel.steps))
    return Split((Kernel(partials[0].axes, partials), finish), scratch)


def _parts(kernel: Kernel, red: Sequence[Atom], block: int) -> int:
    """Return into how many parts the outermost reduced axis is cut; 1 when the kernel stays whole."""
    n_rows, n_inner = (product([a.extent for a in axes]).const() for axes in (kernel.rows, red))
    outer = red[0].extent.const()
    if n_rows is None or n_inner is None or outer is None or n_inner < 16 * SHORTEST:
        return 1
    programs = -(-n_rows // block)
    if programs >= BUSY or not programs:
        return 1
    most = min(WANTED // programs, n_inner // SHORTEST)
    return max((d for d in range(1, min(outer, most) + 1) if outer % d == 0), default=1)


def new_name(name: str, buffers: Mapping[str, Buffer]) -> str:
    """Return `name`, longer where a buffer has it."""
    while name in buffers:
        name += "_"
    return name


def new_axis(name: str, extent: IndexExpr, others: Collection[Atom]) -> Atom:
    """Return an axis that is none of others: axes of one name and extent are one."""
    while axis(name, extent) in others:
        name += "_"
    return axis(name, extent)


def _partial(step: Nest, rows: tuple[Atom, ...], red: tuple[Atom, ...], n_parts: int, name: str) -> Nest:
    """The reduction of one part, for each part and row."""
    length = (red[0].extent.const() or 0) // n_parts
    part, within = (new_axis(name, lift(n), (*rows, *red)) for name, n in (("p0", n_parts), ("q0", length)))
    position: IndexExpr = lift(part) * length + lift(within)
    kept = (within, *red[1:]) if length > 1 or len(red) == 1 else red[1:]
    env = {red[0]: position if within in kept else lift(part)}
    body = at(step.body, env)
    return replace(step, out=name, axes=(part, *rows), red=kept, body=body, dtype=body.dtype)


def _finished(step: Nest, partial: Nest) -> Nest:
    """The reduction of the partial results, in the place of the whole one."""
    part = new_axis("p0", partial.axes[0].extent, step.axes)
    index = (lift(part), *map(lift, step.axes))
    return replace(step, red=(part,), body=load(partial.out, index, partial.dtype))


def _layout(step: Nest) -> Buffer:
    shape = tuple(a.extent for a in step.axes)
    return Buffer(shape, row_major(shape), step.dtype)
