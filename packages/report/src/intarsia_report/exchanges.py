"""The collectives of a compiled graph: what they exchange, and how long that is predicted to take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from intarsia_ir.dtypes import itemsize
from intarsia_ir.links import Exchange, Links, kind_of
from intarsia_loops.program import Buffer, Extern

__all__ = ["Collective", "collectives_of", "describe_collectives"]


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of a compiled graph.

    Args:
        exchange: Its kind, group, and bytes; those of tensors whose sizes are symbols count as 0.
        predicted_us: Microseconds by the links of the target, from when all processes have begun it.
    """

    exchange: Exchange
    predicted_us: float


def collectives_of(program: Any, ranks: Callable[[str], int]) -> tuple[Collective, ...]:
    """Return the collectives of what was built, in order: of the graph and, in training, of its backward graphs.

    Args:
        program: A `Partition` of `intarsia_loops.Buildable`, or None.
        ranks: Tells how many processes are in the group of this name.
    """
    return tuple(c for half in program.graphs for c in _of_half(half, ranks)) if program is not None else ()


def _of_half(half: Any, ranks: Callable[[str], int]) -> Iterator[Collective]:
    links, buffers = Links.of(half.contract.target), half.program.buffers
    for item in half.program.items:
        if not isinstance(item, Extern):
            continue
        kind = kind_of(getattr(getattr(item.target, "_schema", None), "name", ""))
        if kind is None:
            continue
        read = sum(_bytes(buffers[ref.buffer]) for ref in item.refs())
        written = sum(_bytes(buffers[out]) for out in item.outs if out)
        group = str(item.args[-1])
        exchange = Exchange(kind, group, ranks(group), max(read, written))
        yield Collective(exchange, links.microseconds(exchange))


def _bytes(buffer: Buffer) -> int:
    sizes = [extent.const() for extent in buffer.shape]
    return math.prod(s for s in sizes if s is not None) * itemsize(buffer.dtype) if None not in sizes else 0


def describe_collectives(collectives: tuple[Collective, ...]) -> list[str]:
    """Return a line for each kind and group."""
    lines = []
    for kind, group in dict.fromkeys((c.exchange.kind, c.exchange.group) for c in collectives):
        some = [c for c in collectives if (c.exchange.kind, c.exchange.group) == (kind, group)]
        total, predicted = sum(c.exchange.bytes for c in some), sum(c.predicted_us for c in some) * 1e-6
        of = f"among {some[0].exchange.ranks} processes of group {group!r}"
        lines.append(f"  {len(some)} x {kind} {of}: {total} bytes, {predicted:.6f} s predicted")
    return lines
