"""What is around the steps of a row: the loops over rows, threads, and the memory of local arrays."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_cpp._context import Context
from intarsia_cpp._ops import element
from intarsia_cpp._parallel import pragma
from intarsia_cpp._text import block
from intarsia_loops.vectors.steps import Array
from intarsia_loops.vectors.walks import Rows

__all__ = ["row_loops"]


def row_loops(context: Context, rows: Rows, heads: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Return the loops over rows around `lines`, cut into pieces for threads, with the arrays of a row.

    Args:
        context: The kernel.
        rows: How its rows are walked.
        heads: Loops, outermost first.
        lines: What a row does, as text.
    """
    arrays = {b: rows.arrays[b] for b in rows.arrays if b in rows.stored}
    inside = list(lines) if rows.heap else [*(_stack_array(context, b, a) for b, a in arrays.items()), *lines]
    looped = [*heads[:-1], *block(heads[-1], inside)] if heads else block("", inside)
    share = rows.share if heads else None
    if not rows.heap:
        first = pragma(context, "parallel for", len(heads), share)
        return looped if first is None else [first, *looped]
    first = pragma(context, "parallel", len(heads), share)
    each = "#pragma omp for schedule(static)" + (f" collapse({len(heads)})" if len(heads) > 1 else "")
    region = [*_heap_arrays(context, arrays), *([each] if first else []), *looped, "free(scratch);"]
    return [*([first] if first else []), *block("", region)]


def _stack_array(context: Context, buffer: str, array: Array) -> str:
    length, lanes = array.length.const() or 0, context.lanes
    padded = max(-(-length // lanes), 1) * lanes
    return f"{element(array.dtype)} {context.pointer(buffer)}[{padded}] __attribute__((aligned(64)));"


def _heap_arrays(context: Context, arrays: dict[str, Array]) -> list[str]:
    """One allocation for all arrays, each aligned to 64 bytes and with room for a vector past its end."""
    sizes, places = ["i64 bytes = 0;"], []
    for buffer, array in arrays.items():
        c, name = element(array.dtype), context.pointer(buffer)
        length = f"({context.c(array.length)} + {context.lanes})*sizeof({c})"
        sizes.append(f"const i64 at_{name} = bytes; bytes += ({length} + 63) & -64;")
        places.append(f"{c} *const {name} = ({c} *)(scratch + at_{name});")
    return [*sizes, "char *const scratch = (char *)aligned_alloc(64, bytes);", *places]
