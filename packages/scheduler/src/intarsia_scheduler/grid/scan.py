"""Scans: a program walks the tiles of a row and carries what it has folded so far. Each is a kernel of its own.

    y[i, a] = fold of f(i, b) over b <= a

Few rows leave most of a GPU idle, so these may be cut into chunks of L points, in three launches:

    t[k, i] = fold of f(i, b) over the points b of chunk k                    for each chunk that is full
    c[k, i] = fold of t[j, i] over j <= k                                     a scan of few points
    y[i, a] = c[k - 1, i] folded with f(i, b) over k L <= b <= a              for each chunk k

The last one is written as a scan with a map before it, which says what each chunk starts from.
"""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_loops.index import Atom, lift, row_major
from intarsia_loops.ops import identity_of
from intarsia_loops.program import Buffer, Kernel, Nest, const, index_value, load, val
from intarsia_loops.rewrites import at
from intarsia_scheduler.grid.split import Split, new_axis, new_name

__all__ = ["in_chunks", "rows_of_scan"]


def in_chunks(kernel: Kernel, length: int, buffers: Mapping[str, Buffer]) -> Split:
    """Return a scan as three launches.

    Args:
        kernel: A scan, which is its only step.
        length: Points of a chunk.
        buffers: Layout of every buffer in memory.
    """
    (step,) = kernel.steps
    (scanned,), others = step.red, rows_of_scan(step, buffers)
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
    nothing = const(identity_of(step.kind, step.body.dtype), step.body.dtype)
    body = val("where", follows, before, nothing, dtype=running.dtype)
    return Nest(f"{running.out}_chunk", axes, (), "map", body, running.dtype)


def rows_of_scan(step: Nest, buffers: Mapping[str, Buffer]) -> tuple[Atom, ...]:
    """Return the axes of a scan's rows, in the order in which they lie in memory where that is known."""
    strides = {a: s.const() for a, s in zip(step.axes, buffers[step.out].strides, strict=True) if a not in step.red}
    return tuple(sorted(strides, key=lambda a: -(strides[a] or 0))) if None not in strides.values() else (*strides,)
