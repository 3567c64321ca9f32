"""What is different in a call: the sizes and numbers that were constants for a capture and have another value now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from intarsia_guards import lookup, meaning
from intarsia_guards.codegen import HeldGuard
from intarsia_guards.frame import Frame, fetch
from intarsia_guards.held import release
from intarsia_guards.sets import GuardSet
from intarsia_ir.records import GuardKind, Source, Symbolic, TensorFacts

__all__ = ["changed"]


def changed(guards: GuardSet, values: Mapping[str, Any], globals: Mapping[str, Any]) -> Symbolic:
    """Return where sizes, strides, numbers and texts differ; what can't be fetched, or is of another kind, is left out.

    Args:
        guards: The guard set of a capture.
        values: Parameter or free variable -> value, of a frame.
        globals: The globals of the frame.
    """
    frame = Frame(values, values, globals)
    sizes: dict[Source, frozenset[int]] = {}
    strides: dict[Source, frozenset[int]] = {}
    numbers: set[Source] = set()
    others: set[Source] = set()  # of another type: what was fetched from them before is no part of these
    for guard in guards._guards:
        if guard.source is None or _is_below(guard.source, others):
            continue
        if guard.kind is GuardKind.TYPE and not _holds(guard, frame):
            others.add(guard.source)
        if guard.kind not in (GuardKind.TENSOR, GuardKind.CONSTANT):
            continue
        try:
            actual = fetch(guard.source, frame)
        except Exception:  # a missing name, or only code of the user could tell: nothing is there that could vary
            continue
        expected = release(guard.value)
        if guard.kind is GuardKind.CONSTANT:
            if type(actual) is type(expected) and type(actual) in (int, float, str) and actual != expected:
                numbers.add(guard.source)
        elif lookup.is_tensor(actual) and actual.layout is torch.strided and _alike(expected, actual):
            _note(sizes, guard.source, expected.shape, actual.shape)
            _note(strides, guard.source, expected.strides, actual.stride())
    return Symbolic(sizes, frozenset(numbers), strides=strides)


def _is_below(source: Source | None, others: set[Source]) -> bool:
    while source is not None and others:
        if source in others:
            return True
        source = getattr(source, "base", None)
    return False


def _holds(guard: HeldGuard, frame: Frame) -> bool:
    assert guard.source is not None
    try:
        return meaning.holds(guard.kind, release(guard.value), fetch(guard.source, frame), frame)
    except Exception:  # it can't be fetched
        return False


def _alike(expected: TensorFacts, actual: torch.Tensor) -> bool:
    return len(expected.shape) == actual.dim() and expected.dtype == actual.dtype


def _note(
    changes: dict[Source, frozenset[int]], source: Source, expected: Iterable[Any], actual: Iterable[int]
) -> None:
    dims = frozenset(d for d, (old, new) in enumerate(zip(expected, actual)) if old is not None and old != new)
    if dims:
        changes[source] = dims
