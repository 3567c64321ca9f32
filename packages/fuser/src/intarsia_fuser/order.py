"""A topological order of items that survives merging them: Pearce and Kelly's algorithm, with identification of nodes.

Terms. Every item has a distinct position; an item only depends on items at lower positions. Merging `lo` and `hi`
(positions p < q) is possible iff no third item lies on a path from lo to hi. Such an item would be an ancestor of hi
with a position between p and q, so only that window is searched, backwards from hi.
  A = ancestors of hi in the window, which must now run before the merged item
  D = descendants of lo in the window, which must now run after it (only moved when A isn't empty)
A and D are disjoint, or there would be a path. The positions of A, lo, D, hi are dealt out again in the order
A, merged, D; every member of A moves down, every member of D up, so no other edge is violated.

Source: D. J. Pearce, P. H. J. Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2007.
Differs: two nodes become one instead of an edge being inserted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["ItemOrder"]

Neighbours = Callable[[str], Iterable[str]]


class ItemOrder:
    """Positions of items. Private state of a draft; `between` asks, `merge` and `drop` change.

    Args:
        items: In a topological order.
        before: Item -> items that it depends on directly.
        after: Item -> items that depend on it directly.
    """

    def __init__(self, items: Iterable[str], before: Neighbours, after: Neighbours) -> None:
        self.position = {name: k for k, name in enumerate(items)}
        self._before = before
        self._after = after

    def fork(self, before: Neighbours, after: Neighbours) -> ItemOrder:
        """Return the order as it is, over other neighbours; a change of either leaves the other as it is."""
        other = ItemOrder((), before, after)
        other.position = dict(self.position)
        return other

    def items(self) -> tuple[str, ...]:
        """Return the items in order."""
        return tuple(sorted(self.position, key=self.position.__getitem__))

    def between(self, first: str, second: str) -> tuple[list[str], list[str]]:
        """Return (path, ancestors) for merging two items.

        `path` is a chain of items that must run after one and before the other; empty when the merge is possible.
        `ancestors` are the items that then have to run before the merged item, in order of position.
        """
        lo, hi = sorted((first, second), key=self.position.__getitem__)
        floor = self.position[lo]
        below: dict[str, str] = {}  # ancestor -> the item through which it was found
        stack = [hi]
        while stack:
            item = stack.pop()
            for above in self._before(item):
                if above == lo and item != hi:
                    return self._path(item, hi, below), []
                if self.position[above] > floor and above not in below:
                    below[above] = item
                    stack.append(above)
        return [], sorted(below, key=self.position.__getitem__)

    def merge(self, into: str, other: str, ancestors: list[str]) -> None:
        """Give the two items one position, that of `into`; `ancestors` as `between` returned them.

        Must be called before the neighbours change.
        """
        lo, hi = sorted((into, other), key=self.position.__getitem__)
        after = self._descendants(lo, self.position[hi]) if ancestors else []
        moved = [*ancestors, into, *after]
        slots = sorted(self.position[name] for name in (*ancestors, lo, hi, *after))
        del self.position[other]
        # one slot too many: the last one stays empty
        self.position.update(zip(moved, slots, strict=False))

    def drop(self, item: str) -> None:
        """Forget an item that is gone."""
        del self.position[item]

    def _descendants(self, item: str, ceiling: int) -> list[str]:
        found: dict[str, None] = {}
        stack = [item]
        while stack:
            for below in self._after(stack.pop()):
                if self.position[below] < ceiling and below not in found:
                    found[below] = None
                    stack.append(below)
        return sorted(found, key=self.position.__getitem__)

    def _path(self, item: str, end: str, below: dict[str, str]) -> list[str]:
        path = []
        while item != end:
            path.append(item)
            item = below[item]
        return path
