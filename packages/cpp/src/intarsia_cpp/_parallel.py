"""How a loop is given to threads."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_cpp._context import Context
from intarsia_cpp._text import block
from intarsia_loops.vectors.walks import Share

__all__ = ["parallel_for", "pragma"]


def pragma(context: Context, kind: str, n_loops: int, share: Share | None) -> str | None:
    """Return the OpenMP line before loops that threads share, or None where none does.

    Args:
        context: The kernel.
        kind: `"parallel for"` or `"parallel"`.
        n_loops: Loops that are cut into pieces together.
        share: Who shares them.
    """
    if share is None:
        return None
    text = f"#pragma omp {kind} num_threads({share.threads})"
    if kind == "parallel for":
        text += " schedule(static)" + (f" collapse({n_loops})" if n_loops > 1 else "")
    return f"{text} if({context.c(share.points)} >= {share.least})" if share.least else text


def parallel_for(context: Context, heads: Sequence[str], lines: Sequence[str], share: Share | None) -> list[str]:
    """Return a nest of loops around `lines`, cut into pieces for the threads that share it."""
    if not heads:
        return block("", lines)
    first = pragma(context, "parallel for", len(heads), share)
    nest = [*heads[:-1], *block(heads[-1], lines)]
    return nest if first is None else [first, *nest]
