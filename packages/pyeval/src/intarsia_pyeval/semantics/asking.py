"""What CPython asks an instance for: its truth, membership, an iterator, the next element."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.callables.polyfills import polyfill
from intarsia_pyeval.semantics import iteration, operators, special
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.objects import Object

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["object_advance", "object_contains", "object_iterate", "object_truth"]


def object_truth(tx: Tracer, owner: Value) -> bool:
    """Model `bool` of an instance."""
    if tx.classes.find(owner.type(), "__bool__") is not None:
        answer = special.special(tx, owner, "__bool__", [])
        if answer.type() is not bool:
            tx.raising.error(TypeError, f"__bool__ should return bool, returned {answer.type().__name__}")
        return do.truth(tx, answer)
    _rely_on_none(tx, owner, "__bool__")
    if tx.classes.find(owner.type(), "__len__") is not None:
        return do.length(tx, owner) > 0
    _rely_on_none(tx, owner, "__len__")
    return True


def _rely_on_none(tx: Tracer, owner: Value, name: str) -> None:
    """Rely on no class of an instance defining a special method."""
    cls = owner.type()
    tx.classes.rely_on_passing_over(owner, cls, len(cls.__mro__), name)


def object_contains(tx: Tracer, owner: Value, item: Value) -> bool:
    """Model `in` of an instance."""
    if tx.classes.find(owner.type(), "__contains__") is not None:
        return do.truth(tx, special.special(tx, owner, "__contains__", [item]))
    return any(operators.same_or_equal(tx, element, item) for element in iteration.elements(tx, owner))


def object_iterate(tx: Tracer, owner: Value) -> Value:
    """Model `iter` of an instance."""
    if tx.classes.find(owner.type(), "__iter__") is not None:
        iterator = special.special(tx, owner, "__iter__", [])
        if tx.classes.find(iterator.type(), "__next__") is None:
            tx.raising.error(TypeError, f"iter() returned non-iterator of type '{iterator.type().__name__}'")
        return iterator
    if tx.classes.find(owner.type(), "__getitem__") is not None:
        return polyfill(tx, "sequence_iterator", [owner])
    raise Break("tracer.exception", f"{owner.describe()} isn't iterable")


def object_advance(tx: Tracer, owner: Object) -> Value | None:
    """Model `next` of an instance."""
    definition = tx.classes.find(owner.cls, "__next__")
    if definition is None or not isinstance(definition[0], types.FunctionType):
        raise Break("tracer.iterator", f"advancing {owner.describe()} isn't modelled")
    try:
        return special.special(tx, owner, "__next__", [])
    except Raised as raised:
        if raised.is_a(StopIteration):
            return None
        raise
