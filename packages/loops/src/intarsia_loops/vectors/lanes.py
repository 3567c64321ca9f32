"""Along which axis a kernel's lanes run: the one with which the fewest vectors are moved, as an estimate."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_loops.addresses import product
from intarsia_loops.index import ONE, ZERO, Atom, IndexExpr
from intarsia_loops.vectors.axes import lane_step
from intarsia_loops.vectors.groups import Group, group_steps
from intarsia_loops.vectors.steps import Step, accesses

__all__ = ["lane_row"]

# Extent taken for one that is known at run time only.
TYPICAL = 64
# Cost of one scalar op on a vector, where moving a vector to or from memory is 1.
ARITHMETIC = 0.25


def lane_row(
    rows: Sequence[Atom], steps: tuple[Step, ...], lanes: int, groups: Sequence[Group] | None = None
) -> int | None:
    """Return the position of the row axis that lanes should run along, or None where inner axes suit memory better.

    Args:
        rows: The kernel's rows.
        steps: Its steps, flat.
        lanes: Elements of a vector.
        groups: What shares a loop, where that is known already.
    """
    if any(s.kind == "cumprod" and s.dtype == "f32" for s in steps):
        return None  # eager multiplies in f64, which neighbouring rows in lanes don't
    best, choice = _inner_cost(groups if groups is not None else group_steps(steps), lanes), None
    for k, row in enumerate(rows):
        cost = sum(_extent(product(_loops_of(s))) * _vector_cost(s, row, lanes) for s in steps)
        cost *= _waste(row, lanes)
        if cost < best:
            best, choice = cost, k
    return choice


def _inner_cost(groups: Sequence[Group], lanes: int) -> float:
    """Work of one row with lanes along inner axes."""
    total = 0.0
    for group in groups:
        points = _extent(product(tuple(a.extent for a in group.loops)))
        if not group.loops:  # one number in all lanes of a vector
            total += sum(1 + lanes * ARITHMETIC * min(s.body.size, 100) for s in group.steps)
            continue
        costs = []
        for a in group.loops:
            costs.append(points * sum(_vector_cost(s, a, lanes) for s in group.steps) * _waste(a, lanes))
        total += min(costs) + sum(4 for s in group.steps if s.is_fold)
    return total


def _loops_of(step: Step) -> tuple[IndexExpr, ...]:
    return tuple(a.extent for a in step.inner + tuple(r for r in step.red if r not in step.inner))


def _vector_cost(step: Step, lane: Atom, lanes: int) -> float:
    """Cost of one vector of points when lanes run along `lane`: memory accesses and arithmetic."""
    reads = accesses(step.body)
    cost = sum(lanes if lane in moving else _walk_cost(e, lane, lanes) for _, e, moving in reads)
    if step.in_memory:
        cost += _walk_cost(step.address, lane, lanes)
    return cost + ARITHMETIC * min(step.body.size, 100)


def _walk_cost(address: IndexExpr, lane: Atom, lanes: int) -> float:
    step = lane_step(address, lane, lanes)
    if step is not None and step.const() == 2:
        return 3.0  # two vectors, and the even elements of both
    return 1.0 if step is ONE else 0.25 if step is ZERO else lanes


def _waste(lane: Atom, lanes: int) -> float:
    """Vector lanes paid for each lane used."""
    n = _extent(lane.extent)
    return -(-n // lanes) * lanes / max(n, 1)


def _extent(expr: IndexExpr) -> int:
    n = expr.const()
    return TYPICAL if n is None else n
