"""What was chosen for a launch of a grid -> how its points are walked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from intarsia_ir.errors import InvalidArgumentError
from intarsia_loops.addresses import product
from intarsia_loops.forms import with_half_forms, with_sum_forms
from intarsia_loops.index import Atom, lift
from intarsia_loops.launches import Blocks, Loop, Walk
from intarsia_loops.program import Buffer, Kernel, Nest, Val
from intarsia_loops.rewrites import at
from intarsia_scheduler.grid.align import shift_of
from intarsia_scheduler.grid.loops import (
    is_scan,
    is_scatter,
    loops_of,
    over_one_range,
    weights,
    with_exp_sums,
    with_square_sums,
)
from intarsia_scheduler.grid.scan import rows_of_scan
from intarsia_scheduler.grid.split import new_axis
from intarsia_scheduler.grid.width import is_wide
from intarsia_scheduler.plan import KernelPlan

__all__ = ["rows_of_chunks", "walk_of"]


def walk_of(kernel: Kernel, buffers: Mapping[str, Buffer], plan: KernelPlan) -> Walk:
    """Return how a launch walks its points.

    Args:
        kernel: What `pieces`, `spread`, `in_parts`, `in_chunks` or `scatter_launches` gave.
        buffers: Layout of every buffer in memory.
        plan: What was chosen for it.

    Raises:
        InvalidArgumentError: `schedule.choice`: a choice isn't one of this kernel's.
    """
    made = _walk_of(kernel, buffers, plan)
    return replace(made, loops=tuple(_with_forms(loop, made.weights) for loop in made.loops))


def _with_forms(loop: Loop, sums: frozenset[str]) -> Loop:
    """Compute in the cheaper forms what is rounded to a half type, and quotients by `sums`."""

    def cheaper(body: Val) -> Val:
        return with_sum_forms(with_half_forms(body), sums)

    steps = tuple(replace(s, body=cheaper(s.body)) for s in loop.steps)
    exponentials = [(cheaper(s.exponent), cheaper(s.shift)) for s in loop.sums]
    squares = [(cheaper(q.value), cheaper(q.shift)) for q in loop.squares]
    return replace(
        loop,
        steps=steps,
        sums=tuple(replace(s, exponent=f, shift=g) for s, (f, g) in zip(loop.sums, exponentials, strict=True)),
        squares=tuple(replace(q, value=f, shift=g) for q, (f, g) in zip(loop.squares, squares, strict=True)),
    )


def _walk_of(kernel: Kernel, buffers: Mapping[str, Buffer], plan: KernelPlan) -> Walk:
    kind = plan.word("walk")
    blocks = Blocks(
        plan.number("block"), plan.number("tile"), plan.number("warps"), bool(plan.number("persistent")),
        plan.number("parts"), plan.number("stages"),
    )  # fmt: skip
    _checked(kernel, plan, blocks)
    wide = is_wide(kernel, buffers)
    if is_scatter(kernel):
        points = kernel.steps[-1].red
        return Walk(kind, points, blocks, loops=(Loop((), _at_points(kernel.steps, points)),), wide=wide)
    if is_scan(kernel):
        rows = rows_of_chunks(kernel, buffers)
        return Walk(kind, rows, blocks, loops=_scanned(kernel.steps, rows), wide=wide)
    order = tuple(kernel.rows[int(k)] for k in plan.word("order").split())
    n = plan.number("inner")
    loops = loops_of(kernel)
    if kind == "points":
        return Walk(kind, order[: len(order) - n], blocks, order[len(order) - n :], loops, wide=wide)
    return Walk(kind, order, blocks, loops=_loops(loops, buffers, plan, blocks), weights=weights(loops), wide=wide)


def rows_of_chunks(kernel: Kernel, buffers: Mapping[str, Buffer]) -> tuple[Atom, ...]:
    """Return the rows of a scan; of one that is cut, the chunk's number and then the others."""
    *starts, step = kernel.steps
    rows = rows_of_scan(step, buffers)
    return (new_axis("k0", starts[0].axes[0].extent, step.axes), *rows) if starts else rows


def _at_points(steps: Sequence[Nest], points: Sequence[Atom]) -> tuple[Nest, ...]:
    """A scatter's steps: checks, over the points that they guard, then the scatter itself."""
    *checks, last = steps
    moved = [(c, tuple(points[: len(c.axes)]), dict(zip(c.axes, map(lift, points), strict=False))) for c in checks]
    return (*(replace(c, axes=axes, body=at(c.body, env)) for c, axes, env in moved), last)


def _scanned(steps: Sequence[Nest], rows: Sequence[Atom]) -> tuple[Loop, ...]:
    """The loops of a scan: what each row starts from, if anything, then its points."""
    *starts, step = steps
    moved = [(s, dict(zip(s.axes, map(lift, rows), strict=True))) for s in starts]
    first = tuple(replace(s, axes=tuple(rows), body=at(s.body, env)) for s, env in moved)
    return (*([Loop((), first)] if first else []), Loop(step.red, (step,)))


def _checked(kernel: Kernel, plan: KernelPlan, blocks: Blocks) -> None:
    kind = plan.word("walk")
    kinds = ("scatter",) if is_scatter(kernel) else ("scan",) if is_scan(kernel) else ("rows", "points")
    powers = all(n > 0 and n & (n - 1) == 0 for n in (blocks.rows, blocks.inner, blocks.warps, blocks.parts))
    in_parts = blocks.parts == 1 or (blocks.rows == 1 and not blocks.persistent and blocks.parts <= blocks.inner)
    sound = kind in kinds and powers and in_parts and blocks.stages > 0
    if kind in ("rows", "points"):
        order = sorted(map(int, plan.word("order").split()))
        sound &= order == list(range(len(kernel.rows))) and 0 <= plan.number("inner") <= len(order)
    if kind == "points":
        sound &= plan.number("inner") > 0 and all(
            s.kind == "map" and len(s.axes) == len(kernel.rows) for s in kernel.steps
        )
    if blocks.persistent:
        sound &= kind in ("rows", "scan") and _spans(kernel, blocks.inner)
    if not sound:
        chosen = {name: choice.value for name, choice in plan.choices.items()}
        raise InvalidArgumentError(f"kernel {plan.key} can't run as {chosen}", code="schedule.choice")


def _spans(kernel: Kernel, tile: int) -> bool:
    """Tell whether a tile spans the one range that all walks of a kernel have."""
    ranges = [s.red for s in kernel.steps] if is_scan(kernel) else [loop.inner for loop in loops_of(kernel)]
    found = {tuple(a.extent for a in axes) for axes in ranges if axes}
    known = [product(extents).const() for extents in found]
    return len(known) == 1 and known[0] is not None and known[0] <= tile


def _loops(loops: Sequence[Loop], buffers: Mapping[str, Buffer], plan: KernelPlan, blocks: Blocks) -> tuple[Loop, ...]:
    """Return the loops with what shares a walk, where their tiles start, and what the cache should keep."""
    if blocks.persistent:
        return over_one_range(loops)
    joined = plan.word("joins").split()
    if "exp" in joined:
        loops = with_exp_sums(loops)
    if "squares" in joined:
        loops = with_square_sums(loops)
    walks = [k for k, loop in enumerate(loops) if loop.inner]
    made: list[Loop] = []
    for k, loop in enumerate(loops):
        if not loop.inner:
            made.append(loop)
            continue
        before, after = ([loops[m] for m in walks if test(m)] for test in (k.__gt__, k.__lt__))
        back = walks.index(k) % 2 == 1
        extent = product([a.extent for a in loop.inner]).const()
        in_parts = blocks.parts > 1 and extent is not None
        shift = shift_of(loop, buffers) if in_parts and plan.number("align") else None
        if shift is not None and ((extent or 0) < shift.points or blocks.inner // blocks.parts < 2 * shift.points):
            shift = None  # the points around the aligned tiles would be more than a tile has lanes
        extrema = frozenset(s.out for s in loop.steps if s.kind in ("argmax", "argmin"))
        made.append(
            replace(
                loop,
                shift=shift,
                back=back,
                keep=tuple(_policies(loop, before, after).items()),
                by_part=_by_part(loop.inner, blocks) if in_parts else frozenset(),
                by_tile=extrema if in_parts and shift is None and not back else frozenset(),
            )
        )
    return tuple(made)


def _by_part(inner: Sequence[Atom], blocks: Blocks) -> frozenset[Atom]:
    """The axes that are the same for all lanes of a part: what lies below them is whole parts."""
    lanes, below, found = blocks.inner // blocks.parts, 1, set[Atom]()
    for a in reversed(inner):
        if len(inner) > 1 and below and below % lanes == 0:
            found.add(a)
        below *= a.extent.const() or 0
    return frozenset(found)


def _policies(loop: Loop, before: Sequence[Loop], after: Sequence[Loop]) -> dict[str, str]:
    """Say of each buffer what the cache should do with it: keep what is read again, and let go of the rest.

    Args:
        loop: A walk over a row.
        before: The walks over it that are done.
        after: Those to come.
    """
    earlier, here, later = (
        {name for one in loops for step in one.steps for name in step.reads()} for loops in (before, (loop,), after)
    )
    written = {step.out for step in loop.steps if step.kind == "map"} if before else ()
    found = {**dict.fromkeys([*(here & earlier), *written], "evict_first"), **dict.fromkeys(here & later, "evict_last")}
    return dict(sorted(found.items()))
