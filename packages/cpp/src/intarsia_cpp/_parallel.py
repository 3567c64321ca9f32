"""When and how a loop is given to threads."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_cpp._context import Context
from intarsia_cpp._text import block
from intarsia_loops.index import IndexExpr

__all__ = ["SERIAL_WORK", "parallel_for", "pragma"]

# Below this much work (in additions) waking the other threads costs more than they save.
SERIAL_WORK = 1 << 17


def pragma(context: Context, kind: str, n_loops: int, points: IndexExpr, cost: int) -> str | None:
    """Return the OpenMP line before loops with this much work, or None where they should stay serial.

    Args:
        context: The kernel.
        kind: `"parallel for"` or `"parallel"`.
        n_loops: Loops that are cut into pieces together.
        points: Points of the whole iteration space.
        cost: Additions per point.
    """
    count = points.const()
    if context.threads == 1 or (count is not None and count * cost < SERIAL_WORK):
        return None
    text = f"#pragma omp {kind} num_threads({context.threads})"
    if kind == "parallel for":
        text += " schedule(static)" + (f" collapse({n_loops})" if n_loops > 1 else "")
    return text if count is not None else f"{text} if({context.c(points)} >= {-(-SERIAL_WORK // cost)})"


def parallel_for(
    context: Context, heads: Sequence[str], lines: Sequence[str], points: IndexExpr, cost: int
) -> list[str]:
    """Return a nest of loops around `lines`, cut into pieces for threads when it has enough work."""
    if not heads:
        return block("", lines)
    first = pragma(context, "parallel for", len(heads), points, cost)
    nest = [*heads[:-1], *block(heads[-1], lines)]
    return nest if first is None else [first, *nest]
