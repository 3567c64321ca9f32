"""What a policy can decide, as data: inline, fuse, order; and what it looked at and declined, for the log.

Every decision names things by buffer. A buffer is written once, so its name stands for the nest that makes it, and
for the kernel which that nest is in at the time. A decision is an argument of `legality.check`, a line of a plan, and
a JSON object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from intarsia_ir.errors import InvalidArgumentError

__all__ = [
    "Decision",
    "Declined",
    "Fuse",
    "Inline",
    "Order",
    "decision_from_data",
    "decision_to_data",
    "names_in",
    "renamed",
]


@dataclass(frozen=True, slots=True)
class Inline:
    """Compute the map `producer` inside the nest `consumer`, at every point where it is read there.

    before: p[i] = map g(i);  c[j] = kind f(p[e(j)])        after: c[j] = kind f(g(e(j)))

    The producer stays while anybody else needs it and disappears with its last reader, so inlining into some readers
    only is duplication, into all of them is elimination.

    Args:
        producer: Buffer made by a map.
        consumer: Buffer made by a nest that reads `producer`.
        why: The policy's reason, for the log; it decides nothing.
    """

    producer: str
    consumer: str
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Fuse:
    """Merge the kernel that makes `second` into the kernel that makes `first`, over their first `depth` rows.

    before: kernel rows (i, k): P;  kernel rows (i): Q      after, at depth 1: kernel rows (i): P over k; Q

    Rows are shortened to `depth` first, which is always legal. Covers a map or a further reduction over the same
    row ("vertical": second reads first) and independent work ("horizontal").

    Args:
        first: A buffer of the kernel whose steps run first.
        second: A buffer of the kernel whose steps run after them.
        depth: Leading axes that become the rows of the merged kernel.
        why: The policy's reason, for the log.
    """

    first: str
    second: str
    depth: int
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Order:
    """Run the items in this order. The last decision of a plan: later ones are refused.

    Args:
        items: Every item once: kernels by any buffer that they make, extern calls by their name `"@k"`.
        why: The policy's reason, for the log.
    """

    items: tuple[str, ...]
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Declined:
    """A pair that the policy considered and left apart. Goes to the log, changes nothing.

    Args:
        first: A buffer.
        second: A buffer.
        code: Stable identifier such as `"greedy.few_rows"`.
        why: One sentence.
    """

    first: str
    second: str
    code: str
    why: str


Decision = Inline | Fuse | Order

_KINDS: dict[str, type[Inline] | type[Fuse] | type[Order]] = {"inline": Inline, "fuse": Fuse, "order": Order}


def names_in(decision: Decision) -> tuple[str, ...]:
    """Return what a decision names."""
    match decision:
        case Inline(producer, consumer):
            return producer, consumer
        case Fuse(first, second):
            return first, second
        case Order(items):
            return items


def renamed(decision: Decision, names: Mapping[str, str]) -> Decision:
    """Return the decision about other names; `names` must have all that it names."""
    match decision:
        case Inline(producer, consumer, why):
            return Inline(names[producer], names[consumer], why)
        case Fuse(first, second, depth, why):
            return Fuse(names[first], names[second], depth, why)
        case Order(items, why):
            return Order(tuple(names[i] for i in items), why)


def decision_to_data(decision: Decision) -> dict[str, Any]:
    """Return the JSON object of a decision.

    Example:
        >>> decision_to_data(Fuse("b1", "b2", 1))
        {'kind': 'fuse', 'first': 'b1', 'second': 'b2', 'depth': 1, 'why': ''}
    """
    match decision:
        case Inline(producer, consumer, why):
            return {"kind": "inline", "producer": producer, "consumer": consumer, "why": why}
        case Fuse(first, second, depth, why):
            return {"kind": "fuse", "first": first, "second": second, "depth": depth, "why": why}
        case Order(items, why):
            return {"kind": "order", "items": list(items), "why": why}


def decision_from_data(data: dict[str, Any]) -> Decision:
    """Return the decision that `decision_to_data` made `data` from.

    Raises:
        InvalidArgumentError: `data` is no decision.
    """
    fields = dict(data)
    cls = _KINDS.get(fields.pop("kind", ""))
    if cls is Order:
        fields["items"] = tuple(fields.get("items", ()))
    try:
        if cls is not None:
            return cls(**fields)
    except TypeError as error:
        raise InvalidArgumentError(f"not a decision: {data!r} ({error})", code="fuser.decision") from error
    raise InvalidArgumentError(f"not a decision: {data!r}", code="fuser.decision", hints=(f"kinds: {sorted(_KINDS)}",))
