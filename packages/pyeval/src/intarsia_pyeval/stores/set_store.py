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


def in_its_order(tx: Tracer, collection: SetValue) -> Any:
    """Return the set for its text, if every element is known: with the order of the real one."""
    in_order(tx, collection)
    if collection.real is not None and not collection.recipe.steps:
        return collection.real
    return collection.as_python()


def in_order(tx: Tracer, collection: SetValue) -> list[Value]:
    """Return the elements in the order in which CPython iterates; relies on that of an existing set."""
    mirror = collection.mirror_now()
    if mirror is None and collection.real is not None and not collection.recipe.steps and collection.source is not None:
        if len(collection.elements) > 1:
            tx.guards.add(DictKeysGuard, collection.source, tuple(collection.real))
        mirror = [tx.live.key(key) for key in collection.real]
    if mirror is not None:
        return [collection.elements[key] for key in mirror]
    items = list(collection.elements.values())
    if len(items) <= 1:
        return items
    keys = list(collection.elements)
    if all(type(key) in (int, bool) and 0 <= key < 8 for key in keys):  # type: ignore[operator]
        return [collection.elements[key] for key in sorted(keys)]  # type: ignore[type-var]
    raise Break("tracer.iterator", "the order of a set isn't known while tracing")
