"""What one Triton kernel computes: the loops of a kernel of the dialect, arranged for a 2D tile.

A program of the grid takes a block of rows; inside, one loop walks a block of inner points at a time, so every value
is a tile [rows, inner]. That shape needs three things, established here:
  1. Maps are computed where they are read: a load of an earlier map step becomes its body, at that index. No thread
     ever reads what another one wrote.
  2. A reduction whose axes are the rows becomes a row scalar, a tile [rows, 1].
  3. Anything else (scans, reductions with inner axes, what gathers from a step before it) is a kernel of its own, as is
     each step of a kernel that has one: `pieces` splits it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from intarsia_loops.index import Atom, IndexExpr, lift
from intarsia_loops.launches import ExpSum, Loop, SquareSum
from intarsia_loops.ops import NEST_KINDS
from intarsia_loops.program import Kernel, Nest, Val, scatter_of
from intarsia_loops.rewrites import at, rebuild

__all__ = [
    "is_scan",
    "is_scatter",
    "is_tiled",
    "loops_of",
    "over_one_range",
    "pieces",
    "weights",
    "with_exp_sums",
    "with_square_sums",
]

T = TypeVar("T")


def is_scatter(kernel: Kernel) -> bool:
    """Tell whether a kernel is a scatter, which is its last step; those before it are checks of its points."""
    return scatter_of(kernel.steps[-1]) is not None


def is_scan(kernel: Kernel) -> bool:
    """Tell whether a kernel is a scan, which is its last step."""
    return bool(kernel.steps) and NEST_KINDS[kernel.steps[-1].kind].scan


def is_tiled(kernel: Kernel) -> bool:
    """Tell whether a kernel is one launch of 2D tiles: what `pieces` gives is, whatever it is given."""
    if is_scatter(kernel) or len(kernel.steps) == 1:
        return True
    n_rows, made = len(kernel.rows), {step.out for step in kernel.steps}
    gathers = any(v.op == "gather" and v.args[0] in made for step in kernel.steps for v in step.body.loads)
    return not gathers and all(_fits(step, n_rows) for step in kernel.steps)


def pieces(kernel: Kernel) -> tuple[Kernel, ...]:
    """Return kernels that together compute `kernel`, each of which fits the 2D tile.

    The kernel itself, when it does; else kernels of steps that follow each other and have the same axes. Local buffers
    that others of them read live in memory.
    """
    if is_scatter(kernel):  # with checks of its points, perhaps
        return (Kernel((), kernel.steps, kernel.local),)
    if is_tiled(kernel):
        return (kernel if len(kernel.steps) > 1 else _alone(kernel.steps[0]),)
    groups: list[list[Nest]] = []
    for step in kernel.steps:
        if groups and _same_rows(groups[-1], step):
            groups[-1].append(_with_rows(step, groups[-1][0].axes))
        else:
            groups.append([step])
    return tuple(_group(steps, kernel) for steps in groups)


def _same_rows(group: Sequence[Nest], step: Nest) -> bool:
    """Tell whether a step has the axes of others, of which it reads just what they made at the same ones."""
    rows = group[0].axes
    if any(NEST_KINDS[s.kind].scan for s in (*group, step)) or [a.extent for a in rows] != [
        a.extent for a in step.axes
    ]:
        return False
    here, made = tuple(map(lift, step.axes)), {s.out for s in group}
    return all(v.op == "load" and v.args[1] == here for v in step.body.loads if v.args[0] in made)


def _group(steps: Sequence[Nest], kernel: Kernel) -> Kernel:
    if len(steps) == 1:
        return _alone(steps[0])
    apart = {name for s in kernel.steps if s.out not in {t.out for t in steps} for name in s.reads()}
    return Kernel(steps[0].axes, tuple(steps), frozenset(s.out for s in steps if s.out in kernel.local - apart))


def _fits(step: Nest, n_rows: int) -> bool:
    return step.kind == "map" or (not NEST_KINDS[step.kind].scan and len(step.axes) == n_rows)


def _alone(step: Nest) -> Kernel:
    """One step as a kernel: every axis a row; a scan has none here."""
    return Kernel(() if NEST_KINDS[step.kind].scan else step.axes, (step,))


def loops_of(kernel: Kernel) -> tuple[Loop, ...]:
    """Return the loops of a kernel that `pieces` gave, in order."""
    maps: dict[str, Nest] = {}
    made: set[str] = set()
    loops: list[Loop] = []
    for original in kernel.steps:
        step = _with_rows(original, kernel.rows)
        step = replace(step, body=_inlined(step.body, maps))
        if step.kind == "map":
            maps[step.out] = step
            if step.out in kernel.local:
                continue
        inner = step.red or step.axes[len(kernel.rows) :]
        if loops and _joins(loops[-1], inner, step, made):
            last = loops[-1]
            loops[-1] = Loop(last.inner, (*last.steps, _over(step, inner, last.inner)))
        else:
            loops.append(Loop(tuple(inner), (step,)))
            made = set()
        if step.kind != "map":
            made.add(step.out)
    return tuple(loops)


def with_exp_sums(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """Return loops where sums of exponentials join the walk that finds their maximum: one pass instead of two.

    Law: exp(f - g) = exp(f - h) * exp(h - g); the walk keeps the sum relative to the largest value so far, h.
    """
    return _joined(loops, _exp_sum, lambda loop, found: replace(loop, sums=(*loop.sums, found)))


def weights(loops: Sequence[Loop]) -> frozenset[str]:
    """Return the sums of exponentials relative to just their maximum: numbers from 1 to that of the points, or NaN.

    One over such a number is normal, so a quotient may be had from it.
    """
    found = [s for loop in with_exp_sums(loops) for s in loop.sums]
    return frozenset(s.step.out for s in found if s.shift.op == "load")


def with_square_sums(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """Return loops where sums of squared distances join the walk that finds what they are from.

    Law: the sum of (f - g)^2 over n points is M + n * (m - g)^2, with m their mean and M the sum of (f - m)^2; both
    are kept for each lane of a tile, and merged tile by tile (Chan, Golub and LeVeque), which cancels no digits.
    """
    return _joined(loops, _square_sum, lambda loop, found: replace(loop, squares=(*loop.squares, found)))


def _joined(
    loops: Sequence[Loop], found_in: Callable[[Nest, Loop, Loop], T | None], joined: Callable[[Loop, T], Loop]
) -> tuple[Loop, ...]:
    """Move each step that an earlier loop can take, as `found_in` says, into the first such loop."""
    done: list[Loop] = []
    for loop in loops:
        kept: list[Nest] = []
        for step in loop.steps:
            for k, other in enumerate(done):
                found = found_in(step, loop, other)
                if found is not None:
                    done[k] = joined(other, found)
                    break
            else:
                kept.append(step)
        if kept or loop.sums or loop.squares:
            done.append(replace(loop, steps=tuple(kept)))
    return tuple(done)


def _square_sum(step: Nest, loop: Loop, other: Loop) -> SquareSum | None:
    """Return a step of `loop` as a sum of squares that `other` can take; None when it isn't one."""
    body = step.body
    if step.kind != "sum" or body.op != "mul" or body.args[0] is not body.args[1] or body.args[0].op != "sub":
        return None
    extents = [a.extent for a in other.inner]
    if not extents or [a.extent for a in loop.inner] != extents or any(n.const() is None for n in extents):
        return None
    value, shift = _over(replace(step, body=body.args[0]), loop.inner, other.inner).body.args
    total = next((s for s in other.steps if s.kind == "sum" and s.body is value), None)
    relative = {v.args[0] for v in shift.loads} == {total.out} if total is not None else False
    return SquareSum(step, value, shift) if relative else None


def _exp_sum(step: Nest, loop: Loop, other: Loop) -> ExpSum | None:
    """Return a step of `loop` as a sum that `other`, which finds its maximum, can take; None when it isn't one."""
    body = step.body
    if step.kind != "sum" or body.op != "exp" or body.args[0].op != "sub" or not other.inner:
        return None
    if [a.extent for a in loop.inner] != [a.extent for a in other.inner]:
        return None
    exponent, shift = _over(replace(step, body=body.args[0]), loop.inner, other.inner).body.args
    top = next((s for s in other.steps if s.kind == "max" and s.body is exponent), None)
    relative = {v.args[0] for v in shift.loads} == {top.out} if top is not None else False
    return ExpSum(step, top.out, exponent, shift) if top is not None and relative else None


def over_one_range(loops: Sequence[Loop]) -> tuple[Loop, ...]:
    """Return loops over the same inner extents as loops over the same axes: those of the first."""
    inner = next(loop.inner for loop in loops if loop.inner)
    return tuple(
        Loop(inner, tuple(_over(s, loop.inner, inner) for s in loop.steps)) if loop.inner else loop for loop in loops
    )


def _joins(loop: Loop, inner: Sequence[Atom], step: Nest, made: set[str]) -> bool:
    """A step shares a loop when it walks the same points and needs no row scalar that this very loop makes."""
    same = [a.extent for a in loop.inner] == [a.extent for a in inner]
    return same and made.isdisjoint(step.reads())


def _with_rows(step: Nest, rows: tuple[Atom, ...]) -> Nest:
    env = {a: lift(r) for a, r in zip(step.axes, rows, strict=False) if a is not r}
    return replace(step, axes=(*rows, *step.axes[len(rows) :]), body=at(step.body, env)) if env else step


def _over(step: Nest, inner: Sequence[Atom], target: tuple[Atom, ...]) -> Nest:
    """The step over the loop's own inner axes."""
    env: Mapping[Atom, IndexExpr] = {a: lift(b) for a, b in zip(inner, target, strict=True) if a is not b}
    n_rows = len(step.axes) - (0 if step.red else len(inner))
    axes = step.axes if step.red else (*step.axes[:n_rows], *target)
    return replace(step, axes=axes, red=target if step.red else (), body=at(step.body, env))


def _inlined(body: Val, maps: Mapping[str, Nest]) -> Val:
    def leaf(v: Val) -> Val:
        if v.op != "load" or v.args[0] not in maps:
            return v
        made = maps[v.args[0]]
        return at(made.body, dict(zip(made.axes, v.args[1], strict=True)))

    return rebuild(body, leaf)
