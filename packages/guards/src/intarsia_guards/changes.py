"""What is different in a call: the sizes, numbers and lengths of lists that were constants and are others now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from intarsia_guards import lookup
from intarsia_guards.frame import Frame
from intarsia_guards.kinds.contents import HeldConstant, HeldLength
from intarsia_guards.kinds.objects import HeldType
from intarsia_guards.kinds.tensors import HeldTensor
from intarsia_guards.rows import MISSING, SourceGuard
from intarsia_guards.sets import GuardSet
from intarsia_ir.records import LengthSource, Source, Symbolic, TensorFacts

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
        if not isinstance(guard, SourceGuard) or _is_below(guard.source, others):
            continue
        if isinstance(guard, HeldType) and not guard.holds(guard.looked_at(frame), frame):
            others.add(guard.source)
        if not isinstance(guard, HeldTensor | HeldConstant | HeldLength):
            continue
        actual = guard.looked_at(frame)
        if actual is MISSING:
            continue
        if isinstance(guard, HeldLength):
            if type(actual) is list and len(actual) != guard.length:
                numbers.add(LengthSource(guard.source))
        elif isinstance(guard, HeldConstant):
            expected = guard.value.get()
            if type(actual) is type(expected) and type(actual) in (int, float, str) and actual != expected:
                numbers.add(guard.source)
        elif lookup.is_tensor(actual) and actual.layout is torch.strided and _alike(guard.facts, actual):
            _note(sizes, guard.source, guard.facts.shape, actual.shape)
            _note(strides, guard.source, guard.facts.strides, actual.stride())
    return Symbolic(sizes, frozenset(numbers), strides=strides)


def _is_below(source: Source | None, others: set[Source]) -> bool:
    while source is not None and others:
        if source in others:
            return True
        source = getattr(source, "base", None)
    return False


def _alike(expected: TensorFacts, actual: torch.Tensor) -> bool:
    return len(expected.shape) == actual.dim() and expected.dtype == actual.dtype


def _note(
    changes: dict[Source, frozenset[int]], source: Source, expected: Iterable[Any], actual: Iterable[int]
) -> None:
    dims = frozenset(d for d, (old, new) in enumerate(zip(expected, actual)) if old is not None and old != new)
    if dims:
        changes[source] = dims
