"""Integer values that are known as index expressions: what `arange` and arithmetic on it give.

An indexing op whose indices are known this way needs no bounds check at run time, and becomes an ordinary load.
"""

from __future__ import annotations

from collections.abc import Mapping

from intarsia_loops.index import IndexExpr, less, lift
from intarsia_loops.ops import INTEGERS
from intarsia_loops.program import Nest, Val
from intarsia_loops.rewrites import at, postorder

__all__ = ["known_index", "wrapped"]

_MAX_DEPTH = 16  # nests looked through; deeper chains are left to run time


def known_index(v: Val, maps: Mapping[str, Nest], depth: int = _MAX_DEPTH) -> IndexExpr | None:
    """Return an integer value as an index expression, or None when it depends on data.

    Args:
        v: The value.
        maps: Nests made so far, by the buffer they write.
        depth: Nests to look through.

    Example:
        >>> from intarsia_loops.index import axis
        >>> from intarsia_loops.program import const, index_value, val
        >>> i = lift(axis("i0", 8))
        >>> known_index(val("add", index_value(i), const(3, "i64"), dtype="i64"), {})
        3 + i0
    """
    indices: dict[Val, IndexExpr] = {}
    for u in postorder(v):
        index = _known(u, indices, maps, depth)
        if index is None or not _fits(index, u.dtype):
            return None
        indices[u] = index
    return indices[v]


def _known(u: Val, indices: Mapping[Val, IndexExpr], maps: Mapping[str, Nest], depth: int) -> IndexExpr | None:
    if u.dtype not in INTEGERS:
        return None
    match u.op:
        case "index":
            return lift(u.args[0])
        case "const":
            return lift(int(u.args[0]))
        case "load":
            nest = maps.get(u.args[0])
            if nest is None or nest.kind != "map" or not depth:
                return None
            return known_index(at(nest.body, dict(zip(nest.axes, u.args[1], strict=True))), maps, depth - 1)
        case "cast":
            return indices[u.args[0]]
        case "neg":
            return -indices[u.args[0]]
        case "add" | "sub" | "mul":
            a, b = (indices[x] for x in u.args)
            return a + b if u.op == "add" else a - b if u.op == "sub" else a * b
    return None


def _fits(e: IndexExpr, dtype: str) -> bool:
    """Whether the value never wraps around; sizes without a bound are taken to fit 64 bits, as memory does."""
    bits = {"i8": 7, "u8": 8, "i16": 15, "i32": 31, "i64": 62}[dtype]
    return e.hi <= 1 << bits and e.lo >= (0 if dtype == "u8" else -(1 << bits))


def wrapped(e: IndexExpr, size: IndexExpr) -> IndexExpr | None:
    """Return an index that may count from the back as one from the front; None when it isn't provably in range."""
    if less(e, size):
        return e
    return e + size if less(e + size, size) else None
