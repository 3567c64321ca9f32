"""The order of items: merges on random graphs, against a search for a cycle."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from intarsia_fuser.order import ItemOrder


class Graph:
    """A DAG whose nodes can be merged; edges go from what runs first."""

    def __init__(self, n, edges):
        self.above = {str(k): set() for k in range(n)}
        self.below = {str(k): set() for k in range(n)}
        for a, b in edges:
            self.below[a].add(b)
            self.above[b].add(a)
        self.order = ItemOrder(self.above, lambda x: sorted(self.above[x]), lambda x: sorted(self.below[x]))

    def reaches(self, start, goal, avoid_edge):
        """Whether a path of more than one edge leads from start to goal."""
        stack = [x for x in self.below[start] if (start, x) != avoid_edge]
        seen = set(stack)
        while stack:
            item = stack.pop()
            if item == goal:
                return True
            for x in self.below[item] - seen:
                seen.add(x)
                stack.append(x)
        return False

    def merge(self, a, b):
        for edges, back in ((self.above, self.below), (self.below, self.above)):
            for x in edges.pop(b):
                back[x].discard(b)
                if x != a:
                    back[x].add(a)
                    edges[a].add(x)
            edges[a].discard(b)

    def check(self):
        for item, above in self.above.items():
            for x in above:
                assert self.order.position[x] < self.order.position[item]


@pytest.mark.parametrize("seed", range(60))
def test_merges_are_possible_exactly_when_no_item_is_between(seed):
    rng = random.Random(seed)
    n = rng.randint(3, 14)
    edges = {(str(a), str(b)) for a in range(n) for b in range(a + 1, n) if rng.random() < 0.25}
    graph = Graph(n, edges)
    for _ in range(3 * n):
        names = sorted(graph.above)
        if len(names) < 2:
            break
        a, b = rng.sample(names, 2)
        cyclic = graph.reaches(a, b, (a, b)) or graph.reaches(b, a, (b, a))
        path, ancestors = graph.order.between(a, b)
        assert bool(path) == cyclic
        if path:
            lo, hi = sorted((a, b), key=graph.order.position.__getitem__)
            whole = [lo, *path, hi]
            assert all(y in graph.below[x] for x, y in pairwise(whole))
            continue
        graph.order.merge(a, b, ancestors)
        graph.merge(a, b)
        assert set(graph.order.position) == set(graph.above)
        graph.check()


def test_a_dropped_item_has_no_position():
    graph = Graph(3, [("0", "1"), ("1", "2")])
    graph.order.drop("1")
    assert graph.order.items() == ("0", "2")
