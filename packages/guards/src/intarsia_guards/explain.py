"""Saying which guard failed: what it looks at, what it held, what it is now, where it comes from, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from intarsia_guards.frame import Frame
from intarsia_guards.kinds.tensors import HeldTensor
from intarsia_guards.rows import MISSING, HeldGuard
from intarsia_ir.records import GuardKind, Origin

__all__ = ["GuardFailure", "explain", "first_failure"]


@dataclass(frozen=True, slots=True)
class GuardFailure:
    """Why an entry doesn't fit a call.

    Args:
        kind: Kind of the guard that failed first.
        source: What it looks at, as text; "" for ambient state.
        expected: What it held, as text.
        actual: What it is, as text.
        origin: The user line that relied on it.
        reason: As in the record.
        remedy: What the user can do, one sentence.
        dims: For tensors whose sizes alone differ: the dimensions.
    """

    kind: GuardKind
    source: str
    expected: str
    actual: str
    origin: Origin | None = None
    reason: str = ""
    remedy: str = ""
    dims: tuple[int, ...] = ()


def explain(failure: GuardFailure) -> str:
    """Return the text that a user reads."""
    subject = failure.source or failure.kind.value.replace("_", " ")
    lines = [f"guard failed ({failure.kind.value}): {subject} was {failure.expected}, now it is {failure.actual}"]
    if failure.origin is not None:
        lines.append(f"  at {failure.origin}")
    if failure.reason:
        lines.append(f"  because: {failure.reason}")
    lines.append(f"  remedy: {failure.remedy}")
    return "\n".join(lines)


def first_failure(guards: Iterable[HeldGuard[Any]], frame: Frame) -> GuardFailure | None:
    """Return the first guard that doesn't hold in `frame`, None when all do."""
    for guard in guards:
        actual = guard.looked_at(frame)
        if not guard.holds(actual, frame):
            return _failure(guard, actual, frame)
    return None


def _failure(guard: HeldGuard[Any], actual: Any, frame: Frame) -> GuardFailure:
    if actual is MISSING:
        expected, now = guard.asked(), "missing (fetching it raises)"
    else:
        expected, now = guard.shown(actual, frame)
    dims = guard.changed_dims(actual) if isinstance(guard, HeldTensor) else ()
    remedy = guard.remedy(actual)
    return GuardFailure(guard.record.kind, guard.subject, expected, now, guard.origin, guard.reason, remedy, dims)
