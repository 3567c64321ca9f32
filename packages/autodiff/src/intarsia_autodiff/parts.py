"""`independent_parts`: which roots share what autograd frees, and which don't.

Eager's autograd has one node an operation. Going back from one result frees the saved tensors of the nodes on the way,
and no others: a second result whose nodes are others can still be gone back from, one that shares such a node can't.
A node of a write through a view (`CopySlices`) saves no tensor, but gives up the node that it holds, which is the same.
Roots that share a node of either kind are one part and get one node; each other root has a node of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import torch

__all__ = ["Part", "independent_parts", "is_slice_write", "nodes_behind", "saved_by"]


class Part(NamedTuple):
    """Roots that are gone back from together.

    Args:
        roots: Their numbers.
        holding: The autograd nodes behind them that can be gone back through once: with saved tensors, or of writes
            through views.
    """

    roots: list[int]
    holding: set[Any]


def independent_parts(roots: Sequence[torch.Tensor], ends: Collection[Any]) -> list[Part]:
    """Return the parts that the roots fall into, in the order of their first roots.

    Args:
        roots: Tensors that require grad.
        ends: Autograd nodes to go back to and not beyond.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> shared = x.exp()
        >>> [part.roots for part in independent_parts([shared.sum(), x.sin(), shared.cos()], ())]
        [[0, 2], [1]]
    """
    parts: list[Part] = []
    for number, root in enumerate(roots):
        numbers = [number]
        holding = {node for node in nodes_behind(root, ends) if _saving(node) or is_slice_write(node)}
        for part in [part for part in parts if not part.holding.isdisjoint(holding)]:
            parts.remove(part)
            holding |= part.holding
            numbers = [*part.roots, *numbers]
        parts.append(Part(sorted(numbers), holding))
    return sorted(parts, key=lambda part: part.roots)


def nodes_behind(root: torch.Tensor, ends: Collection[Any]) -> set[Any]:
    """Return the autograd nodes that a backward pass from a root goes through."""
    seen: set[Any] = set()
    pending: list[Any] = [root.grad_fn]
    while pending:
        current = pending.pop()
        if current is None or current in seen or current in ends:
            continue
        seen.add(current)
        pending += [following for following, _ in current.next_functions]
    return seen


def saved_by(nodes: Collection[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors that nodes have saved, but those written since: going back from these raises anyway."""
    for node in nodes:
        for name in _saving(node):
            try:
                saved = getattr(node, name)
            except RuntimeError:
                continue
            yield from (t for t in (saved if isinstance(saved, (tuple, list)) else [saved]) if t is not None)


def is_slice_write(node: Any) -> bool:
    """Tell whether an autograd node is of a write through a view: it has no class of Python's to compare with."""
    return type(node).__name__ == "CopySlices"


def _saving(node: Any) -> list[str]:
    """Return the attributes under which a node has saved tensors."""
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return ["saved_tensors"] if node._raw_saved_tensors else []
    return [name.removeprefix("_raw") for name in dir(type(node)) if name.startswith("_raw_saved_")]
