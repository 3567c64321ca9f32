"""Which decisions are legal. Complete (a decision is accepted iff the result means the same) and apart from policy.

Inline producer into consumer
  I1 `inline.unknown`        both are nests of the program as it stands
  I2 `inline.not_a_map`      the producer is a map: only then is its value a function of its index alone
  I3 `inline.no_read`        the consumer reads the producer
  I4 `inline.gather`         where it reads it at a data-dependent index, that index can be computed from data
Fuse first and second over `depth` rows
  F1 `fuse.unknown`          both are made by kernels (not by the caller or by an extern call)
  F2 `fuse.same`             by different kernels
  F3 `fuse.depth`            both kernels have at least `depth` rows (a scanned axis never is one)
  F4 `fuse.rows`             the extents of these rows are equal
  F5 `fuse.order`            first doesn't read second
  F6 `fuse.crosses_rows`     second reads what first makes only in its own row
  F7 `fuse.between`          no third kernel has to run after one and before the other
     `fuse.extern_between`   nor an extern call; unlike a kernel, it can never join them
  F8 `fuse.device`           both run on one device
  F9 `fuse.scatter`          neither is a scatter: any of its points may write to any row
Order
  O1 `order.items`           every item is named exactly once
  O2 `order.dependence`      every item comes after the items that it depends on
  O3 `order.last`            nothing is decided after an order
F2 to F6 and F9 with the rule of `intarsia_loops.rewrites.fuse_rows`; F7 is what that rule leaves to its caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from intarsia_fuser.decisions import Decision, Fuse, Inline, Order
from intarsia_fuser.draft import Draft, shorten
from intarsia_ir import codes
from intarsia_loops.index import lift
from intarsia_loops.program import Kernel, Nest, Refused, Val
from intarsia_loops.rewrites import fuse_rows, inline

__all__ = ["Accepted", "carry_out", "check", "deepest", "saved_by_fusing"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A decision that is legal at this point; truthy.

    Args:
        decision: The decision.
        kind: `"inline"`, `"vertical"` (second reads first), `"horizontal"` or `"order"`.
        saved: Bytes that no longer move through memory because of it; negative when more move.
    """

    decision: Decision
    kind: str
    saved: int = 0
    prepared: Any = field(default=None, compare=False, repr=False)


def check(draft: Draft, decision: Decision) -> Accepted | Refused:
    """Tell whether `decision` is legal on the draft as it stands, and what it saves. Changes nothing."""
    if draft.answer is None or draft.answer[0] is not decision:
        draft.answer = (decision, _check(draft, decision))
    answer = draft.answer[1]
    assert isinstance(answer, (Accepted, Refused))
    return answer


def _check(draft: Draft, decision: Decision) -> Accepted | Refused:
    if draft.ordered is not None:
        return Refused("order.last", "the order of items is fixed; decide it last")
    match decision:
        case Inline():
            return _check_inline(draft, decision)
        case Fuse():
            return _check_fuse(draft, decision)
        case Order():
            return _check_order(draft, decision)


def carry_out(draft: Draft, accepted: Accepted) -> None:
    """Change the draft as an accepted decision says. It must have been accepted on this very state."""
    match accepted.decision:
        case Inline(producer):
            draft.put_inlined(producer, accepted.prepared)
        case Fuse(first, second):
            fused, ancestors = accepted.prepared
            draft.put_fused(draft.find(first) or first, draft.find(second) or second, fused, ancestors)
        case Order():
            draft.ordered, draft.answer = accepted.prepared, None


def deepest(draft: Draft, first: str, second: str) -> int:
    """Return the largest depth at which F3, F4 and F6 hold for two kernels (0: only as one row).

    Args:
        draft: The draft.
        first: A kernel.
        second: Another kernel.
    """
    a, b = draft.kernels[first], draft.kernels[second]
    depth = 0
    for row, other in zip(a.rows, b.rows, strict=False):
        if row.extent is not other.extent:
            break
        depth += 1
    made = set(draft.steps(first))
    for v in _loads(b):
        if v.args[0] in made:
            depth = min(depth, _common_row(v, b))
    return depth


def _common_row(v: Val, kernel: Kernel) -> int:
    """How many leading indices of a load are the kernel's own row."""
    common = 0
    for entry, row in zip(v.args[1], kernel.rows, strict=False):
        if entry is not lift(row):
            break
        common += 1
    return common


def _loads(kernel: Kernel) -> frozenset[Val]:
    return frozenset[Val]().union(*(s.body.loads for s in kernel.steps))


# ---- inline ----------------------------------------------------------------------------------------------------


def _check_inline(draft: Draft, d: Inline) -> Accepted | Refused:
    producer, consumer = draft.nests.get(d.producer), draft.nests.get(d.consumer)
    if producer is None or consumer is None:
        missing = d.producer if producer is None else d.consumer
        return Refused("inline.unknown", f"{missing} is not made by a nest (any more)")
    if producer.kind == "map" and d.producer not in draft.reads[d.consumer]:
        return Refused("inline.no_read", f"{d.consumer} doesn't read {d.producer}")
    result = inline(consumer, producer)
    if isinstance(result, Refused):
        return result
    return Accepted(d, "inline", _saved_by_inline(draft, d), result)


def _saved_by_inline(draft: Draft, d: Inline) -> int:
    """Bytes read and written by the kernels of both, before minus after (footprints of reads are taken as they are)."""
    consumer, producer = draft.owner[d.consumer], draft.owner[d.producer]
    reads = draft.reads[d.producer]
    dies = d.producer not in draft.pinned and len(draft.readers[d.producer]) == 1
    saved = -sum(size for b, size in reads.items() if b not in draft.outside[consumer])
    if producer != consumer:
        saved += draft.reads[d.consumer][d.producer]
    if dies and producer != consumer:
        saved += draft.written(d.producer)
        saved += sum(size for b, size in reads.items() if not _read_by_others(draft, producer, d.producer, b))
    return saved


def _read_by_others(draft: Draft, kernel: str, step: str, buffer: str) -> bool:
    """Whether another step of the kernel reads the buffer from memory, or makes it."""
    others = [s for s in draft.steps(kernel) if s != step]
    return buffer in others or any(buffer in draft.reads[s] for s in others)


# ---- fuse ------------------------------------------------------------------------------------------------------


def _check_fuse(draft: Draft, d: Fuse) -> Accepted | Refused:
    first, second = draft.find(d.first), draft.find(d.second)
    for name, item in ((d.first, first), (d.second, second)):
        if item is None or item not in draft.kernels:
            return Refused("fuse.unknown", f"{name} is not made by a kernel")
    assert first is not None and second is not None
    if first == second:
        return Refused("fuse.same", f"{d.first} and {d.second} are in one kernel")
    a, b = draft.kernels[first], draft.kernels[second]
    if not 0 <= d.depth <= min(len(a.rows), len(b.rows)):
        return Refused("fuse.depth", f"the kernels have {len(a.rows)} and {len(b.rows)} rows, not {d.depth}")
    backwards = [s for s in draft.steps(second) if s in draft.outside[first]]
    if backwards:
        return Refused("fuse.order", f"{d.first}'s kernel reads {backwards[0]}, which would be made after it")
    if _device(draft, a.steps[0]) != _device(draft, b.steps[0]):
        return Refused("fuse.device", f"{d.first} is on {_device(draft, a.steps[0])}, {d.second} isn't")
    path, ancestors = draft.order.between(first, second)
    if path:
        code = "fuse.between" if draft.kernels.keys() >= set(path) else codes.EXTERN_BETWEEN
        return Refused(code, f"{' -> '.join(path)} must run between {d.first} and {d.second}")
    fused = fuse_rows(shorten(a, d.depth), shorten(b, d.depth))
    if isinstance(fused, Refused):
        return fused
    kind = "vertical" if any(s in draft.outside[second] for s in draft.steps(first)) else "horizontal"
    return Accepted(d, kind, saved_by_fusing(draft, first, second), (fused, ancestors))


def saved_by_fusing(draft: Draft, first: str, second: str) -> int:
    """Return the bytes that stop moving when two kernels become one: shared reads once, results handed over."""
    a, b = draft.outside[first], draft.outside[second]
    small, large = (a, b) if len(a) <= len(b) else (b, a)
    saved = sum(min(size, large[buffer]) for buffer, size in small.items() if buffer in large)
    for step in draft.steps(first):
        if step in b:
            saved += b[step]
            if not draft.escapes(step, (first, second)):
                saved += draft.written(step)
    return saved


def _device(draft: Draft, step: Nest) -> str:
    return draft.program.buffers[step.out].device


# ---- order -----------------------------------------------------------------------------------------------------


def _check_order(draft: Draft, d: Order) -> Accepted | Refused:
    items: list[str] = []
    for name in d.items:
        item = draft.find(name)
        if item is None:
            return Refused("order.items", f"{name} names no item")
        items.append(item)
    if len(set(items)) != len(items) or set(items) != set(draft.order.position):
        wanted = sorted(set(draft.order.position) ^ set(items)) or sorted({i for i in items if items.count(i) > 1})
        return Refused("order.items", f"every item must be named once; wrong: {', '.join(wanted[:5])}")
    place = {item: k for k, item in enumerate(items)}
    for item in items:
        for above in draft.before(item):
            if place[above] > place[item]:
                return Refused("order.dependence", f"{item} needs {above}, which comes after it")
    return Accepted(d, "order", 0, tuple(items))
