"""Iterators over sequences, atoms, sets and dict views, by position."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.kinds import iterators
from intarsia_pyeval.semantics import methods
from intarsia_pyeval.stores import dict_store, position_store, set_store
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const
from intarsia_pyeval.values.deques import Deque
from intarsia_pyeval.values.iterators import Backwards, Position
from intarsia_pyeval.values.mappings import DictView
from intarsia_pyeval.values.sequences import Items, Tuple
from intarsia_pyeval.values.sets import SetValue
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.state.live import Live
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.advance.rule(Position)
def advance_position(tx: Tracer, iterator: Position) -> Value | None:
    """Return the next element."""
    tx.effects.advanced()
    over = iterator.over
    if isinstance(over, Deque) and over.version != iterator.state:
        tx.raising.error(RuntimeError, "deque mutated during iteration")
    if iterator.at < 0:
        return None
    if isinstance(over, Items):
        element = over.at(iterator.at) if iterator.at < over.count() else None
    elif isinstance(over, Const):
        element = _item_of(tx.live, over.value, iterator.at)
    elif isinstance(over, SetValue):
        element = _of_set(tx, iterator, over)
    else:
        element = _of_view(tx, iterator)
    iterator.at = -1 if element is None else iterator.at + 1
    return element


def _of_set(tx: Tracer, iterator: Position, over: SetValue) -> Value | None:
    """Return the next element of a set, which must keep its size meanwhile."""
    if iterator.size != len(over.elements):
        iterator.size = -1  # it is noticed for good
        tx.raising.error(RuntimeError, "Set changed size during iteration")
    if iterator.state is not over.recipe:
        raise Break("tracer.mutation", "a set is changed during iteration")
    if iterator.keys is None:
        iterator.keys = list(set_store.in_order(tx, over))
    element = iterator.keys[iterator.at] if iterator.at < len(iterator.keys) else None
    return element if isinstance(element, Value) else None


def _of_view(tx: Tracer, iterator: Position) -> Value | None:
    """Return the next element of a dict view; the dict must keep its keys meanwhile."""
    assert isinstance(iterator.over, DictView)
    entries = dict_store.entries(tx, iterator.over.base)
    if iterator.keys is None:
        position_store.begin(tx, iterator)
    assert iterator.keys is not None
    if iterator.size != len(entries):
        iterator.size = -1  # it is noticed for good
        tx.raising.error(RuntimeError, "dictionary changed size during iteration")
    if iterator.state != iterator.over.base.deletions:
        raise Break("tracer.mutation", "keys of a dictionary are deleted during iteration")
    if iterator.at >= len(iterator.keys):
        return None
    entry = entries.get(iterator.keys[iterator.at])
    if entry is None:
        raise Break("tracer.mutation", "a dictionary changed its keys during iteration")
    return Tuple(entry) if iterator.over.what == "items" else entry[0 if iterator.over.what == "keys" else 1]


@do.call_method.rule(Position)
def call_method(tx: Tracer, iterator: Position, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of an iterator: those of all classes are the same."""
    return methods.call(tx, _FIRST, iterator, name, args, keywords)


def _set_state(tx: Tracer, iterator: Position, args: list[Value], keywords: Keywords) -> Value:
    """Set the position; an iterator that is exhausted stays so."""
    (state,) = arity("__setstate__", args, keywords, 1)
    at = state.as_python()
    if (
        not isinstance(at, int) or at < 0 or not isinstance(iterator.over, Items)
    ):  # what less than 0 means differs in 3.13
        raise Break("tracer.call", f"the state of {iterator.describe()} is set")
    tx.effects.advanced()
    if iterator.at >= 0:
        iterator.at = min(int(at), iterator.over.count())
    return NONE


def _length_hint(tx: Tracer, iterator: Position, args: list[Value], keywords: Keywords) -> Value:
    arity("__length_hint__", args, keywords, 0)
    if not isinstance(iterator.over, Items):
        raise Break("tracer.call", f"the length that is left of {iterator.describe()} isn't modelled")
    return Const(max(0, iterator.over.count() - iterator.at) if iterator.at >= 0 else 0)


@codegen.reconstruct.rule(Position)
def reconstruct_position(out: Builder, iterator: Position) -> None:
    """Make an iterator and set its position."""
    over = iterator.over
    if iterator.at < 0:
        over, at = Tuple(()), 0
    elif isinstance(over, Const):
        over, at = Const(over.value[iterator.at :]), 0
    elif isinstance(over, Items) and not isinstance(over, Deque):
        at = iterator.at
    else:
        at = 0
        if iterator.at or iterator.is_stale():
            iterators.reconstruct_iterator(out, iterator)
    out.load(over)
    out.emit("GET_ITER")
    if at:
        out.set_state(partial(out.constant, at))


@position_store.begin.rule(Backwards)
def begin_backwards(tx: Tracer, iterator: Backwards) -> None:
    """Note the state of what is iterated over, and go through its keys from the last."""
    position_store.begin.default(tx, iterator)
    if iterator.keys is not None:
        iterator.keys.reverse()
    elif isinstance(iterator.over, Deque):
        iterator.size = iterator.over.count()


@do.advance.rule(Backwards)
def advance_backwards(tx: Tracer, iterator: Backwards) -> Value | None:
    """Return the element before."""
    over = iterator.over
    if not isinstance(over, Deque):
        return advance_position(tx, iterator)
    tx.effects.advanced()
    if over.version != iterator.state:
        tx.raising.error(RuntimeError, "deque mutated during iteration")
    if iterator.at >= iterator.size:
        return None
    iterator.at += 1
    return over.at(iterator.size - iterator.at)


@codegen.reconstruct.rule(Backwards)
def reconstruct_backwards(out: Builder, iterator: Backwards) -> None:
    """Reverse what wasn't looked at yet."""
    if iterator.at or iterator.is_stale():
        iterators.reconstruct_iterator(out, iterator)
    out.call(lambda: out.constant(reversed), [lambda: out.load(iterator.over)])


def _item_of(live: Live, value: Any, at: int) -> Value | None:
    """Return an item of a string, bytes or range; a range may be longer than `len` can say."""
    try:
        return live.from_python(value[at])
    except IndexError:
        return None


METHODS: dict[str, methods.Rule] = {"__length_hint__": _length_hint, "__setstate__": _set_state, **iterators.METHODS}
_FIRST: type = type(iter([]))
_DICTS: tuple[Any, ...] = ({}, collections.OrderedDict())
_VIEWS = [view for empty in _DICTS for view in (empty.keys(), empty.values(), empty.items())]
_OVER: list[Any] = [[], (), "", "\u0100", b"", range(1), range(1 << 70), set(), collections.deque(), *_VIEWS]
for _cls in dict.fromkeys([*map(type, map(iter, _OVER)), *map(type, map(reversed, [collections.deque(), *_VIEWS]))]):
    methods.declare(_cls, {name: row for name, row in METHODS.items() if name in vars(_cls)}, methods.PICKLED)
