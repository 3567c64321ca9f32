"""A step's value over element numbers: an index a dimension becomes the number that memory has there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from intarsia_loops.addresses import address
from intarsia_loops.index import ZERO, Atom, IndexExpr
from intarsia_loops.program import Buffer, Val, cast, index_value, load, val
from intarsia_loops.rewrites import rebuild

__all__ = ["element_number", "flat_value"]

Held = Callable[[Val], Val | None]


def flat_value(body: Val, env: Mapping[Atom, IndexExpr], buffers: Mapping[str, Buffer], held: Held) -> Val:
    """Return a body at a point, reading memory by element numbers.

    Args:
        body: Reads buffers with an index a dimension.
        env: What axes stand for; the others stay.
        buffers: Layouts of what is in memory.
        held: What a load reads that isn't in memory; None for the others. Its axes are still those of `body`.
    """

    def leaf(v: Val) -> Val:
        if v.op == "index":
            return val("index", v.args[0].subst(env), dtype=v.dtype)
        held_value = held(v)
        if held_value is not None:
            return held_value
        name, entries = v.args
        index = tuple(e.subst(env) if isinstance(e, IndexExpr) else e for e in entries)
        return load(name, (element_number(index, buffers[name].strides),), v.dtype)

    return rebuild(body, leaf)


def element_number(index: Sequence[IndexExpr | Val], strides: Sequence[IndexExpr]) -> IndexExpr | Val:
    """Return the element number of an index; a value of i64 where it depends on data."""
    pairs = list(zip(index, strides, strict=True))
    fixed = [(e, s) for e, s in pairs if isinstance(e, IndexExpr)]
    constant = address([e for e, _ in fixed], [s for _, s in fixed])
    moving = [(e, s) for e, s in pairs if isinstance(e, Val)]
    if not moving:
        return constant
    total: Val | None = None if constant is ZERO else index_value(constant)
    for e, s in moving:
        term = e if s.const() == 1 else val("mul", cast(e, "i64"), index_value(s), dtype="i64")
        total = term if total is None else val("add", total, term, dtype="i64")
    assert total is not None, "something moves"
    return total
