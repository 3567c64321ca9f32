"""What is done in a row, or in a block of rows: nests of loops that steps share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from intarsia_loops.addresses import product
from intarsia_loops.index import Atom, IndexExpr, axis, lift
from intarsia_loops.ops import FLOATS
from intarsia_loops.vectors.axes import collapse
from intarsia_loops.vectors.groups import Group
from intarsia_loops.vectors.steps import Block, Step
from intarsia_loops.vectors.walks import Inner, Share
from intarsia_loops.vectors.work import work_of
from intarsia_scheduler.vectors.questions import Accumulators, Ask, Carry, Chain, Lane, Lines, Order, Parts

__all__ = ["Nests"]


@dataclass(frozen=True, slots=True)
class Nests:
    """Makes the nests of one kernel.

    Args:
        rows: Axes of the rows.
        block: The rows side by side, one in each lane; None: lanes run along inner loops.
        lanes: Elements of a vector.
        threads: Threads that there are.
        least: Additions from which on they are woken.
        who: Whether they share `"rows"`, or these `"loops"`.
        ask: Who answers.
        share: Whether threads share so many points of so much work.
    """

    rows: tuple[Atom, ...]
    block: Block | None
    lanes: int
    threads: int
    least: int
    who: str
    ask: Ask
    share: Callable[[IndexExpr, int], Share | None]

    def inner(self, number: int, group: Group) -> Inner:
        """Return the nest of one group; `number` is in its words."""
        step = group.steps[0]
        if not group.loops:
            return Inner("once", (), group.steps)
        if step.is_scan:
            (scanned,) = step.red
            outer = tuple(a for a in step.inner if a is not scanned)
            carry = str(self.ask(f"carry {number}", Carry(step, self.block is not None)))
            return Inner("scan", (scanned,), (step,), outer, carry=carry)
        if self.block is not None:
            return self.side_by_side(number, group)
        return self.at_points(number, step) if step.is_fold and step.inner else self.shared(number, group)

    # ---- lanes along inner loops

    def shared(self, number: int, group: Group) -> Inner:
        """Maps and reductions in one nest of loops."""
        loops, steps = self.ordered(number, group)
        folds = [s for s in steps if s.is_fold]
        unroll = self.accumulators(number, loops) if folds else 1
        chain = self.chain(number, loops, folds, unroll * self.lanes)
        points, work = product(tuple(a.extent for a in loops)), work_of(steps)
        parts = self.parts(number, points.const(), work)
        share = self.share(points, work) if parts > 1 else None
        return self.chained("shared", loops, steps, (), unroll, chain, chain * unroll * self.lanes, parts, share)

    def at_points(self, number: int, step: Step) -> Inner:
        """A reduction at each point of inner axes."""
        said = str(self.ask(f"lane {number}", Lane(step, self.lanes)))
        if said != "along":
            lane = step.inner[int(said.removeprefix("across "))]
            outer = (*(a for a in step.inner if a is not lane), lane)
            return Inner("across", step.red, (step,), outer)
        loops, steps = self.ordered(number, Group(step.red, (step,)))
        unroll = self.accumulators(number, loops)
        chain = self.chain(number, loops, steps, unroll * self.lanes)
        return self.chained("along", loops, steps, step.inner, unroll, chain, chain * unroll * self.lanes)

    def ordered(self, number: int, group: Group) -> tuple[tuple[Atom, ...], tuple[Step, ...]]:
        """Loops in their order, merged where memory walks them as one, and the steps over them."""
        said = self.ask(f"loops {number}", Order(group.loops, group.steps, self.lanes))
        loops = [group.loops[int(k)] for k in str(said).split()]
        merged, env = collapse(loops, [e for s in group.steps for e in s.addresses()])
        return merged or (axis("r0", lift(1)),), tuple(s.substituted(env) for s in group.steps)

    def accumulators(self, number: int, loops: Sequence[Atom]) -> int:
        return int(self.ask(f"unroll {number}", Accumulators(loops[-1].extent, self.lanes)))

    # ---- lanes along rows

    def side_by_side(self, number: int, group: Group) -> Inner:
        """Loops inside a block of rows."""
        first = group.steps[0]
        if first.is_fold and first.inner:
            chain = self.chain(number, first.red, [first], 1)
            return self.chained("along", first.red, (first,), first.inner, 1, chain, chain)
        loops, env = collapse(group.loops, [e for s in group.steps for e in s.addresses()])
        loops, steps = loops or group.loops[-1:], tuple(s.substituted(env) for s in group.steps)
        if not all(s.is_fold for s in steps):
            chain = self.chain(number, loops, [s for s in steps if s.is_fold], 1)
            return self.chained("shared", loops, steps, (), 1, chain, chain)
        lines = int(self.ask(f"unroll {number}", Lines(steps)))
        chain = self.chain(number, loops, steps, 1)
        points, work = product(tuple(a.extent for a in (*self.rows, *loops))), work_of(steps)
        parts = self.parts(number, points.const(), work)
        share = self.share(points, work) if parts > 1 else None
        return self.chained("folds", loops, steps, (), lines, chain, chain, parts, share)

    # ---- all

    def parts(self, number: int, points: int | None, work: int) -> int:
        """Parts for threads that don't share rows."""
        if self.who == "rows":
            return 1
        return int(self.ask(f"parts {number}", Parts(points, work, self.least, self.threads)))

    def chain(self, number: int, loops: Sequence[Atom], folds: Sequence[Step], unit: int) -> int:
        """Numbers that an accumulator takes; only sums of floats need it to be few."""
        if not any(s.kind == "sum" and s.body.dtype in FLOATS for s in folds):
            return 0
        points = product(tuple(a.extent for a in loops)).const()
        return int(self.ask(f"chain {number}", Chain(points, unit, self.block is not None)))

    def chained(
        self, kind: str, loops: tuple[Atom, ...], steps: tuple[Step, ...], outer: tuple[Atom, ...], unroll: int,
        chain: int, length: int, parts: int = 1, share: Share | None = None,
    ) -> Inner:  # fmt: skip
        extent = loops[-1].extent.const()
        cut = chain > 0 and (extent is None or extent > 2 * length)
        return Inner(kind, loops, steps, outer, unroll, chain, length, cut, parts, share)
