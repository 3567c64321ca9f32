"""A reduction in parts and the kernel that finishes it, in one launch: whoever arrives last does the rest.

    p[s, i] = sum over q of f(i, s, q)               program (s, i) stores its part, and counts itself in
    y[i] = g(sum over s of p[s, i])          →       the last one of those that y[i] waits for computes it

A launch costs a few microseconds, in which a GPU does nothing else. The parts are added in the order of their numbers,
so results don't depend on who is last. The counters are 0 before a launch, and are put back to 0 in it.
"""

from __future__ import annotations

from intarsia_loops.addresses import product
from intarsia_loops.launches import Finish, Walk
from intarsia_loops.program import Kernel

__all__ = ["finish_of"]


def finish_of(first: Kernel, first_walk: Walk, last: Kernel, last_walk: Walk) -> Finish | None:
    """Return how the programs of `first` can do the work of `last`; None where it takes a launch of its own.

    Args:
        first: The reduction of each part: its rows are a part's number and the rows of `last`.
        first_walk: How it is walked.
        last: What reads the results.
        last_walk: How it is walked.
    """
    n_parts, n_rows = first.rows[0].extent.const(), product([a.extent for a in last.rows]).const()
    if not n_parts or not n_rows or first_walk.kind != "rows" or last_walk.kind != "rows":
        return None
    taken, done = first_walk.blocks.rows, last_walk.blocks.rows
    if n_rows <= done:
        return Finish(last, last_walk, 0, 1, -(-n_parts * n_rows // taken), 1)
    in_order = first_walk.rows == first.rows and last_walk.rows == last.rows
    if not in_order or n_rows % taken or n_rows % done or done % taken:
        return None
    return Finish(last, last_walk, n_rows // taken, done // taken, n_parts * (done // taken), n_rows // done)
