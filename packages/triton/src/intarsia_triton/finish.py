"""A reduction in parts and the kernel that finishes it, in one launch: whoever arrives last does the rest.

    p[s, i] = sum over q of f(i, s, q)               program (s, i) stores its part, and counts itself in
    y[i] = g(sum over s of p[s, i])          →       the last one of those that y[i] waits for computes it

A launch costs a few microseconds, in which a GPU does nothing else. The parts are added in the order of their numbers,
so results don't depend on who is last. The counters are 0 before a launch, and are put back to 0 in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from intarsia_ir.records import Machine
from intarsia_loops.program import Buffer, Kernel
from intarsia_triton.blocks import choose_blocks, memory_order
from intarsia_triton.index import product
from intarsia_triton.plan import loops_of

__all__ = ["Finish", "finish_of"]


@dataclass(frozen=True, slots=True)
class Finish:
    """Who finishes what.

    Args:
        kernel: What is to be done last.
        number: Text of the number of its program that a program of the first kernel belongs to.
        arrivals: How many programs belong to each.
        counters: How many programs it has.
    """

    kernel: Kernel
    number: str
    arrivals: int
    counters: int


def finish_of(first: Kernel, last: Kernel, buffers: Mapping[str, Buffer], machine: Machine) -> Finish | None:
    """Return how the programs of `first` can do the work of `last`; None where it takes a launch of its own.

    Args:
        first: The reduction of each part: its rows are a part's number and the rows of `last`.
        last: What reads the results.
        buffers: Layout of every buffer in memory.
        machine: What it will run on.
    """
    n_parts, n_rows = first.rows[0].extent.const(), product([a.extent for a in last.rows]).const()
    if not n_parts or not n_rows:
        return None
    taken, done = (choose_blocks(k, buffers, loops_of(k), machine).rows for k in (first, last))
    if n_rows <= done:
        return Finish(last, "0", -(-n_parts * n_rows // taken), 1)
    in_order = all(memory_order(kernel, buffers) == kernel.rows for kernel in (first, last))
    if not in_order or n_rows % taken or n_rows % done or done % taken:
        return None
    return Finish(
        last, f"tl.program_id(0) % {n_rows // taken} // {done // taken}", n_parts * (done // taken), n_rows // done
    )
