"""Iterating over models: step by step, or all at once where nobody can tell; lengths; what dicts are made of."""

from __future__ import annotations

import operator
import sys
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.semantics import folding, operators, special, subclasses
from intarsia_pyeval.stores import dict_store, instance_dict_store, position_store
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.deques import Deque
from intarsia_pyeval.values.iterators import Position, Reversed
from intarsia_pyeval.values.mappings import Dict, DictView
from intarsia_pyeval.values.objects import InstanceDict, Object
from intarsia_pyeval.values.sequences import Items, List
from intarsia_pyeval.values.sets import SetValue

if TYPE_CHECKING:
    from intarsia_pyeval.state.classes import Classes
    from intarsia_pyeval.tracer import Tracer

__all__ = [
    "ask_length",
    "elements",
    "elements_left",
    "is_read_whole",
    "iterator_over",
    "keyword_pairs",
    "list_of",
    "next_or_stop",
    "pairs",
    "real_item",
    "size_from",
    "taken",
    "unpack",
    "unpack_exactly",
]


_NO_MAPPINGS = (Const, Items, SetValue, DictView, Position)


def iterator_over(tx: Tracer, value: Value) -> Position:
    """Return an iterator over a sequence, atom, set or dict view."""
    position = Position(value, tx.steps.now)
    position_store.begin(tx, position)
    return position


def next_or_stop(tx: Tracer, iterator: Value) -> Value:
    """Model `next(iterator)`."""
    element = do.advance(tx, iterator)
    if element is None:
        tx.raising.throw(StopIteration, [])
    return element


def unpack(tx: Tracer, value: Value) -> list[Value]:
    """Return all elements of an iterable."""
    return list(value.items) if is_read_whole(tx.classes, value) else list(elements(tx, value))  # type: ignore[attr-defined]


def is_read_whole(classes: Classes, value: Value) -> bool:
    """Tell whether iterating over a sequence asks nobody, so that it can be taken in one go."""
    if isinstance(value, Deque) or not isinstance(value, Items):
        return False
    return value.type() in (list, tuple) or not classes.asks_python(value, "__iter__")


def taken(tx: Tracer, value: Value) -> list[Value]:
    """Return all elements as `list` and `tuple` take them: an object is asked for its length after its iterator."""
    if not isinstance(value, (Object, Reversed)) and not tx.classes.asks_python(value, "__iter__"):
        return unpack(tx, value)
    iterator = do.iterate(tx, value)
    ask_length(tx, value)
    return list(elements_left(tx, iterator))


def ask_length(tx: Tracer, value: Value) -> None:
    """Model `operator.length_hint`; the answer counts only where it is wrong."""
    if isinstance(value, Reversed) and isinstance(value.over, Object) and value.at >= 0:
        do.length(tx, value.over)
    for name in ("__len__", "__length_hint__"):
        if not tx.classes.asks_python(value, name):
            continue
        try:
            answer = special.special(tx, value, name, [])
            if name == "__len__":
                size_from(tx, answer)
        except Raised as raised:
            if not raised.is_a(TypeError):
                raise
            continue
        if name == "__len__":
            return
        if not isinstance(answer, Const) or (answer.value is not NotImplemented and type(answer.value) is not int):
            raise Break("tracer.exception", f"{name} of {value.describe()} gives {answer.describe()}")
        if answer.value is not NotImplemented and answer.value < 0:
            tx.raising.error(ValueError, "__length_hint__() should return >= 0")
        return


def size_from(tx: Tracer, answer: Value) -> int:
    """Return the length that a `__len__` written in Python answers with, as CPython checks it."""
    if not isinstance(answer.settled(), Const):
        answer = Const(operators.index(tx, answer))
    size = folding.real(tx, operator.index, answer.as_python())
    if size < 0:
        tx.raising.error(ValueError, "__len__() should return >= 0")
    if size > sys.maxsize:
        tx.raising.error(OverflowError, "cannot fit 'int' into an index-sized integer")
    return int(size)


def elements(tx: Tracer, value: Value) -> Iterator[Value]:
    """Iterate over the elements of an iterable, one step at a time."""
    return elements_left(tx, do.iterate(tx, value))


def elements_left(tx: Tracer, iterator: Value) -> Iterator[Value]:
    """Iterate over what an iterator still gives."""
    while (element := do.advance(tx, iterator)) is not None:
        tx.frames.spend(1)
        yield element


def list_of(tx: Tracer, value: Value) -> List:
    """Model `list(value)`."""
    return List(taken(tx, value))


def real_item(tx: Tracer, value: Value, index: int) -> Value:
    """Return an item of a range or string."""
    return do.get_item(tx, value, Const(index))


def pairs(tx: Tracer, value: Value) -> Iterator[tuple[Hashable, Value, Value]]:
    """Yield (hash key, key, value) of what `dict(value)` takes, one step at a time: an iterator may look meanwhile."""
    if isinstance(value, InstanceDict):
        value = instance_dict_store.whole(tx, value)
    if isinstance(value, Object) and isinstance(value.base, Dict) and subclasses.plain_mapping(tx.classes, value):
        value = value.base
    if isinstance(value, Dict):
        yield from [(hashed, key, item) for hashed, (key, item) in dict_store.entries(tx, value).items()]
    elif not isinstance(value, _NO_MAPPINGS) and special.has_attribute(tx, value, "keys"):
        for key in list_of(tx, do.call(tx, do.get_attribute(tx, value, "keys"), [], {})).items:
            yield do.hash_key(tx, key), key, do.get_item(tx, value, key)
    else:
        for number, element in enumerate(elements(tx, value)):
            key, item = _pair(tx, element, number)
            yield do.hash_key(tx, key), key, item


def _pair(tx: Tracer, element: Value, number: int) -> list[Value]:
    """Return the two parts of an element that a dict is made of."""
    if tx.classes.find(element.type(), "__iter__") is None:
        raise Break("tracer.exception", f"a dict is made of {element.describe()}")
    both = taken(tx, element if is_read_whole(tx.classes, element) else do.iterate(tx, element))
    if len(both) != 2:
        shown = f"#{number} has length {len(both)}; 2 is required"
        tx.raising.error(ValueError, f"dictionary update sequence element {shown}")
    return both


def keyword_pairs(keywords: Keywords) -> list[tuple[Hashable, Value, Value]]:
    """Return (hash key, key, value) of keyword arguments."""
    return [(name, Const(name), value) for name, value in keywords.items()]


def unpack_exactly(tx: Tracer, value: Value, count: int) -> list[Value]:
    """Return exactly `count` elements."""
    if is_read_whole(tx.classes, value):
        elements = unpack(tx, value)
    else:
        elements = []
        iterator = do.iterate(tx, value)
        while len(elements) <= count and (element := do.advance(tx, iterator)) is not None:
            elements.append(element)
    if len(elements) > count:
        tx.raising.error(ValueError, f"too many values to unpack (expected {count})")
    if len(elements) < count:
        tx.raising.error(ValueError, f"not enough values to unpack (expected {count}, got {len(elements)})")
    return elements
