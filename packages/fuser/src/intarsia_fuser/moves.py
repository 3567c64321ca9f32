"""Every decision that is legal on a draft as it stands, with what it saves in bytes and in predicted time.

    inline  each map into each nest that reads it
    fuse    each pair of kernels with a buffer to share, at the deepest rows that they have in common, or at every depth

Pairs without a buffer to share save nothing and are left out, and so is `Order`, of which there are too many; both are
legal when they are asked for. A search lists the moves of thousands of drafts that differ by a decision from one
another, so what a move changes is remembered by the very kernels that it touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from intarsia_fuser import legality
from intarsia_fuser.cost import CostModel, KernelCostModel, KernelWork
from intarsia_fuser.decisions import Decision, Fuse, Inline
from intarsia_fuser.draft import Draft
from intarsia_loops.program import Kernel

__all__ = ["Move", "Prices", "legal_moves"]


@dataclass(frozen=True, slots=True)
class Move:
    """A legal decision.

    Args:
        decision: The decision.
        kind: `"inline"`, `"vertical"` (second reads first) or `"horizontal"`.
        saved: Bytes that would no longer move through memory; negative when more would.
        saved_us: Microseconds that the cost model thinks it saves; negative when it costs time.
    """

    decision: Decision
    kind: str
    saved: int
    saved_us: float


class Prices:
    """What a cost model said, remembered: by kernel, and by decision and the kernels that it touches."""

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost
        self._shown = cost if isinstance(cost, KernelCostModel) else None
        self._kernels: dict[KernelWork, float] = {}
        # by the kernel's id and what escapes of it; the kernel is kept beside what was said
        self._built: dict[tuple[int, tuple[bool, ...]], tuple[float, Kernel]] = {}
        # the kernels are kept beside the move: their ids are in its key
        self._moves: dict[Any, tuple[Move, tuple[Kernel, ...]]] = {}

    def us(self, draft: Draft, item: str) -> float:
        """Return the predicted microseconds of a kernel."""
        if self._shown is not None:
            return self._us_of_built(self._shown, draft, item)
        work = draft.kernel_work(item)
        found = self._kernels.get(work)
        if found is None:
            found = self._kernels[work] = self.cost.kernel_us(work)
        return found

    def total_us(self, draft: Draft) -> float:
        """Return the predicted microseconds of all kernels."""
        return sum(self.us(draft, k) for k in draft.kernels)

    def _us_of_built(self, shown: KernelCostModel, draft: Draft, item: str) -> float:
        kernel = draft.kernels[item]
        key = (id(kernel), tuple([draft.escapes(s.out, (item,)) for s in kernel.steps]))
        if key not in self._built:
            self._built[key] = (shown.predicted_us(draft.built(item), draft.program), kernel)
        return self._built[key][0]

    def move(self, draft: Draft, accepted: legality.Accepted) -> Move:
        """Return an accepted inline or fuse with what it saves."""
        touched = _touched(draft, accepted.decision)
        kernels = tuple([draft.kernels[k] for k in touched])
        readers = tuple([draft.readers.get(s) for k in touched for s in draft.steps(k)])
        key = (accepted.decision, tuple(map(id, kernels)), readers)
        found = self._moves.get(key)
        if found is None:
            move = Move(accepted.decision, accepted.kind, accepted.saved, self._saved_us(draft, accepted, touched))
            found = self._moves[key] = (move, kernels)
        return found[0]

    def _saved_us(self, draft: Draft, accepted: legality.Accepted, touched: tuple[str, ...]) -> float:
        after = draft.fork()
        legality.carry_out(after, accepted)
        left = sum(self.us(after, k) for k in touched if k in after.kernels)
        return sum(self.us(draft, k) for k in touched) - left


def legal_moves(
    draft: Draft,
    prices: Prices,
    pairs: Iterable[tuple[str, str]],
    *,
    every_depth: bool = False,
    nests: Iterable[str] | None = None,
) -> Iterator[Move]:
    """Yield the legal inlines, in program order, then the legal merges of `pairs`.

    Args:
        draft: Left as it is.
        prices: Where predicted times come from.
        pairs: Kernels to merge, the one that runs first first.
        every_depth: Try each number of rows in common, not only the largest.
        nests: Producers to inline; None is all of them.
    """
    decisions: list[Inline | Fuse] = [
        *_inlines(draft, draft.names if nests is None else nests),
        *_merges(draft, pairs, every_depth),
    ]
    for decision in decisions:
        answer = legality.check(draft, decision)
        if isinstance(answer, legality.Accepted):
            yield prices.move(draft, answer)


def _inlines(draft: Draft, names: Iterable[str]) -> Iterator[Inline]:
    for name in names:
        nest = draft.nests.get(name)
        if nest is None or nest.kind != "map":
            continue
        for rank in draft.readers.get(name, ()):
            reader = draft.names[rank]
            if reader in draft.nests:
                yield Inline(name, reader)


def _merges(draft: Draft, pairs: Iterable[tuple[str, str]], every_depth: bool) -> Iterator[Fuse]:
    for first, second in pairs:
        deepest = legality.deepest(draft, first, second)
        for depth in range(deepest, -1 if every_depth else deepest - 1, -1):
            yield Fuse(first, second, depth)


def _touched(draft: Draft, decision: Decision) -> tuple[str, ...]:
    """The kernels whose counts a decision may change, the one that stays first."""
    if isinstance(decision, Inline):
        return draft.touched_by(decision.producer, decision.consumer)
    assert isinstance(decision, Fuse), "an order changes no kernel"
    found = (draft.find(decision.first), draft.find(decision.second))
    return tuple([item for item in found if item is not None])
