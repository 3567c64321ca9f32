"""The elements of sets, and their order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from intarsia_ir.guards import DictKeysGuard
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.sets import Elements, SetValue

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["in_its_order", "in_order", "of"]


def of(tx: Tracer, items: Iterable[Value], cls: Any = set) -> SetValue:
    """Return the set of `items`, inserted one after the other."""
    elements: Elements = {}
    for item in items:
        elements.setdefault(do.hash_key(tx, item), item)
    return SetValue(elements, cls)


def in_its_order(tx: Tracer, x: SetValue) -> Any:
    """Return the set for its text, if every element is known: with the order of the real one."""
    in_order(tx, x)
    if x.real is not None and not x.recipe.steps:
        return x.real
    return x.as_python()


def in_order(tx: Tracer, x: SetValue) -> list[Value]:
    """Return the elements in the order in which CPython iterates; relies on that of an existing set."""
    mirror = x.mirror_now()
    if mirror is None and x.real is not None and not x.recipe.steps and x.source is not None:
        if len(x.elements) > 1:
            tx.guards.add(DictKeysGuard, x.source, tuple(x.real))
        mirror = [tx.live.key(key) for key in x.real]
    if mirror is not None:
        return [x.elements[key] for key in mirror]
    items = list(x.elements.values())
    if len(items) <= 1:
        return items
    keys = list(x.elements)
    if all(type(key) in (int, bool) and 0 <= key < 8 for key in keys):  # type: ignore[operator]
        return [x.elements[key] for key in sorted(keys)]  # type: ignore[type-var]
    raise Break("tracer.iterator", "the order of a set isn't known while tracing")
