"""Rows that start at odd addresses: where a walk must begin so that its tiles are read 16 bytes at a time.

    x[i * 50257 + r], 4 bytes each      rows start at 0, 50257, 100514, ...; aligned points have r = head(i) + 4 * k

A walk then has a body of whole tiles from `head` on, one tile whose end is a multiple of 4 points, and the few points
before and after that. Measured on an H200 for rows of 50257 floats: 10 to 17% of the time.
"""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_ir.dtypes import itemsize
from intarsia_loops.addresses import address
from intarsia_loops.index import IndexExpr, lift
from intarsia_loops.launches import Loop, Shift
from intarsia_loops.program import Buffer

__all__ = ["shift_of"]

BYTES = 16


def shift_of(loop: Loop, buffers: Mapping[str, Buffer]) -> Shift | None:
    """Return by how much a walk must be shifted to be aligned; None when it is, or when no shift aligns all of it.

    Args:
        loop: A walk over one inner axis.
        buffers: Layout of every buffer in memory.
    """
    if len(loop.inner) != 1:
        return None
    (inner,) = loop.inner
    found: set[Shift] = set()
    for name, index in _accesses(loop):
        if name not in buffers:
            continue
        if any(not isinstance(e, IndexExpr) for e in index):
            return None
        offset = address(index, buffers[name].strides)
        if inner not in offset.axes():
            continue
        split = offset.coef(inner)
        if split is None or split[0] is not lift(1):
            return None
        found.add(Shift(split[1], BYTES // itemsize(buffers[name].dtype)))
    if len(found) != 1:
        return None
    (shift,) = found
    return shift if any(k % shift.points for _, k in shift.start.terms) and shift.points > 1 else None


def _accesses(loop: Loop) -> list[tuple[str, tuple[IndexExpr, ...]]]:
    bodies = [step.body for step in loop.steps] + [s.exponent for s in loop.sums] + [s.value for s in loop.squares]
    reads = [(v.args[0], v.args[1]) for body in bodies for v in body.loads]
    return reads + [(s.out, tuple(map(lift, s.axes))) for s in loop.steps if s.kind == "map"]
