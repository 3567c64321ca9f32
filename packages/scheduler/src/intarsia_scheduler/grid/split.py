"""Split a long reduction of few rows over many programs: partial results in memory, then a second launch.

    y[i] = sum over r of f(i, r)      →      p[s, i] = sum over q of f(i, s * L + q);   y[i] = sum over s of p[s, i]

Side condition: the reduction is associative (not an argmax, not a scan), and nothing walks the row again afterwards.
Where the length isn't known, parts have a fixed one; the second launch also walks what is left over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from intarsia_loops.index import Atom, IndexExpr, axis, lift, row_major
from intarsia_loops.program import Buffer, Kernel, Nest, cast, load, val
from intarsia_loops.rewrites import at
from intarsia_scheduler.grid.loops import loops_of

__all__ = ["FOLDS", "Cut", "Split", "cut_steps", "in_parts", "new_axis", "new_name", "spread", "spreads"]

# kinds of reductions, with the op that folds two of their results
FOLDS = MappingProxyType({"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"})


@dataclass(frozen=True, slots=True)
class Split:
    """A kernel as several launches.

    Args:
        kernels: In order.
        scratch: Layouts of what they share.
    """

    kernels: tuple[Kernel, ...]
    scratch: Mapping[str, Buffer]


@dataclass(frozen=True, slots=True)
class Cut:
    """How a reduction is cut: which of its axes, and how long the parts are; what is left over comes last."""

    position: int
    length: int

    def parts(self, red: Sequence[Atom]) -> IndexExpr:
        """Return how many whole parts there are."""
        return red[self.position].extent // self.length

    def rest(self, red: Sequence[Atom]) -> IndexExpr:
        """Return how many points of the axis are left over."""
        return red[self.position].extent % self.length


def spreads(kernel: Kernel) -> bool:
    """Tell whether `spread` makes several launches: of several walks over inner points, or of points beside rows."""
    loops = loops_of(kernel)
    walks = [loop for loop in loops if loop.inner]
    return len(walks) > 1 or (len(loops) > 1 and any(s.kind == "map" for walk in walks for s in walk.steps))


def spread(kernel: Kernel) -> Split:
    """Return `kernel` as one launch for each walk.

    A map over rows and inner points then has a program for each block of points; row scalars go through memory.

    Args:
        kernel: What `pieces` gave, of which `spreads` holds.
    """
    kernels: list[Kernel] = []
    scratch: dict[str, Buffer] = {}
    for loop in loops_of(kernel):
        rows = tuple(s for s in loop.steps if s.kind != "map" or not loop.inner)
        if rows and not loop.inner and kernels and kernels[-1].rows == kernel.rows:
            kernels[-1] = replace(kernels[-1], steps=(*kernels[-1].steps, *rows))
        elif rows:
            kernels.append(Kernel(kernel.rows, rows))
        kernels += [Kernel(s.axes, (s,)) for s in loop.steps if s not in rows]
        scratch.update({s.out: _layout(s) for s in rows if s.out in kernel.local})
    return Split(tuple(kernels), scratch)


def cut_steps(kernel: Kernel) -> tuple[Nest, ...]:
    """Return the reductions of a kernel, all over one range, where it can be cut; else nothing."""
    loops = loops_of(kernel)
    first = next((loop for loop in loops if loop.inner), None)
    steps = tuple(s for s in first.steps if s.kind != "map") if first is not None else ()
    walks_again = sum(bool(loop.inner) for loop in loops) > 1
    return () if walks_again or any(s.kind not in FOLDS for s in steps) else steps


def in_parts(kernel: Kernel, cut: Cut, buffers: Mapping[str, Buffer]) -> Split:
    """Return `kernel` as one that makes partial results and one that finishes.

    Args:
        kernel: One of which `cut_steps` gives something.
        cut: How.
        buffers: Layout of every buffer in memory.
    """
    steps = cut_steps(kernel)
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


def _partial(step: Nest, rows: tuple[Atom, ...], cut: Cut, name: str) -> Nest:
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
    step: Nest, partial: Nest, rows: tuple[Atom, ...], cut: Cut
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
