"""Minimum cut of a directed graph, by Dinic's algorithm.

Terms: an *arc* is stored at an even place and its reverse at the next odd one, so `arc ^ 1` is the other direction.
Phases: label nodes by their distance from the source over arcs with capacity left; push a blocking flow along arcs
that go one level further; stop when the sink can't be reached.

Source: E. A. Dinic, Algorithm for solution of a problem of maximum flow in networks with power estimation, 1970.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Network"]


class Network:
    """A flow network over nodes 0, 1, ...; capacities are integers.

    Args:
        n_nodes: Number of nodes.

    Example:
        >>> network = Network(4)
        >>> for tail, head, capacity in [(0, 1, 3), (0, 2, 2), (1, 3, 2), (2, 3, 5)]:
        ...     network.add(tail, head, capacity)
        >>> network.flow(0, 3), sorted(network.sink_side(3))
        (4, [2, 3])
    """

    def __init__(self, n_nodes: int) -> None:
        self.heads: list[int] = []
        self.capacities: list[int] = []
        self.arcs: list[list[int]] = [[] for _ in range(n_nodes)]

    def add(self, tail: int, head: int, capacity: int) -> None:
        """Add an arc."""
        self.arcs[tail].append(len(self.heads))
        self.arcs[head].append(len(self.heads) + 1)
        self.heads += [head, tail]
        self.capacities += [capacity, 0]

    def flow(self, source: int, sink: int) -> int:
        """Push as much as possible from source to sink and return how much that was: the weight of a minimum cut."""
        total = 0
        while (levels := self._levels(source, sink)) is not None:
            current = [0] * len(self.arcs)  # arcs of each node before this one are used up
            while pushed := self._push(source, sink, levels, current):
                total += pushed
        return total

    def sink_side(self, sink: int) -> set[int]:
        """Return the nodes that still reach the sink: the minimum cut with the fewest nodes on the sink's side."""
        seen, queue = {sink}, deque([sink])
        while queue:
            node = queue.popleft()
            for arc in self.arcs[node]:
                tail = self.heads[arc]
                if self.capacities[arc ^ 1] and tail not in seen:
                    seen.add(tail)
                    queue.append(tail)
        return seen

    def _levels(self, source: int, sink: int) -> list[int] | None:
        """Return the distance of each node from the source, -1 for those out of reach; None if the sink is."""
        levels = [-1] * len(self.arcs)
        levels[source] = 0
        queue = deque([source])
        while queue:
            node = queue.popleft()
            for arc in self.arcs[node]:
                head = self.heads[arc]
                if self.capacities[arc] and levels[head] < 0:
                    levels[head] = levels[node] + 1
                    queue.append(head)
        return levels if levels[sink] >= 0 else None

    def _push(self, source: int, sink: int, levels: list[int], current: list[int]) -> int:
        """Find one path along levels, without recursion, and push what it takes."""
        path: list[int] = []
        node = source
        while node != sink:
            arcs = self.arcs[node]
            while current[node] < len(arcs):
                arc = arcs[current[node]]
                if self.capacities[arc] and levels[self.heads[arc]] == levels[node] + 1:
                    path.append(arc)
                    node = self.heads[arc]
                    break
                current[node] += 1
            else:  # a dead end in this phase
                if not path:
                    return 0
                node = self.heads[path.pop() ^ 1]
                current[node] += 1
        amount = min(self.capacities[arc] for arc in path)
        for arc in path:
            self.capacities[arc] -= amount
            self.capacities[arc ^ 1] += amount
        return amount
