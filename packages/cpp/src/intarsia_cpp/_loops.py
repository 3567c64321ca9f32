"""Nests of loops around statements: plain ones, and the vector loop with its unrolled body and its masked end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from intarsia_cpp._body import Scope
from intarsia_cpp._context import Context
from intarsia_cpp._text import block, loop
from intarsia_loops.index import Atom

__all__ = ["lane_loops", "nest"]


def nest(
    parent: Scope,
    loops: Sequence[Atom],
    fill: Callable[[Scope], list[str]],
    bounds: Mapping[Atom, tuple[str, str]] = MappingProxyType({}),
) -> list[str]:
    """Return loops, outermost first, around what `fill` returns; each loop is a scope of its own.

    Args:
        parent: Scope around the loops; what doesn't change in them is written there.
        loops: Loop variables, from 0 to their extents.
        fill: Takes the innermost scope, returns the statements after those of the scope itself.
        bounds: C text of the first and past-the-last value of loops that don't run over their whole extent.
    """
    if not loops:
        return fill(parent)
    context, first = parent.context, loops[0]
    scope = Scope(context, parent, axes=(first,))
    inner = nest(scope, loops[1:], fill, bounds)
    start, stop = bounds.get(first) or ("0", context.c(first.extent))
    return block(loop(context.name_of(first), start, stop), [*scope.lines, *inner])


def lane_loops(
    parent: Scope,
    lane: Atom,
    point: Callable[[Scope, str], None],
    unroll: int = 1,
    bounds: tuple[str, str] | None = None,
) -> list[str]:
    """Return the loop whose variable runs over vector lanes.

    Whole vectors come first, `unroll` at a time where there are enough, and a masked vector at the end if needed.

    Args:
        parent: Scope around the loop.
        lane: The loop variable.
        point: Writes the statements of one vector; gets the scope and the number of the accumulator to use.
        unroll: Accumulators.
        bounds: C text of the first and past-the-last value, both multiples of the width except the very last;
            None: the whole extent.
    """
    context, name = parent.context, parent.context.name_of(lane)
    lanes, extent = context.lanes, lane.extent.const() if bounds is None else None
    start, stop = bounds or ("0", context.c(lane.extent))
    at = f"{name}_"

    def body(tail: str | None, u: str, first: list[str]) -> list[str]:
        scope = Scope(context, parent, (lane,), lane, tail)
        point(scope, u)
        return [*first, *scope.lines]

    lines = [f"i64 {at} = {start};"]
    if unroll > 1 and (extent is None or extent >= unroll * lanes):
        inner = block(f"for (int u = 0; u < {unroll}; u++)", body(None, "u", [f"const i64 {name} = {at} + {lanes}*u;"]))
        lines += block(_while(at, unroll * lanes, stop), [f"#pragma GCC unroll {unroll}", *inner])
    rest = None if extent is None else extent if unroll == 1 else extent % (unroll * lanes)
    if rest is None or rest >= lanes:
        lines += block(_while(at, lanes, stop), body(None, "0", [f"const i64 {name} = {at};"]))
    if (rest is None or rest % lanes) and (extent is not None or not _is_multiple(lane, lanes)):
        first = [f"const i64 {name} = {at};", f"const int n = {stop} - {at};"]
        lines += block(f"if ({at} < {stop})", body("n", "0", first))
    return block("", lines)


def _while(name: str, step: int, stop: str) -> str:
    return f"for (; {name} + {step} <= {stop}; {name} += {step})"


def _is_multiple(lane: Atom, lanes: int) -> bool:
    extent = lane.extent.const()
    return extent is not None and extent % lanes == 0


def is_empty(context: Context, loops: Sequence[Atom]) -> bool:
    """Whether the loops certainly have no point."""
    return any(a.extent.const() == 0 for a in loops)
