"""What is around the steps of a row: the loops over rows, threads, and the memory of local arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from intarsia_cpp._context import Context
from intarsia_cpp._ops import WIDTH, element
from intarsia_cpp._parallel import pragma
from intarsia_cpp._text import block
from intarsia_loops.addresses import product
from intarsia_loops.index import IndexExpr
from intarsia_loops.vectors.groups import Group
from intarsia_loops.vectors.steps import Array

__all__ = ["local_buffers", "row_loops"]


def local_buffers(groups: Sequence[Group]) -> frozenset[str]:
    """Return the local buffers that need an array: made in one loop, read in a later one (or at another point)."""
    found = set()
    for k, group in enumerate(groups):
        for step in group.steps:
            if step.in_memory or not step.inner:
                continue
            later = any(v.args[0] == step.out for g in groups[k + 1 :] for s in g.steps for v in s.body.loads)
            if later or step.is_scan or step.is_fold:
                found.add(step.out)
    return frozenset(found)


def row_loops(
    context: Context,
    heads: Sequence[str],
    groups: Sequence[Group],
    stored: frozenset[str],
    lines: Sequence[str],
    *,
    parallel: bool = True,
) -> list[str]:
    """Return the loops over rows around `lines`, cut into pieces for threads, with the arrays of a row.

    Args:
        context: The kernel.
        heads: Loops, outermost first.
        groups: What a row does, for its cost.
        stored: Local buffers that need an array.
        lines: What a row does, as text.
        parallel: Whether rows go to threads; otherwise what is inside may use them.
    """
    arrays = {b: context.arrays[b] for b in context.arrays if b in stored}
    on_stack = _on_stack(arrays.values(), context)
    inside = [*(_stack_array(context, b, a) for b, a in arrays.items()), *lines] if on_stack else list(lines)
    looped = [*heads[:-1], *block(heads[-1], inside)] if heads else block("", inside)
    points, cost = _work(context, groups)
    if on_stack:
        first = pragma(context, "parallel for", len(heads), points, cost) if heads and parallel else None
        return looped if first is None else [first, *looped]
    first = pragma(context, "parallel", len(heads), points, cost) if heads and parallel else None
    share = "#pragma omp for schedule(static)" + (f" collapse({len(heads)})" if len(heads) > 1 else "")
    region = [*_heap_arrays(context, arrays), *([share] if first else []), *looped, "free(scratch);"]
    return [*([first] if first else []), *block("", region)]


def _work(context: Context, groups: Sequence[Group]) -> tuple[IndexExpr, int]:
    """Points of the largest loop over all rows, and the cost of one point of all loops that are about as large."""
    rows = product(tuple(a.extent for a in context.kernel.rows))
    sizes = [product(tuple(a.extent for a in g.loops)) for g in groups]
    widest = max(sizes, key=lambda e: e.hi)
    cost = sum(context.cost(g.steps) for g, size in zip(groups, sizes, strict=True) if size.hi * 4 >= widest.hi)
    return rows * widest, cost


def _on_stack(arrays: Iterable[Array], context: Context) -> bool:
    """Whether a thread's stack holds them; otherwise each thread allocates them once a call."""
    lengths = [(a.length.const(), WIDTH[a.dtype]) for a in arrays]
    return (
        all(n is not None for n, _ in lengths)
        and sum((n + context.lanes) * w for n, w in lengths if n is not None) <= context.target.machine.stack_bytes
    )


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
