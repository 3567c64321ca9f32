"""The rules for a CPU: what pays, with numbers from measurements on AVX2 and AVX-512.

Each rule answers one kind of question; `others` are answers of which each gives the same results, for a search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from intarsia_ir.dtypes import itemsize
from intarsia_loops.addresses import product
from intarsia_loops.index import IndexExpr
from intarsia_loops.vectors.axes import unit_stride_score
from intarsia_loops.vectors.lanes import lane_row
from intarsia_scheduler.plan import Choice
from intarsia_scheduler.vectors.questions import (
    Accumulators,
    Carry,
    Chain,
    Gather,
    Hoist,
    Keep,
    Lane,
    Least,
    Lines,
    Narrow,
    Order,
    Parts,
    Pieces,
    PointLane,
    Question,
    Shape,
    Split,
    Tile,
    Vector,
    Who,
)

__all__ = ["vector_rule"]

# Extent taken for one that is known at run time only.
TYPICAL = 64
# Rows side by side in a block at most.
MOST_COLUMNS = 512
# Below this much work (in additions) waking the other threads costs more than they save.
SERIAL_WORK = 1 << 17
# Accumulators of a reduction.
UNROLL = 4
# Lines of memory that are folded before the accumulators are touched, and operations in all of them, at most.
LINES, OPERATIONS = 8, 64
# Squares in which what is transposed is visited.
SQUARE = 64


def vector_rule(word: str, question: Question) -> Choice:
    """Return the answer to a question, with its reason."""
    return _RULES[type(question)](question)


def _narrow(q: Narrow) -> Choice:
    return Choice(1, "twice as many lanes compute positions", (0,))


def _vector(q: Vector) -> Choice:
    return Choice(q.most, f"a register has {q.most} of the widest type")


def _least(q: Least) -> Choice:
    return Choice(SERIAL_WORK, "additions that take as long as waking threads", (SERIAL_WORK // 4, 4 * SERIAL_WORK))


def _shape(q: Shape) -> Choice:
    position = lane_row(q.rows, q.steps, q.lanes, q.groups)
    ways = ["rows", *(f"columns {k} {_width(q, k)}" for k in range(len(q.rows)))]
    ways = [w for w in ways if q.allows(w)]
    made = "rows" if position is None else f"columns {position} {_width(q, position)}"
    why = "inner axes suit memory better" if position is None else "neighbouring rows are neighbours in memory"
    return Choice(made, why, tuple(w for w in ways if w != made))


def _width(q: Shape, position: int) -> int:
    """Rows in a block: enough for whole cache lines, few enough for every thread and for the local arrays.

    Where their number is known at run time only, the most that there may be.
    """
    others = product(tuple(a.extent for k, a in enumerate(q.rows) if k != position)).const() or 1
    pieces = -(-q.threads // others)
    known = q.rows[position].extent.const()
    most = MOST_COLUMNS if known is None else min(MOST_COLUMNS, -(-known // pieces))
    kept = sum(_extent(a.length) * itemsize(a.dtype) for a in q.kept.values() if a.shape)
    if kept:
        most = min(most, max(2 * q.lanes, q.machine.stack_bytes // kept))
    return max(-(-most // q.lanes), 1) * q.lanes


def _extent(expr: IndexExpr) -> int:
    n = expr.const()
    return TYPICAL if n is None else n


def _order(q: Order) -> Choice:
    """The innermost loop is the one that most accesses walk with stride 1; the first result decides ties."""
    places = list(range(len(q.loops)))
    if q.fixed:
        return Choice(q.plain, "of equals the first is looked for")
    if q.first is not None:
        strides = [split[0].hi if (split := q.first.coef(a)) is not None else 0 for a in q.loops]
        places.sort(key=lambda k: -strides[k])
    if places:
        scores = [unit_stride_score(a, q.steps, q.lanes) for a in q.loops]
        best = max(places, key=lambda k: (scores[k], places.index(k)))
        places.remove(best)
        places.append(best)
    made = " ".join(map(str, places))
    turned = [" ".join(map(str, places[k:] + places[:k])) for k in range(1, len(places))]
    return Choice(made, "most accesses have stride 1 in the innermost loop", tuple(turned))


def _lane(q: Lane) -> Choice:
    step = q.step
    axes = step.inner + step.red
    best = max(axes, key=lambda a: (unit_stride_score(a, (step,), q.lanes), a in step.red))
    made = "along" if best in step.red else f"across {step.inner.index(best)}"
    if not q.allows(made):
        made = "along"
    ways = ("along", *(f"across {k}" for k in range(len(step.inner))))
    return Choice(made, "most accesses have stride 1 there", tuple(w for w in ways if w != made and q.allows(w)))


def _accumulators(q: Accumulators) -> Choice:
    extent = q.extent.const()
    if extent is None or extent >= UNROLL * q.lanes:
        return Choice(UNROLL, "so many additions are under way at once", (1, 2, 8))
    return Choice(1, f"{extent} points don't fill more", (2,))


def _lines(q: Lines) -> Choice:
    most = max(1, min(LINES, OPERATIONS // sum(s.body.size for s in q.steps)))
    made = most if q.allows(most) else 1
    return Choice(made, "so many lines of memory are read side by side", tuple(n for n in (1, 4) if n < made))


def _chain(q: Chain) -> Choice:
    if not q.plain:
        return Choice(0, "the sum is short")
    return Choice(q.plain, "the error of a sum grows with its length", (q.usual // 2, 2 * q.usual))


def _carry(q: Carry) -> Choice:
    why = {
        "plain": "eager goes on with this type as well",
        "wide": "eager goes on with f64",
        "errors": "eager goes on with f64, of which a register has half as many rows",
    }
    return Choice(q.plain, why[str(q.plain)])


def _who(q: Who) -> Choice:
    """Loops, where rows are few; threads are then woken for each row or block of rows, and must save more than that."""
    n = q.count
    if q.threads == 1 or n is None or n >= q.threads:
        return Choice("rows", "there is a row for each thread, or their number isn't known")
    if not q.along_rows:
        return Choice("loops", f"{n} rows are fewer than {q.threads} threads", ("rows",))
    if not q.allows("loops"):
        return Choice("rows", "not all of a row's work is reductions")
    saved = None if q.work is None else q.work // max(n, 1) - q.work // q.threads
    if saved is None or saved >= q.least * n:
        return Choice("loops", f"{n} blocks of rows are fewer than {q.threads} threads", ("rows",))
    return Choice("rows", f"{saved} additions are less than it takes to wake threads {n} times", ("loops",))


def _parts(q: Parts) -> Choice:
    if q.points is None or q.points * q.work >= q.least:
        return Choice(q.threads, "a part for each thread", (1,))
    return Choice(1, f"{q.points * q.work} additions are less than it takes to wake threads")


def _keep(q: Keep) -> Choice:
    if q.allows("stack"):
        return Choice("stack", f"{q.n_bytes} bytes of a row fit", ("heap",))
    size = "a row's length is known at run time only" if q.n_bytes is None else f"a row needs {q.n_bytes} bytes"
    return Choice("heap", size)


def _tile(q: Tile) -> Choice:
    across = max(q.found, key=lambda k: (len(q.found[k]), -k))
    others = ("none", f"{across} {2 * SQUARE}")
    return Choice(f"{across} {SQUARE}", f"{len(q.found[across])} operands and results lie along that loop", others)


def _pieces(q: Pieces) -> Choice:
    """None where other loops feed the threads."""
    if q.threads == 1 or q.others is None or q.others >= 4 * q.threads:
        return Choice(0, "other loops have enough for threads, or there is one")
    even = q.others > 0 and q.threads % q.others == 0
    made = -(-q.threads * (1 if even else 4) // q.others) if q.others else 0
    return Choice(made, f"{q.others} points of other loops don't feed {q.threads} threads", (0, 2 * made))


def _point_lane(q: PointLane) -> Choice:
    if q.neighbours:
        return Choice(max(q.neighbours), "lanes write neighbours", () if q.plain in q.neighbours else (q.plain,))
    return Choice(q.plain, "no loop's points are neighbours in memory")


def _split(q: Split) -> Choice:
    if q.threads == 1:
        return Choice(-1, "there is one thread")
    for k, a in enumerate(q.loops):
        known = a.extent.const()
        if k in q.own and k != q.lane and (known is None or known >= q.threads):
            return Choice(k, "each of its points has elements of its own", (-1,))
    known = q.loops[q.lane].extent.const() if q.loops else 1
    if q.lane in q.own and (known is None or known > q.lanes):
        return Choice(q.lane, "no other loop has elements of its own", (-1,))
    return Choice(-1, "every loop's points may have the same element, or are few")


def _hoist(q: Hoist) -> Choice:
    return Choice(q.plain, "what doesn't change in a loop is computed once")


def _gather(q: Gather) -> Choice:
    return Choice(q.plain, f"an instruction reads a vector of elements that lie apart, for {q.n} operands", (0,))


_RULES: Mapping[type, Callable[[Any], Choice]] = MappingProxyType({
    Narrow: _narrow, Vector: _vector, Least: _least, Shape: _shape, Order: _order, Lane: _lane,
    Accumulators: _accumulators, Lines: _lines, Chain: _chain, Carry: _carry, Who: _who, Parts: _parts, Keep: _keep,
    Tile: _tile, Pieces: _pieces, PointLane: _point_lane, Split: _split, Hoist: _hoist, Gather: _gather,
})  # fmt: skip
