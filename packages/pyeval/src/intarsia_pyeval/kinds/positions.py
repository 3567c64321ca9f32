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
def advance_position(tx: Tracer, x: Position) -> Value | None:
    """Return the next element."""
    tx.effects.advanced()
    over = x.over
    if isinstance(over, Deque) and over.version != x.state:
        tx.raising.error(RuntimeError, "deque mutated during iteration")
    if x.at < 0:
        return None
    if isinstance(over, Items):
        found = over.at(x.at) if x.at < over.count() else None
    elif isinstance(over, Const):
        found = _item_of(tx.live, over.value, x.at)
    elif isinstance(over, SetValue):
        found = _of_set(tx, x, over)
    else:
        found = _of_view(tx, x)
    x.at = -1 if found is None else x.at + 1
    return found


def _of_set(tx: Tracer, x: Position, over: SetValue) -> Value | None:
    """Return the next element of a set, which must keep its size meanwhile."""
    if x.size != len(over.elements):
        x.size = -1  # it is noticed for good
        tx.raising.error(RuntimeError, "Set changed size during iteration")
    if x.state is not over.recipe:
        raise Break("tracer.mutation", "a set is changed during iteration")
    if x.keys is None:
        x.keys = list(set_store.in_order(tx, over))
    found = x.keys[x.at] if x.at < len(x.keys) else None
    return found if isinstance(found, Value) else None


def _of_view(tx: Tracer, x: Position) -> Value | None:
    """Return the next element of a dict view; the dict must keep its keys meanwhile."""
    assert isinstance(x.over, DictView)
    entries = dict_store.entries(tx, x.over.base)
    if x.keys is None:
        position_store.begin(tx, x)
    assert x.keys is not None
    if x.size != len(entries):
        x.size = -1  # it is noticed for good
        tx.raising.error(RuntimeError, "dictionary changed size during iteration")
    if x.state != x.over.base.deletions:
        raise Break("tracer.mutation", "keys of a dictionary are deleted during iteration")
    if x.at >= len(x.keys):
        return None
    entry = entries.get(x.keys[x.at])
    if entry is None:
        raise Break("tracer.mutation", "a dictionary changed its keys during iteration")
    return Tuple(entry) if x.over.what == "items" else entry[0 if x.over.what == "keys" else 1]


@do.call_method.rule(Position)
def call_method(tx: Tracer, x: Position, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of an iterator: those of all classes are the same."""
    return methods.call(tx, _FIRST, x, name, args, keywords)


def _set_state(tx: Tracer, x: Position, args: list[Value], keywords: Keywords) -> Value:
    """Set the position; an iterator that is exhausted stays so."""
    (state,) = arity("__setstate__", args, keywords, 1)
    at = state.as_python()
    if not isinstance(at, int) or at < 0 or not isinstance(x.over, Items):  # what less than 0 means differs in 3.13
        raise Break("tracer.call", f"the state of {x.describe()} is set")
    tx.effects.advanced()
    if x.at >= 0:
        x.at = min(int(at), x.over.count())
    return NONE


def _length_hint(tx: Tracer, x: Position, args: list[Value], keywords: Keywords) -> Value:
    arity("__length_hint__", args, keywords, 0)
    if not isinstance(x.over, Items):
        raise Break("tracer.call", f"the length that is left of {x.describe()} isn't modelled")
    return Const(max(0, x.over.count() - x.at) if x.at >= 0 else 0)


@codegen.reconstruct.rule(Position)
def reconstruct_position(out: Builder, x: Position) -> None:
    """Make an iterator and set its position."""
    over = x.over
    if x.at < 0:
        over, at = Tuple(()), 0
    elif isinstance(over, Const):
        over, at = Const(over.value[x.at :]), 0
    elif isinstance(over, Items) and not isinstance(over, Deque):
        at = x.at
    else:
        at = 0
        if x.at or x.is_stale():
            iterators.reconstruct_iterator(out, x)
    out.load(over)
    out.emit("GET_ITER")
    if at:
        out.set_state(partial(out.constant, at))


@position_store.begin.rule(Backwards)
def begin_backwards(tx: Tracer, x: Backwards) -> None:
    """Note the state of what is iterated over, and go through its keys from the last."""
    position_store.begin.default(tx, x)
    if x.keys is not None:
        x.keys.reverse()
    elif isinstance(x.over, Deque):
        x.size = x.over.count()


@do.advance.rule(Backwards)
def advance_backwards(tx: Tracer, x: Backwards) -> Value | None:
    """Return the element before."""
    over = x.over
    if not isinstance(over, Deque):
        return advance_position(tx, x)
    tx.effects.advanced()
    if over.version != x.state:
        tx.raising.error(RuntimeError, "deque mutated during iteration")
    if x.at >= x.size:
        return None
    x.at += 1
    return over.at(x.size - x.at)


@codegen.reconstruct.rule(Backwards)
def reconstruct_backwards(out: Builder, x: Backwards) -> None:
    """Reverse what wasn't looked at yet."""
    if x.at or x.is_stale():
        iterators.reconstruct_iterator(out, x)
    out.call(lambda: out.constant(reversed), [lambda: out.load(x.over)])


def _item_of(live: Live, value: Any, at: int) -> Value | None:
    """Return an item of a string, bytes or range; a range may be longer than `len` can say."""
    try:
        return live.from_python(value[at])
    except IndexError:
        return None


METHODS: dict[str, methods.Rule] = {"__length_hint__": _length_hint, "__setstate__": _set_state, **iterators.METHODS}
_FIRST: type = type(iter([]))
_DICTS: tuple[Any, ...] = ({}, collections.OrderedDict())
_VIEWS = [view for made in _DICTS for view in (made.keys(), made.values(), made.items())]
_OVER: list[Any] = [[], (), "", "\u0100", b"", range(1), range(1 << 70), set(), collections.deque(), *_VIEWS]
for _cls in dict.fromkeys([*map(type, map(iter, _OVER)), *map(type, map(reversed, [collections.deque(), *_VIEWS]))]):
    methods.declare(_cls, {name: row for name, row in METHODS.items() if name in vars(_cls)}, methods.PICKLED)
