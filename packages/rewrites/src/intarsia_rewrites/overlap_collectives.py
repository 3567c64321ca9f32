"""`overlap_collectives`: collectives begin early and are waited for late, and small ones are sent together.

    %1 = all_reduce(%g, "sum", "0")              %1 = all_reduce(%g, "sum", "0")
    %2 = wait_tensor(%1)                   ->    %3 = mm(%x, %w)
    %3 = mm(%x, %w)                              %2 = wait_tensor(%1)
    %4 = add(%2, %3)                             %4 = add(%2, %3)

The order is made by walking a clock through the program. A collective begins as soon as what it sends is there, and
what it sends is computed before anything else; a wait is over when the links, which send one collective after the
other, are predicted to be done, and until then whatever doesn't depend on it is computed, in program order.

    %1 = all_reduce(%g, "sum", "0")              %1 = cat([view(%g, [-1]), view(%h, [-1])])
    %2 = all_reduce(%h, "sum", "0")        ->    %2 = wait_tensor(all_reduce(%1, "sum", "0"))
                                                 views of slices of %2

Side conditions. Collectives begin in program order, draws and checks stay in theirs, and none of these passes a call of
which nothing is known. Sent together are neighbours in that order, of one kind, group and element type, where none
depends on another and the rounds that are saved take longer than the copies. What goes together differs from what
eager's collectives send: every process must run the program that is rewritten so, and none may fall back to eager. That
is why it is off unless `bucket_bytes` says otherwise.
Law: the same values (sent together, sums may be added in another order). The program is returned as it was where the
model predicts that it would be slower otherwise.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.links import Exchange, Links
from intarsia_ir.records import Target
from intarsia_rewrites._draft import Draft
from intarsia_rewrites._exchanges import Roofline, bytes_of, exchange_of, is_wait, must_follow

__all__ = ["overlap_collectives"]

_OPS: Any = torch.ops.aten


def overlap_collectives(
    gm: fx.GraphModule,
    *,
    target: Target,
    ranks: Callable[[str], int],
    links: Links | None = None,
    cost: Callable[[fx.Node], float] | None = None,
    bucket_bytes: int = 0,
    fuel: int | None = None,
    check: bool = True,
) -> fx.GraphModule:
    """Return `gm` with its collectives beside what can be computed meanwhile.

    Args:
        gm: FX(aten), pure, with fake values on its nodes (`meta["val"]`).
        target: What the program is compiled for.
        ranks: Tells how many processes are in the group of this name.
        links: What joins the processes; None: the links of the target.
        cost: Returns the microseconds of a call; None: a roofline of the target.
        bucket_bytes: Collectives are sent together up to so many bytes; 0: each is sent alone.
        fuel: Number of edits: collectives that join others, and, where none did, one for the order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph; the given one when there is nothing to do, or nothing gained.

    Raises:
        VerifyError: `gm` isn't FX(aten), pure.
        InvalidArgumentError: `fuel` is negative.

    Example:
        >>> from intarsia_ir.aten import parse_ir
        >>> gm = parse_ir('''// dialect: aten 2
        ... graph(%g: f32[64, 64], %x: f32[64, 64]) {
        ...   %0: f32[64, 64] = _c10d_functional.all_reduce.default(%g, "sum", "0")
        ...   %1: f32[64, 64] = _c10d_functional.wait_tensor.default(%0)
        ...   %2: f32[64, 64] = aten.mm.default(%x, %x)
        ...   %3: f32[64, 64] = aten.add.Tensor(%1, %2)
        ...   return (%3,)
        ... }
        ... ''')
        >>> better = overlap_collectives(gm, target=Target(), ranks=lambda name: 2)
        >>> [str(n.target).split(".")[1] for n in better.graph.nodes if n.op == "call_function"]
        ['all_reduce', 'mm', 'wait_tensor', 'add']
    """
    clock = _Clock(ranks, links or Links.of(target), cost or Roofline(target))
    if not check and not any(map(clock.sends, _calls(gm.graph))):
        return gm
    draft = Draft(gm, fuel, check)
    before = _calls(draft.graph)
    given = clock.until_end(before)
    if bucket_bytes:
        _Buckets(draft, clock, target, bucket_bytes).join()
    order = _ordered(_calls(draft.graph), clock)
    if clock.until_end(order) > given:
        return gm if not bucket_bytes else overlap_collectives(
            gm, target=target, ranks=ranks, links=links, cost=cost, fuel=fuel, check=check
        )  # fmt: skip
    # a result that was joined is there behind the last part alone, and may be read before: joining takes the order too
    if order != _calls(draft.graph) and (draft.fired or draft.burn("reordered")):
        _move(draft.graph, order)
    return draft.finish()


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


def _move(graph: fx.Graph, order: list[fx.Node]) -> None:
    (output,) = graph.find_nodes(op="output")
    for node in order:
        output.prepend(node)


@dataclass(frozen=True, slots=True)
class _Clock:
    """When calls are done: computing is one after the other, and so is sending.

    Args:
        ranks: Tells the size of a group.
        links: What joins the processes.
        cost: Microseconds of a call.
    """

    ranks: Callable[[str], int]
    links: Links
    cost: Callable[[fx.Node], float]

    def sends(self, node: fx.Node) -> Exchange | None:
        return exchange_of(node, self.ranks)

    def until_end(self, order: Collection[fx.Node]) -> float:
        """Return the microseconds of a program in this order."""
        times = _Times(self)
        for node in order:
            times.advance(node)
        return max(times.now, times.free)


class _Times:
    """How late it is behind some calls.

    Args:
        clock: Of the program.

    Attributes:
        now: When what is computed so far is done.
        free: When the links are done with what has begun.
    """

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock
        self.now = self.free = 0.0
        self._done: dict[fx.Node, float] = {}

    def advance(self, node: fx.Node) -> None:
        """Go past a call."""
        if (sent := self._clock.sends(node)) is not None:
            self.free = self._done[node] = max(self.now, self.free) + self._clock.links.microseconds(sent)
        elif is_wait(node):
            self.now = max(self.now, self.end_of(node))
        else:
            self.now += self._clock.cost(node)

    def end_of(self, wait: fx.Node) -> float:
        """Return when what a call waits for is done; of several results of a collective, each is when all are."""
        begun = (x.args[0] if x.target is operator.getitem else x for x in wait.all_input_nodes)
        return max((self._done.get(x, 0.0) for x in begun if isinstance(x, fx.Node)), default=0.0)


# -- order -------------------------------------------------------------------------------------------------------


def _ordered(nodes: list[fx.Node], clock: _Clock) -> list[fx.Node]:
    """Return calls in the order of the clock."""
    return _Walk(nodes, clock).run()


class _Walk:
    """A list schedule: what is ready, when the links are done, and what the next collective needs."""

    def __init__(self, nodes: list[fx.Node], clock: _Clock) -> None:
        self.place = {node: k for k, node in enumerate(nodes)}
        before = must_follow(nodes)
        self.before = {n: {b for b in some if b in self.place} for n, some in before.items()}
        self.after: dict[fx.Node, list[fx.Node]] = {node: [] for node in nodes}
        for node, some in self.before.items():
            for b in some:
                self.after[b].append(node)
        self.missing = {node: len(some) for node, some in self.before.items()}
        self.starts = [node for node in nodes if clock.sends(node) is not None]
        self.order: list[fx.Node] = []
        self.placed: set[fx.Node] = set()
        self.times = _Times(clock)
        # by (whether others can wait for it, place); the same call may be in it twice
        self.ready: list[tuple[bool, int, fx.Node]] = []
        self.waits: list[tuple[float, int, fx.Node]] = []

    def run(self) -> list[fx.Node]:
        starts = iter(self.starts)
        start = next(starts, None)
        needed = self._needed(start)
        for free in [node for node, count in self.missing.items() if not count]:
            self._offer(free, needed)
        while (node := self._next()) is not None:
            self.order.append(node)
            self.placed.add(node)
            self.times.advance(node)
            if node is start:
                start = next(starts, None)
                needed = self._needed(start)
                for again in [n for _, _, n in self.ready if n in needed]:
                    self._offer(again, needed)
            for user in self.after[node]:
                self.missing[user] -= 1
                if not self.missing[user]:
                    self._offer(user, needed)
        return self.order

    def _needed(self, start: fx.Node | None) -> set[fx.Node]:
        """Return what must be computed before a collective can begin, and the collective; nothing behind the last."""
        waiting = [] if start is None else [start]
        needed = set(waiting)
        while waiting:
            for b in self.before[waiting.pop()]:
                if b not in needed and b not in self.placed:
                    needed.add(b)
                    waiting.append(b)
        return needed

    def _offer(self, node: fx.Node, needed: set[fx.Node]) -> None:
        if is_wait(node):
            heapq.heappush(self.waits, (self.times.end_of(node), self.place[node], node))
        else:
            heapq.heappush(self.ready, (node not in needed, self.place[node], node))

    def _next(self) -> fx.Node | None:
        while self.ready and self.ready[0][2] in self.placed:
            heapq.heappop(self.ready)
        urgent = bool(self.ready) and not self.ready[0][0]
        if self.waits and (not self.ready or (self.waits[0][0] <= self.times.now and not urgent)):
            return heapq.heappop(self.waits)[2]
        return heapq.heappop(self.ready)[2] if self.ready else None


# -- buckets -----------------------------------------------------------------------------------------------------


class _Buckets:
    """Neighbours among the collectives of a draft, sent together."""

    def __init__(self, draft: Draft, clock: _Clock, target: Target, most: int) -> None:
        self.draft, self.clock, self.most = draft, clock, most
        self.bytes_per_us = target.machine.gb_per_s * 1e3

    def join(self) -> None:
        nodes = _calls(self.draft.graph)
        before = must_follow(nodes)
        waiting: list[fx.Node] = []
        for node in nodes:
            if self.clock.sends(node) is None:
                continue
            if waiting and not self._joins(waiting, node, before):
                self._send(waiting)
                waiting = []
            if waiting and not self.draft.burn("joined"):
                break
            waiting.append(node)
        self._send(waiting)

    def _joins(self, some: list[fx.Node], node: fx.Node, before: dict[fx.Node, list[fx.Node]]) -> bool:
        """Tell whether a collective may join others, and is cheaper with them than after them."""
        if _like(node) is None or _like(node) != _like(some[0]) or not _only_waited_for(node):
            return False
        if not _only_waited_for(some[0]) or _depends(node, some, before):
            return False
        together, alone = (self.clock.sends(n) for n in (some[0], node))
        assert together is not None and alone is not None
        earlier = sum(e.bytes for n in some if (e := self.clock.sends(n)) is not None)
        if earlier + alone.bytes > self.most:
            return False
        sizes = [earlier, alone.bytes, earlier + alone.bytes]
        first, second, both = (
            self.clock.links.microseconds(Exchange(alone.kind, alone.group, alone.ranks, size)) for size in sizes
        )
        return first + second - both > 4 * alone.bytes / self.bytes_per_us  # read and written, before and after

    def _send(self, some: list[fx.Node]) -> None:
        if len(some) > 1:
            _send_together(self.draft, some)


def _like(node: fx.Node) -> tuple[Any, ...] | None:
    """Return what collectives must have in common to go together; None for those that go alone."""
    kinds = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor")
    name = node.target._schema.name.partition("::")[2]  # type: ignore[union-attr]
    value = meta.value(node)
    if name not in kinds or not isinstance(value, torch.Tensor) or not (bytes_of(value) and value.is_contiguous()):
        return None
    return name, node.args[1:], value.dtype, value.device


def _only_waited_for(node: fx.Node) -> bool:
    return len(node.users) == 1 and all(map(is_wait, node.users))


def _depends(node: fx.Node, some: list[fx.Node], before: dict[fx.Node, list[fx.Node]]) -> bool:
    """Tell whether a collective needs what others give; that they begin in order doesn't count."""
    ancestors, waiting = set(), list(node.all_input_nodes)
    waiting += [b for b in before[node] if b not in some]
    while waiting:
        n = waiting.pop()
        if n in ancestors or n not in before:
            continue
        if n in some:
            return True
        ancestors.add(n)
        waiting += before[n]
    return False


def _send_together(draft: Draft, some: list[fx.Node]) -> None:
    """Let one collective send what several did; each keeps its sizes, in memory of its own.

    Each operand is a matrix with a row for each part that a process sends, and each result one with a row for each that
    arrives: one row, or as many as there are processes. The matrices are put side by side.
    """
    last, name = some[-1], _like(some[-1])[0]  # type: ignore[index]
    size = last.args[-2]  # of the group, in front of its name; an all_reduce has its operation there
    given = size if name == "reduce_scatter_tensor" else 1
    taken = size if name == "all_gather_into_tensor" else 1
    assert isinstance(given, int) and isinstance(taken, int)

    def call(target: Any, *args: Any, source: fx.Node = last, **kwargs: Any) -> fx.Node:
        return draft.insert_computed(last, target, args, kwargs, source)

    rows = [call(_OPS.reshape.default, node.args[0], [given, -1], source=node) for node in some]
    whole = call(_OPS.reshape.default, call(_OPS.cat.default, rows, 1), [-1])
    begun = call(last.target, whole, *last.args[1:])
    arrived = call(torch.ops._c10d_functional.wait_tensor.default, begun)
    for node in (whole, begun, arrived):
        meta.set_origins(node, meta.merge_origins(*some))
    matrix = call(_OPS.view.default, arrived, [taken, -1])
    start = 0
    for node in some:
        (wait,) = node.users
        shape = list(meta.value(wait).shape)
        end = start + meta.value(wait).numel() // taken
        part = call(_OPS.slice.Tensor, matrix, 1, start, end, source=node)
        part = call(_OPS.clone.default, part, source=node, memory_format=torch.contiguous_format)
        viewed = call(_OPS.view.default, part, shape, source=node)
        start = end
        wait.replace_all_uses_with(viewed)
        draft.graph.erase_node(wait)
        draft.graph.erase_node(node)
