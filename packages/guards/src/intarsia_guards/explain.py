"""Saying which guard failed: what it looks at, what it held, what it is now, where it comes from, what to do."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch

from intarsia_guards import lookup, meaning, relations
from intarsia_guards.codegen import HeldGuard
from intarsia_guards.frame import Frame, fetch
from intarsia_guards.held import release
from intarsia_ir.records import (
    AttributeSource,
    GuardKind,
    Origin,
    PlainAttributeSource,
    SizeFacts,
    Source,
    TensorFacts,
)
from intarsia_ir.user_names import in_user_names

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
    return in_user_names("\n".join(lines))


def first_failure(guards: tuple[HeldGuard, ...], facts: SizeFacts, frame: Frame) -> GuardFailure | None:
    """Return the first guard that doesn't hold in `frame`, None when all do."""
    for guard in guards:
        if guard.kind is GuardKind.SIZE:
            continue
        actual = _actual(guard, frame)
        expected = release(guard.value)
        if not meaning.holds(guard.kind, expected, actual, frame):
            return _failure(guard, expected, actual, frame)
    return _first_size_failure(guards, facts, frame)


def _actual(guard: HeldGuard, frame: Frame) -> Any:
    if guard.source is None:
        return meaning.ambient(guard.kind)
    return _fetched(guard.source, frame)


def _fetched(source: Source, frame: Frame) -> Any:
    try:
        return fetch(source, frame)
    except Exception:  # a missing name, or only code of the user could tell
        return meaning.MISSING


def _failure(guard: HeldGuard, expected: Any, actual: Any, frame: Frame) -> GuardFailure:
    dims: tuple[int, ...] = ()
    shown = _shown(guard.kind, expected, actual, frame)
    if guard.kind is GuardKind.TENSOR and lookup.is_tensor(actual):
        dims = _changed_dims(expected, actual)
    source = str(guard.source) if guard.source is not None else ""
    remedy = _remedy(guard, expected, actual, dims)
    return GuardFailure(guard.kind, source, *shown, guard.origin, guard.reason, remedy, dims)


# ---- sizes -----------------------------------------------------------------------------------------------------


def _first_size_failure(guards: tuple[HeldGuard, ...], facts: SizeFacts, frame: Frame) -> GuardFailure | None:
    further = tuple((g.value.relation, g.value.origin or g.origin) for g in guards if g.kind is GuardKind.SIZE)
    texts = relations.size_texts(facts, tuple(relation for relation, _ in further))
    origins = dict([*((f.relation, f.origin) for f in facts.facts), *further])
    values: dict[str, Any] = {}
    for name, text in texts.symbols.items():
        try:
            values[name] = relations.evaluate(text, lambda source: fetch(source, frame))
        except Exception:  # as in the predicate: what can't be fetched fails
            return GuardFailure(GuardKind.SIZE, text, "a size", repr(meaning.MISSING), remedy=_SIZE_REMEDY)
    for relation in texts.relations:
        if not _holds(relation, values):
            used = sorted(relations.names_in(relation))
            now = ", ".join(f"{name} = {values[name]} ({texts.symbols[name]})" for name in used)
            return GuardFailure(
                GuardKind.SIZE,
                f"`{relation}`",
                "true",
                f"false with {now}",
                origins.get(relation),
                remedy=_relation_remedy(relation),
            )
    return None


def _holds(relation: str, values: dict[str, Any]) -> bool:
    """Tell whether a relation holds, as the predicate does: `n % m == 0` says nothing where `m` is 0, so it doesn't."""
    try:
        return bool(relations.evaluate(relation, lambda source: None, values))
    except (ArithmeticError, ValueError):  # a division by zero, a number too large for a float, the root of a negative
        return False


def _relation_remedy(relation: str) -> str:
    """Say what helps: a relation that fixes a number has as many sides as there are numbers."""
    return _EQUAL_REMEDY if " == " in relation else _SIZE_REMEDY


_EQUAL_REMEDY = "each number that the equality fixes is compiled apart: pass what is computed here as a tensor"
_SIZE_REMEDY = "nothing, if sizes on both sides of the relation occur: each side is compiled once"


# ---- words -----------------------------------------------------------------------------------------------------


def _shown(kind: GuardKind, expected: Any, actual: Any, frame: Frame) -> tuple[str, str]:
    """Return what the guard held and what it is, as short texts."""
    if actual is meaning.MISSING:
        return _brief(expected), "missing (fetching it raises)"
    match kind:
        case GuardKind.TENSOR:
            return _shown_tensor(expected, actual)
        case GuardKind.TYPE:
            return _brief(expected), _brief(type(actual))
        case GuardKind.LENGTH:
            return f"of length {expected}", f"of length {_length(actual)}"
        case GuardKind.DICT_KEYS:
            return f"with keys {_brief(expected)}", f"with keys {_keys(actual)}"
        case GuardKind.HAS_ATTRIBUTE:
            words = ("without", "with") if expected[1] else ("with", "without")
            return f"{words[1]} the attribute {expected[0]!r}", f"{words[0]} it"
        case GuardKind.ABSENT:
            key = str(expected) if isinstance(expected, Source) else repr(expected)
            return f"without {key}", "with it"
        case GuardKind.CODE:
            return f"the code {_brief(expected)}", _brief(lookup.code_of(actual) or actual)
        case GuardKind.IDENTITY:
            return f"the object {_brief(expected)}", f"another: {_brief(actual)}"
        case GuardKind.COMPARISON:
            op, number, holds = expected
            return f"{'' if holds else 'not '}{op} {_brief(number)}", _brief(actual)
        case GuardKind.SUBCLASS:
            words = ("another class than", "a subclass of")
            return f"{words[expected[1]]} {_brief(expected[0])}", f"{words[not expected[1]]} it"
        case GuardKind.NOT_IDENTITY:
            return f"another object than {_brief(expected)}", "that object"
        case GuardKind.ALIASING:
            same = "the same object as" if expected[1] else "another object than"
            return f"{same} {expected[0]}", "the opposite"
        case GuardKind.DISTINCT:
            return f"another object than {', '.join(map(str, expected))}", "one of them, or two of them are one"
        case GuardKind.OVERLAP:
            return f"in memory apart from {', '.join(map(str, expected))}", "overlapping one of them"
        case GuardKind.AUTOCAST:
            return _brief(expected), _brief(actual(expected))
    return _brief(expected), _brief(actual)


def _shown_tensor(expected: TensorFacts, actual: Any) -> tuple[str, str]:
    if not lookup.is_tensor(actual):
        return f"a {expected.type_name}", f"a {meaning.type_name(type(actual))}"
    now = meaning.tensor_facts(actual, expected)
    changed = [f.name for f in fields(expected) if getattr(now, f.name) != getattr(expected, f.name)]
    return (
        ", ".join(_shown_fact(name, expected, now) for name in changed),
        ", ".join(_shown_fact(name, now, expected) for name in changed),
    )


_BITS = {"Conjugate": "conjugate bit", "Negative": "negative bit"}


def _shown_fact(name: str, facts: TensorFacts, other: TensorFacts) -> str:
    """Return the text of a fact that differs from another's; of dispatch keys the first bit that one of them lacks."""
    keys, other_keys = facts.dispatch_keys, other.dispatch_keys
    if name == "dispatch_keys" and keys is not None and other_keys is not None:
        key_set = torch._C.DispatchKeySet.from_raw_repr
        for key, text in _BITS.items():
            bit = getattr(torch._C.DispatchKey, key)
            has_bit = key_set(keys).has(bit)
            if has_bit != key_set(other_keys).has(bit):
                return f"{'a' if has_bit else 'no'} {text}"
    return f"{name} {getattr(facts, name)}"


def _changed_dims(expected: TensorFacts, actual: torch.Tensor) -> tuple[int, ...]:
    if len(expected.shape) != actual.dim():
        return ()
    pairs = zip(expected.shape, actual.shape)
    return tuple(dim for dim, (old, new) in enumerate(pairs) if old is not None and old != new)


def _brief(value: Any) -> str:
    """Return a short text; the user's `__repr__` isn't asked."""
    if issubclass(type(value), type):
        return meaning.type_name(value)
    if lookup.is_tensor(value):
        return f"a {meaning.type_name(type(value))} of shape {tuple(value.shape)}"
    text = repr(value) if lookup.is_shown_by_us(value) else object.__repr__(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _keys(value: Any) -> str:
    try:
        return _brief(lookup.keys(value))
    except lookup.RefusedError:
        return "that can't be listed"


def _length(value: Any) -> Any:
    try:
        return lookup.length(value)
    except lookup.RefusedError:
        return "unknown"


def _is_attribute(source: Source | None) -> bool:
    return isinstance(source, AttributeSource | PlainAttributeSource)


def _remedy(guard: HeldGuard, expected: Any, actual: Any, dims: tuple[int, ...]) -> str:
    source = guard.source
    match guard.kind:
        case GuardKind.TENSOR if dims:
            place = dims[0] if len(dims) == 1 else list(dims)
            return f"call intarsia.mark_dynamic({source}, {place}) before the first call, or pad {source} to one size"
        case GuardKind.TENSOR:
            return f"pass {source} with the same type, device and layout on every call, or accept one entry for each"
        case GuardKind.CONSTANT if isinstance(expected, (int, float)) and not isinstance(expected, bool):
            hoisted = "read it before, outside of what is compiled, and " if _is_attribute(source) else ""
            return f"a number that changes is compiled in: {hoisted}pass {source} as a tensor, or keep it fixed"
        case GuardKind.CONSTANT if _is_attribute(source):
            return f"keep {source} fixed, or hoist it: read it before, outside of what is compiled, and use it there"
        case GuardKind.COMPARISON:
            return f"keep {source} on one side of {_brief(expected[1])}, or accept an entry for each"
        case GuardKind.CONSTANT:
            return f"keep {source} fixed, or accept one entry for each of its values"
        case GuardKind.IDENTITY | GuardKind.NOT_IDENTITY | GuardKind.CODE | GuardKind.TYPE:
            return f"create {source} once, outside of what is compiled, and pass the same object"
        case GuardKind.LENGTH | GuardKind.DICT_KEYS | GuardKind.ABSENT | GuardKind.HAS_ATTRIBUTE:
            return f"give {source} the same contents on every call"
        case GuardKind.SUBCLASS:
            return f"let {source} have its bases, and be registered, before the first call"
        case GuardKind.ALIASING | GuardKind.DISTINCT | GuardKind.OVERLAP:
            return f"pass a copy: {source}.clone()"
    return "call under the same torch settings as the first time"
