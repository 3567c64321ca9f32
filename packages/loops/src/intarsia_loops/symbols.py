"""Size symbols with the ranges that size facts give them."""

from __future__ import annotations

from intarsia_ir.records import SizeFacts
from intarsia_loops.index import INF, IndexExpr, size_symbol

__all__ = ["symbol"]


def symbol(name: str, facts: SizeFacts) -> IndexExpr:
    """Return the size symbol of this name.

    Without a range it is at least 2, because 0 and 1 are specialized; one that depends on data, whose name begins with
    "u", is any integer, and a number of the call, with "k", any that isn't negative.
    """
    lowest = {"u": -INF, "k": 0}.get(name[:1], 2)
    low, high = facts.ranges.get(name, (None, None))
    return size_symbol(name, lowest if low is None else low, INF if high is None else high)
