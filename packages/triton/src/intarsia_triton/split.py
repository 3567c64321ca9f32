"""Split a long reduction of few rows over many programs: partial results in memory, then a second launch.

    y[i] = sum over r of f(i, r)      →      p[s, i] = sum over q of f(i, s * L + q);   y[i] = sum over s of p[s, i]

Side condition: the reduction is associative (not an argmax, not a scan), and nothing walks the row again afterwards.
Where the length isn't known, parts have a fixed one, and the second launch also walks what is left over. Two reasons:
few rows leave most of a GPU idle, and a long chain of additions in one register loses digits that a tree keeps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from intarsia_ir.records import Machine
from intarsia_loops.index import Atom, IndexExpr, axis, lift, row_major
from intarsia_loops.program import Buffer, Kernel, Nest, cast, load, val
from intarsia_loops.rewrites import at
from intarsia_triton.blocks import choose_blocks
from intarsia_triton.index import product
from intarsia_triton.limits import most_programs
from intarsia_triton.plan import loops_of

__all__ = ["IN_FLIGHT", "Split", "new_axis", "new_name", "split_reductions", "spread"]

# kinds of reductions, with the op that folds two of their results
FOLDS = MappingProxyType({"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"})
# programs that keep a processor busy
IN_FLIGHT = 4
# the fewest points that are worth a program
SHORTEST = 128
# points of a part where the length isn't known
PART = 8192
# a guess of the size of a second axis of unknown size
UNKNOWN = 256


@dataclass(frozen=True, slots=True)
class Split:
    """A kernel as one that makes partial results and one that finishes.

    Args:
        kernels: In order.
        scratch: Layout of the partial results.
    """

    kernels: tuple[Kernel, ...]
    scratch: Mapping[str, Buffer]


def spread(kernel: Kernel, buffers: Mapping[str, Buffer], machine: Machine) -> Split:
    """Return `kernel` as one launch for each walk, where its rows are too few to keep a GPU busy.

    A map over rows and inner points then has a program for each block of points; row scalars go through memory.

    Args:
        kernel: What `plan.pieces` gave.
        buffers: Layout of every buffer in memory.
        machine: What it will run on.
    """
    loops = loops_of(kernel)
    walks = [loop for loop in loops if loop.inner]
    blocks = choose_blocks(kernel, buffers, loops, machine)
    if blocks.persistent or len(walks) < 2 or not _idle(kernel, walks[0].inner, blocks.rows, machine):
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


def _idle(kernel: Kernel, inner: Sequence[Atom], block: int, machine: Machine) -> bool:
    """Tell whether one program a block of rows leaves most of a GPU without work."""
    n_rows, n_inner = (product([a.extent for a in axes]).const() for axes in (kernel.rows, inner))
    if n_rows is None or n_inner is None:
        return False
    return n_inner >= 16 * SHORTEST and 0 < -(-n_rows // block) < machine.processors


def split_reductions(kernel: Kernel, buffers: Mapping[str, Buffer], machine: Machine) -> Split:
    """Return `kernel` split where that pays, or alone.

    Args:
        kernel: What `plan.pieces` gave.
        buffers: Layout of every buffer in memory.
        machine: What it will run on.
    """
    loops = loops_of(kernel)
    first = next((loop for loop in loops if loop.inner), None)
    steps = [s for s in first.steps if s.kind != "map"] if first is not None else []
    walks_again = sum(bool(loop.inner) for loop in loops) > 1
    blocks = choose_blocks(kernel, buffers, loops, machine)
    if not steps or walks_again or blocks.persistent or any(s.kind not in FOLDS for s in steps):
        return Split((kernel,), {})
    cut = _cut(kernel, steps[0].red, blocks.rows, machine)
    if cut is None:
        return Split((kernel,), {})
    names = [new_name(f"{step.out}_partial", buffers) for step in steps]
    partials = tuple(_partial(step, kernel.rows, cut, name) for step, name in zip(steps, names, strict=True))
    scratch = {p.out: _layout(p) for p in partials}
    made = [_finished(step, partial, kernel.rows, cut) for step, partial in zip(steps, partials, strict=True)]
    # those over the parts come first, then those over what is left: steps over one range share a walk
    before = [s for alike in zip(*(inside for inside, _ in made), strict=True) for s in alike]
    done = {last.out: last for _, last in made}
    finish = Kernel(
        kernel.rows,
        (*before, *(done.get(step.out, step) for step in kernel.steps)),
        kernel.local | {s.out for s in before},
    )
    return Split((Kernel(partials[0].axes, partials), finish), scratch)


@dataclass(frozen=True, slots=True)
class _Cut:
    """How a reduction is cut: which of its axes, and how long the parts are; what is left over comes last."""

    position: int
    length: int

    def parts(self, red: Sequence[Atom]) -> IndexExpr:
        return red[self.position].extent // self.length

    def rest(self, red: Sequence[Atom]) -> IndexExpr:
        return red[self.position].extent % self.length


def _cut(kernel: Kernel, red: Sequence[Atom], block: int, machine: Machine) -> _Cut | None:
    """Return how a reduction is cut; None when the kernel stays whole."""
    n_rows = product([a.extent for a in kernel.rows]).const()
    programs = -(-n_rows // block) if n_rows is not None else None
    n_inner, outer = product([a.extent for a in red]).const(), red[0].extent.const()
    if n_inner is None or outer is None:
        return _cut_unknown(red, block) if programs is None or 0 < programs < machine.processors else None
    if programs is None or not 0 < programs < IN_FLIGHT * machine.processors or n_inner < 16 * SHORTEST:
        return None
    most = min(most_programs(machine) // programs, n_inner // SHORTEST)
    n_parts = max((d for d in range(1, min(outer, most) + 1) if outer % d == 0), default=1)
    return _Cut(0, outer // n_parts) if n_parts > 1 else None


def _cut_unknown(red: Sequence[Atom], block: int) -> _Cut | None:
    """Return how a reduction over a size that isn't known is cut: a part is enough work for a program.

    Where there is less than a part, all is left over, and the first launch has no program.
    """
    if product([a.extent for a in red]).hi < 16 * SHORTEST:
        return None
    position = next(k for k, a in enumerate(red) if a.extent.const() is None)
    others = math.prod(a.extent.const() or UNKNOWN for k, a in enumerate(red) if k != position)
    length = max(1, PART // (block * others))
    return _Cut(position, 1 << length.bit_length() - 1)


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


def _partial(step: Nest, rows: tuple[Atom, ...], cut: _Cut, name: str) -> Nest:
    """The reduction of one part, for each part and row."""
    taken, red = (*rows, *step.red), step.red
    part, within = new_axis("p0", cut.parts(red), taken), new_axis("q0", lift(cut.length), taken)
    others = (*red[: cut.position], *red[cut.position + 1 :])
    is_walked = cut.length > 1 or not others
    position = lift(part) * cut.length + lift(within) if is_walked else lift(part)
    kept = (*red[: cut.position], within, *red[cut.position + 1 :]) if is_walked else others
    body = at(step.body, {red[cut.position]: position})
    return replace(step, out=name, axes=(part, *rows), red=kept, body=body, dtype=body.dtype)


def _finished(
    step: Nest, partial: Nest, rows: tuple[Atom, ...], cut: _Cut
) -> tuple[tuple[()] | tuple[Nest, Nest], Nest]:
    """Return the reduction of the partial results, in the place of the whole one, after those that it folds if any."""
    part = new_axis("p0", partial.axes[0].extent, step.axes)
    whole = replace(step, red=(part,), body=load(partial.out, (lift(part), *map(lift, step.axes)), partial.dtype))
    rest = cut.rest(step.red)
    if rest is lift(0):
        return (), whole
    left, cut_axis = new_axis("q0", rest, (*rows, *step.red)), step.red[cut.position]
    body = at(step.body, {cut_axis: lift(cut_axis.extent) // cut.length * cut.length + lift(left)})
    red = tuple(left if a is cut_axis else a for a in step.red)
    inside = (
        replace(whole, out=f"{partial.out}_whole", dtype=body.dtype),
        replace(step, out=f"{partial.out}_rest", red=red, body=body, dtype=body.dtype),
    )
    values = [load(s.out, tuple(map(lift, s.axes)), s.dtype) for s in inside]
    folded = cast(val(FOLDS[step.kind], *values, dtype=body.dtype), step.dtype)
    return inside, replace(step, red=(), kind="map", body=folded)


def _layout(step: Nest) -> Buffer:
    shape = tuple(a.extent for a in step.axes)
    return Buffer(shape, row_major(shape), step.dtype)
