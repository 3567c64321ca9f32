"""What the kinds of items have in common: what they read and make, and renaming."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from intarsia_loops.program import Extern, Item, Kernel, Nest, TensorRef
from intarsia_loops.rewrites import reads_in_order, rename_buffers

__all__ = ["made_by", "map_refs", "outs_of", "reads_of", "renamed"]


def reads_of(item: Item) -> tuple[str, ...]:
    """Return the buffers that an item reads from memory, in order of first appearance."""
    if isinstance(item, Extern):
        return tuple(dict.fromkeys(r.buffer for r in item.refs()))
    if isinstance(item, Nest):
        return reads_in_order(item)
    written: set[str] = set()
    reads: dict[str, None] = {}
    for step in item.steps:
        reads.update(dict.fromkeys(n for n in reads_in_order(step) if n not in written))
        written.add(step.out)
    return tuple(reads)


def outs_of(item: Item) -> tuple[str, ...]:
    """Return the results of an item that reach memory; "" for one that an extern call's caller doesn't take."""
    if isinstance(item, Nest):
        return (item.out,)
    return item.outs if isinstance(item, Extern) else item.writes()


def made_by(item: Item) -> tuple[str, ...]:
    """Return every buffer that an item defines, local ones included."""
    return tuple(s.out for s in item.steps) if isinstance(item, Kernel) else outs_of(item)


def renamed(item: Item, names: Mapping[str, str]) -> Item:
    """Return the item with buffers renamed; names not in the map stay."""
    if isinstance(item, Nest):
        return rename_buffers(item, names)
    if isinstance(item, Kernel):
        local = frozenset(names.get(n, n) for n in item.local)
        return replace(item, steps=tuple(rename_buffers(s, names) for s in item.steps), local=local)

    def moved(ref: TensorRef) -> TensorRef:
        return replace(ref, buffer=names.get(ref.buffer, ref.buffer))

    return replace(
        item,
        outs=tuple(names.get(o, o) for o in item.outs),
        args=map_refs(item.args, moved),
        kwargs=map_refs(item.kwargs, moved),
    )


def map_refs(value: Any, change: Callable[[TensorRef], TensorRef]) -> Any:
    """Return an argument of an extern call with every tensor in it changed."""
    if isinstance(value, TensorRef):
        return change(value)
    return tuple(map_refs(v, change) for v in value) if isinstance(value, tuple) else value
