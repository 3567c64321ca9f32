"""What statements of tiles define, read, write and compute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from intarsia_loops.index import INF, IndexExpr
from intarsia_loops.program import Val
from intarsia_loops.rewrites import postorder
from intarsia_loops.tiles.program import (
    Acc,
    Check,
    Fold,
    For,
    GridWalk,
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

__all__ = ["WIDTHS", "defined", "index_width", "numbers_of", "parts_of", "touched", "values_of"]

# numbers of each index width are below this, and at least minus this
WIDTHS = {"i32": 1 << 31, "i64": INF}


def touched(launch: Launch) -> tuple[set[str], set[str]]:
    """Return the names that a launch's body reads from, and writes to, that it doesn't define itself."""
    reads: set[str] = set()
    writes: set[str] = set()
    defined_here: set[str] = set()
    for s in statements(launch.body):
        defined_here |= {*defined(s)}
        reads |= {v.args[0] for body in values_of(s) for v in body.loads}
        if isinstance(s, Put):
            writes.add(s.target)
        elif isinstance(s, VectorWalk | GridWalk):
            for touched_names, names in zip((reads, writes), s.touched(), strict=True):
                touched_names |= names
        elif isinstance(s, Update):
            reads.add(s.buffer)
            writes.add(s.buffer)
        elif isinstance(s, Last):
            reads.add(s.counter)
    return reads - defined_here, writes - defined_here


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


def parts_of(e: IndexExpr) -> Iterator[IndexExpr]:
    """Yield an expression, and those inside its quotients and remainders."""
    yield e
    for atom in e.atoms():
        if atom.kind in "/%":
            yield from parts_of(atom.a)
            yield from parts_of(atom.b)


def index_width(body: Iterable[Statement]) -> str:
    """Return the narrowest index width in which a launch's body keeps rule T2."""
    limit = WIDTHS["i32"]
    parts = (p for s in statements(tuple(body)) for e in numbers_of(s) for p in parts_of(e))
    return "i32" if all(-limit <= p.lo and p.hi < limit for p in parts) else "i64"
