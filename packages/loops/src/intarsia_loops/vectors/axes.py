"""Loops as memory walks them: split at run-time sizes, merged where addresses walk them as one, one along the lanes."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_loops.addresses import product
from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr, axis, lift
from intarsia_loops.vectors.steps import Step, accesses

__all__ = ["collapse", "lane_step", "lone_remainder", "separate", "unit_stride_score"]


def separate(axes: Sequence[Atom], addresses: Sequence[IndexExpr]) -> tuple[list[Atom], dict[Atom, IndexExpr]]:
    """Split loops over products of run-time sizes where addresses divide by one of the factors.

    before: for m < A*B: f(m // B, m % B)                after: for a < A: for b < B: f(a, b)

    Divisions by numbers stay: they cost little, and whole vectors pass them.
    """
    done: list[Atom] = []
    env: dict[Atom, IndexExpr] = {}
    left = list(axes)
    while left:
        a = left.pop(0)
        divisor = _factor(a, [e.subst(env) for e in addresses])
        if divisor is None:
            done.append(a)
            continue
        outer, inner = axis(f"{a.key}a", a.extent // divisor), axis(f"{a.key}b", divisor)
        step = {a: lift(outer) * divisor + lift(inner)}
        env = {x: e.subst(step) for x, e in env.items()} | step
        left[:0] = [outer, inner]
    return done, env


def _factor(a: Atom, addresses: Sequence[IndexExpr]) -> IndexExpr | None:
    """The run-time size that divides the extent of a loop and every divisor that addresses divide its variable by."""
    if a.extent.const() is not None:
        return None
    whole = lift(a)
    divisors = list(dict.fromkeys(x.b for e in addresses for x in _divisions(e) if x.a is whole))
    for d in divisors:
        if d.const() is None and a.extent % d is ZERO and all(b % d is ZERO for b in divisors):
            return d
    return None


def _divisions(e: IndexExpr) -> list[Atom]:
    """Every quotient and remainder in an expression, also inside others."""
    found = [x for x in e.atoms() if x.kind in ("/", "%")]
    return found + [y for x in found for y in _divisions(x.a)]


def collapse(axes: Sequence[Atom], addresses: Sequence[IndexExpr]) -> tuple[tuple[Atom, ...], dict[Atom, IndexExpr]]:
    """Merge neighbouring loops that every address walks as one.

    before: for a < A: for b < B: f(B*s*a + s*b)         after: for m < A*B: f(s*m)

    Loops of extent 1 disappear. Legal for (a, b) iff every address has coef(a) == coef(b) * extent(b).

    Args:
        axes: Loops, outermost first.
        addresses: Every expression that depends on them.

    Returns:
        The remaining loops and what to substitute for the old ones.
    """
    env: dict[Atom, IndexExpr] = {a: ZERO for a in axes if a.extent is ONE}
    left = [a for a in axes if a.extent is not ONE]
    exprs = [e.subst(env) for e in addresses]
    for k in range(len(left) - 2, -1, -1):
        a, b = left[k], left[k + 1]
        if not all(_walked_as_one(e, a, b) for e in exprs):
            continue
        merged = axis(f"{a.key}{b.key}", a.extent * b.extent)
        step = {a: ZERO, b: lift(merged)}
        exprs = [e.subst(step) for e in exprs]
        env = {x: e.subst(step) for x, e in env.items()} | step
        left[k : k + 2] = [merged]
    return tuple(left), env


def _walked_as_one(expr: IndexExpr, a: Atom, b: Atom) -> bool:
    of_a, of_b = expr.coef(a), expr.coef(b)
    return of_a is not None and of_b is not None and of_a[0] is of_b[0] * b.extent


def lane_step(expr: IndexExpr, lane: Atom, lanes: int) -> IndexExpr | None:
    """Return what the next lane of a vector adds to `expr`; None when that isn't the same for every lane.

    Vectors start at multiples of their width: for b and rest multiples of `lanes`, and l < lanes,
    (lane + l + rest) // b = (lane + rest) // b         (lane + l + rest) % b = (lane + rest) % b + l
    """
    split = expr.coef(lane)
    if split is not None:
        return split[0]
    total = ZERO
    for monomial, k in expr.terms:
        moving = [a for a in monomial if a is lane or (a.kind in ("/", "%") and lane in (a.a.axes() | a.b.axes()))]
        if not moving:
            continue
        step = _atom_step(moving[0], lane, lanes) if len(moving) == 1 else None
        if step is None:
            return None
        total = total + step * lift(k) * product([lift(a) for a in monomial if a is not moving[0]])
    return total


def lone_remainder(expr: IndexExpr, lane: Atom) -> Atom | None:
    """Return the remainder `(lane + c) % n`, n a run-time size, if nothing else in `expr` moves with the lanes.

    Until it wraps, each lane adds 1 to it, and so to `expr`.
    """
    found = None
    for monomial, k in expr.terms:
        moving = [a for a in monomial if a is lane or (a.kind in ("/", "%") and lane in (a.a.axes() | a.b.axes()))]
        if not moving:
            continue
        if found is not None or len(monomial) > 1 or k != 1 or moving[0].kind != "%":
            return None
        found = moving[0]
    if found is None or found.b.const() is not None or lane in found.b.axes():
        return None
    split = found.a.coef(lane)
    return found if split is not None and split[0] is ONE else None


def _atom_step(atom: Atom, lane: Atom, lanes: int) -> IndexExpr | None:
    if atom is lane:
        return ONE
    split, divisor = atom.a.coef(lane), atom.b.const()
    if split is None or split[0] is not ONE or divisor is None or divisor % lanes:
        return None
    if any(k % lanes for _, k in split[1].terms):
        return None
    return ZERO if atom.kind == "/" else ONE


def unit_stride_score(a: Atom, steps: tuple[Step, ...], lanes: int) -> int:
    """Return how well a loop suits vector lanes: accesses of stride 1 count most, of other strides against it."""
    score = 0
    for step in steps:
        none = frozenset[Atom]()
        weights = [(step.address, 3, none)] if step.in_memory else []
        weights += [(address, 2, moving) for _, address, moving in accesses(step.body)]
        for address, weight, moving in weights:
            walk = None if a in moving else lane_step(address, a, lanes)
            score += weight if walk is ONE else 0 if walk is ZERO else -2 * weight
    return score
