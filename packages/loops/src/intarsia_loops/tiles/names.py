"""What statements of tiles define, read, write and compute."""

from __future__ import annotations

from collections.abc import Iterator

from intarsia_loops.index import IndexExpr
from intarsia_loops.program import Val
from intarsia_loops.rewrites import postorder
from intarsia_loops.tiles.program import (
    Acc,
    Check,
    Fold,
    For,
    Hold,
    If,
    Last,
    Launch,
    Put,
    Run,
    Statement,
    Take,
    Update,
    VectorWalk,
    statements,
)

__all__ = ["defined", "numbers_of", "touched", "values_of"]


def touched(launch: Launch) -> tuple[set[str], set[str]]:
    """Return the names that a launch's body reads from, and writes to, that it doesn't define itself."""
    reads: set[str] = set()
    writes: set[str] = set()
    own: set[str] = set()
    for s in statements(launch.body):
        own |= {*defined(s)}
        reads |= {v.args[0] for body in values_of(s) for v in body.loads}
        if isinstance(s, Put):
            writes.add(s.target)
        elif isinstance(s, VectorWalk):
            for found, names in zip((reads, writes), s.touched(), strict=True):
                found |= names
        elif isinstance(s, Update):
            reads.add(s.buffer)
            writes.add(s.buffer)
        elif isinstance(s, Last):
            reads.add(s.counter)
    return reads - own, writes - own


def defined(s: Statement) -> tuple[str, ...]:
    """Return the names that a statement defines."""
    if isinstance(s, Hold | Acc | Run):
        return (s.name,)
    return s.names if isinstance(s, Take) else ()


def values_of(s: Statement) -> Iterator[Val]:
    """Yield every value of a statement, without those of statements in it."""
    match s:
        case Hold(value=Val() as value) | Check(value=value):
            yield value
        case Put():
            yield s.value
            if s.when is not None:
                yield s.when
        case Fold():
            yield from s.values
            if s.when is not None:
                yield s.when
        case Run():
            yield from s.values
        case Update():
            yield s.value
            if isinstance(s.place, Val):
                yield s.place


def numbers_of(s: Statement) -> Iterator[IndexExpr]:
    """Yield every index expression of a statement, without those inside the statements in it."""
    match s:
        case For():
            yield from (s.low, *s.high, *((s.start,) if s.start is not None else ()))
        case If():
            yield from (s.left, s.right)
        case Hold():
            yield from s.shape
        case Put():
            yield from s.index
        case Last():
            yield s.group
        case Update(place=IndexExpr() as place):
            yield place
    for body in values_of(s):
        for v in postorder(body):
            if v.op == "index":
                yield v.args[0]
            elif v.op in ("load", "gather"):
                yield from (e for e in v.args[1] if isinstance(e, IndexExpr))
