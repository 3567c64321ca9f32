"""Kernels that follow each other as one: a reduction with the map that reads it, a check of indices with their use.

A reduction and a map that runs over the same points in another order:

    m[n, g] = sum over k, p of x[n, 16 g + k, p];   y[n, c, p] = f(x[n, c, p], m[n, c // 16])
      →   for each n, g:  m = sum over k, p of x[n, 16 g + k, p];   y'[n, g, k, p] = f(x[n, 16 g + k, p], m)

y' is y's memory under a view of as many points. A row of the reduction is then read twice by the same program, the
second time out of the L2 cache, instead of once by each of two launches. Side conditions:
  1. The reduction reads some tensor at E(rows, inner), the map reads it at its own axes: c = E names each point of the
     map once.
  2. Below that substitution the map reads the reduction's results at the row itself.
Whether such a merge is made is a decision: a row should fit the registers of a program, or the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from intarsia_loops.addresses import address, product
from intarsia_loops.index import Atom, IndexExpr, lift, row_major
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Buffer, Extern, Kernel, Nest, Program, TensorRef, Val, load
from intarsia_loops.rewrites import at, rebuild
from intarsia_scheduler.decide import Decide
from intarsia_scheduler.grid.loops import is_scatter, is_tiled, loops_of

__all__ = ["Joint", "joined"]


@dataclass(frozen=True, slots=True)
class Joint:
    """Items of a program that one kernel does.

    Args:
        kernel: What to compute.
        items: First and one past the last position.
        parts: First and one past the last number of what it was put together from.
        views: Layouts of written buffers, where the kernel sees them under another shape.
        checks: Outputs of steps that are asserted instead of stored, with what is said when one is false.
    """

    kernel: Kernel
    items: tuple[int, int]
    parts: tuple[int, int]
    views: Mapping[str, Buffer] = field(default_factory=dict)
    checks: Mapping[str, str] = field(default_factory=dict)


def joined(program: Program, parts: Sequence[tuple[int, Kernel | Extern]], decide: Decide) -> Iterator[Joint]:
    """Yield the kernels of a program in order, reductions with the maps that follow them.

    Args:
        program: What it was.
        parts: What is to be launched, and calls; each with the position of its item.
        decide: Says which of the possible merges are made.
    """
    readers = _readers(parts, program)
    waiting: list[Joint] = []  # what the next kernel may take in; all but the last are checks
    for n, (position, item) in enumerate(parts):
        if isinstance(item, Extern):
            if waiting and waiting[-1].items[1] == position and item.target is torch.ops.aten._assert_async.msg:
                waiting[-1] = _with_check(waiting[-1], item, n, program, readers, decide) or waiting[-1]
            continue
        here = Joint(item, (position, position + 1), (n, n + 1))
        while waiting and waiting[-1].items[1] >= here.items[0]:
            join = _checked if _is_only_check(waiting[-1]) else _both
            both = join(waiting[-1], here, program, readers, decide)
            if both is None:
                break
            here = both
            waiting.pop()
        if not _may_be_check(here, readers):
            yield from map(_unchecked, waiting)
            waiting.clear()
        waiting.append(here)
    yield from map(_unchecked, waiting)


def _may_be_check(joint: Joint, readers: Mapping[str, int]) -> bool:
    kernel = joint.kernel
    step = kernel.steps[0]
    return len(kernel.steps) == 1 and step.kind == "all" and not step.axes and readers.get(step.out) == 1


def _is_only_check(joint: Joint) -> bool:
    return len(joint.kernel.steps) == 1 and joint.kernel.steps[0].out in joint.checks


def _with_check(
    last: Joint, item: Extern, number: int, program: Program, readers: Mapping[str, int], decide: Decide
) -> Joint | None:
    """Return the kernel before an assertion with the assertion as a part of it; None where that can't be."""
    kernel, items, parts = last.kernel, (last.items[0], last.items[1] + 1), (last.parts[0], number + 1)
    found = [s for s in kernel.steps if item.reads() == {s.out}]
    if not found or found[0].kind != "all" or found[0].axes or readers.get(found[0].out) != 1:
        return None
    alone = Joint(Kernel((), (found[0],)), items, parts, checks={found[0].out: item.args[1]})
    if len(kernel.steps) == 1:
        return alone
    others = replace(last, kernel=replace(kernel, steps=tuple(s for s in kernel.steps if s is not found[0])))
    both = _checked(alone, replace(others, parts=parts), program, readers, decide)
    return replace(both, items=items) if both is not None else None


def _unchecked(joint: Joint) -> Joint:
    """Leave a check that no kernel takes in to the library call."""
    if not _is_only_check(joint):
        return joint
    (first, last), (low, high) = joint.items, joint.parts
    return replace(joint, items=(first, last - 1), parts=(low, high - 1), checks={})


def _checked(check: Joint, user: Joint, program: Program, readers: Mapping[str, int], decide: Decide) -> Joint | None:
    """Return the kernel of `user` with the check as its first step; None where a side condition fails."""
    (step,), kernel = check.kernel.steps, user.kernel
    if any(NEST_KINDS[s.kind].scan for s in kernel.steps):
        return None
    if not is_tiled(kernel) or {s.out for s in kernel.steps} & step.reads():
        return None
    inner = next((loop.inner for loop in loops_of(kernel) if loop.inner), ())
    parts = (check.parts[0], user.parts[1])
    over = replace(step, axes=step.red, red=(), kind="map")
    for env in _places(over, kernel, inner):
        axes = kernel.rows if all(e.axes() <= {*kernel.rows} for e in env.values()) else (*kernel.rows, *inner)
        used = [a for a in axes if any(a in e.axes() for e in env.values())]
        shape = [axis.extent for axis in step.red]
        position = address([env[axis] for axis in step.red], row_major(shape))
        if not _names_all_once(position, used, product(shape)):
            continue
        if not decide.check(parts, kernel, {**program.buffers, **user.views}):
            return None
        asserted = replace(over, axes=axes, body=at(over.body, env))
        shape = [axis.extent for axis in axes]
        layout = Buffer(tuple(shape), row_major(shape), "b8")
        return Joint(
            replace(kernel, steps=(asserted, *kernel.steps)),
            (check.items[0], user.items[1]),
            parts,
            {**user.views, step.out: layout},
            {**user.checks, **check.checks},
        )
    return None


def _readers(parts: Sequence[tuple[int, Kernel | Extern]], program: Program) -> Mapping[str, int]:
    """Return how many kernels and calls read each buffer; a result of the program has a reader more."""
    found: dict[str, int] = {}
    for _, item in parts:
        for name in item.reads():
            found[name] = found.get(name, 0) + 1
    for output in program.outputs:
        if isinstance(output, TensorRef):
            found[output.buffer] = found.get(output.buffer, 0) + 1
    return found


def _both(first: Joint, second: Joint, program: Program, readers: Mapping[str, int], decide: Decide) -> Joint | None:
    """Return one kernel for both; None where a side condition fails."""
    a, b, buffers = first.kernel, second.kernel, program.buffers
    if second.checks:  # they come before the map, and the reduction before them
        return None
    scalars = {s.out for s in a.steps if len(s.axes) == len(a.rows)}
    made = {s.out for s in a.steps}
    maps = all(s.kind == "map" for s in b.steps)
    if not maps or not any(s.red for s in a.steps) or not is_tiled(a) or _scans(a) or made.isdisjoint(b.reads()):
        return None
    if not made & b.reads() <= scalars:
        return None
    inner = next((loop.inner for loop in loops_of(a) if loop.inner), ())
    steps: list[Nest] = []
    views: dict[str, Buffer] = {}
    for loop in loops_of(b):
        for step in loop.steps:
            moved = _moved(step, first, inner, buffers)
            if moved is None:
                return None
            views[step.out], new = moved
            steps.append(new)
    kernel = Kernel(a.rows, (*a.steps, *steps), a.local)
    walks_again = any(len(s.axes) > len(a.rows) for s in steps)
    parts = (first.parts[0], second.parts[1])
    if not decide.merge(parts, kernel, inner if walks_again else (), {**buffers, **views}):
        return None
    # a result with no other reader stays in registers
    inside = {name for name in made & b.reads() if readers.get(name, 0) == 1}
    return Joint(
        replace(kernel, local=a.local | inside), (first.items[0], second.items[1]), parts, {**first.views, **views}
    )


def _scans(kernel: Kernel) -> bool:
    """Tell whether a kernel is a scan, or has one among its steps, or is a scatter."""
    return is_scatter(kernel) or any(NEST_KINDS[s.kind].scan for s in kernel.steps)


def _moved(
    step: Nest, first: Joint, inner: tuple[Atom, ...], buffers: Mapping[str, Buffer]
) -> tuple[Buffer, Nest] | None:
    """Return a map over the rows of `first`, and its inner points if any, with the layout of what it writes."""
    a = first.kernel
    for env in _places(step, a, inner):
        axes = a.rows if all(e.axes() <= {*a.rows} for e in env.values()) else (*a.rows, *inner)
        index = [env[axis] for axis in step.axes]
        shape = [axis.extent for axis in step.axes]
        if not _names_all_once(address(index, row_major(shape)), axes, product(shape)):
            continue
        body = _reading_rows(at(step.body, env), first, buffers)
        if body is None:
            continue
        strides = _coefficients(address(index, buffers[step.out].strides), axes)
        if strides is not None:
            layout = replace(buffers[step.out], shape=tuple(x.extent for x in axes), strides=strides)
            return layout, replace(step, axes=axes, body=body)
    return None


def _reading_rows(body: Val, first: Joint, buffers: Mapping[str, Buffer]) -> Val | None:
    """Return `body` with the results of a row read at the row; None where it reads those of another row."""
    here = tuple(map(lift, first.kernel.rows))
    made = {s.out for s in first.kernel.steps}

    def is_here(v: Val) -> bool:
        name, index = v.args
        seen = {**buffers, **first.views}[name]
        return v.op == "load" and address(index, buffers[name].strides) == address(here, seen.strides)

    if not all(is_here(v) for v in body.loads if v.args[0] in made):
        return None
    return rebuild(body, lambda v: load(v.args[0], here, v.dtype) if v.op == "load" and v.args[0] in made else v)


def _places(step: Nest, a: Kernel, inner: tuple[Atom, ...]) -> Iterator[dict[Atom, IndexExpr]]:
    """Yield what the axes of a map may stand for: the index at which `a` reads what the map reads at its own axes."""
    known = {*a.rows, *inner}
    pairs = zip(_of_size(step.axes), _of_size((*a.rows, *inner)), strict=False)
    if [x.extent for x in _of_size(step.axes)] == [x.extent for x in _of_size((*a.rows, *inner))]:
        yield {axis: lift(0) for axis in step.axes} | {x: lift(y) for x, y in pairs}
    theirs = [v for loop in loops_of(a) for s in loop.steps for v in s.body.loads if v.op == "load"]
    for v in step.body.loads:
        if v.op != "load":
            continue
        indices = [w.args[1] for w in theirs if w.args[0] == v.args[0]]
        indices += [tuple(map(lift, a.rows)) for s in a.steps if s.out == v.args[0]]
        for index in dict.fromkeys(indices):
            env = _env(step.axes, v, index)
            if env is not None and all(e.axes() <= known for e in env.values()):
                yield env


def _of_size(axes: Sequence[Atom]) -> list[Atom]:
    return [axis for axis in axes if axis.extent is not lift(1)]


def _env(axes: Sequence[Atom], v: Val, index: Sequence[IndexExpr]) -> dict[Atom, IndexExpr] | None:
    env: dict[Atom, IndexExpr] = {axis: lift(0) for axis in axes if axis.extent is lift(1)}
    if len(index) != len(v.args[1]):
        return None
    for place, entry in zip(v.args[1], index, strict=True):
        axis = next((x for x in axes if place is lift(x)), None)
        if axis is not None:
            env[axis] = entry
    return env if len(env) == len(axes) else None


def _names_all_once(position: IndexExpr, axes: Sequence[Atom], n_points: IndexExpr) -> bool:
    """Tell whether `position` runs through 0 .. n_points - 1, each once, when the axes run through all their points."""
    coefficients = _coefficients(position, axes)
    if coefficients is None:
        return False
    numbers = [(c.const(), a.extent.const()) for c, a in zip(coefficients, axes, strict=True)]
    if any(c is None or n is None for c, n in numbers):
        return False
    below = 1
    for c, n in sorted((c, n) for c, n in numbers if c is not None and n is not None and n != 1):
        if c != below:
            return False
        below *= n
    return below == n_points.const()


def _coefficients(e: IndexExpr, axes: Sequence[Atom]) -> tuple[IndexExpr, ...] | None:
    """Return what each axis is multiplied with; None where the expression is anything but a sum of these."""
    found: list[IndexExpr] = []
    for axis in axes:
        split = e.coef(axis)
        if split is None or split[0].axes():
            return None
        found.append(split[0])
        e = split[1]
    return tuple(found) if e is lift(0) else None
