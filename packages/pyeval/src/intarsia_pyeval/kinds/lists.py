"""`list`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.kinds import sequences
from intarsia_pyeval.operation import operation
from intarsia_pyeval.semantics import folding, iteration, methods, open_lists, operators, subclasses
from intarsia_pyeval.stores import list_store
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value, defines
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const, is_none
from intarsia_pyeval.values.sequences import Items, List, Slice
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["METHODS", "take"]


@do.get_item.rule(List)
def get_item(tx: Tracer, sequence: List, key: Value) -> Value:
    """Index or slice."""
    part = open_lists.part(tx, sequence, key) if isinstance(key, Slice) else open_lists.item(tx, sequence, key)
    if part is not None:
        return part
    if isinstance(key, Slice):
        return List(sequence.items[operators.index(tx, key)])
    return sequence.at(sequences.index_of(tx, sequence, key, ""))


@do.truth.rule(List)
def truth(tx: Tracer, sequence: List) -> bool:
    """Tell whether there are items."""
    n = open_lists.length(tx, sequence)
    return bool(sequence.models) if n is None else do.truth(tx, n)


@do.get_attribute.rule(List)
def get_attribute(tx: Tracer, sequence: List, name: str) -> Value:
    """Return a method."""
    if not defines(list, name):
        tx.raising.error(AttributeError, f"'list' object has no attribute {name!r}")
    return tx.live.from_python(list) if name == "__class__" else BoundBuiltin(sequence, name)


@do.call_method.rule(List)
def call_method(tx: Tracer, sequence: List, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of list."""
    return methods.call(tx, list, sequence, name, args, keywords)


@operation
def take(tx: Tracer, sequence: List, items: Value) -> None:
    """Append what an iterable gives, one by one: it may look at the list meanwhile."""
    if isinstance(items, Items) and items.type() in (list, tuple):
        new = list(items.items)
        list_store.append(tx.effects, sequence, new)
        return
    iterator = do.iterate(tx, items)
    iteration.ask_length(tx, items)
    for item in iteration.elements_left(tx, iterator):
        list_store.append(tx.effects, sequence, [item])


@do.set_item.rule(List)
def set_item(tx: Tracer, sequence: List, key: Value, value: Value) -> None:
    """Store an item or a slice."""
    if isinstance(key, Slice):
        at = operators.index(tx, key)
        start, stop, step = at.indices(len(sequence.models))
        itself = subclasses.built_in_part(value, NONE) is sequence
        new = (
            list(sequence.items)
            if itself
            else iteration.taken(tx, value if iteration.is_read_whole(tx.classes, value) else do.iterate(tx, value))
        )
        at = slice(start, max(start, stop), step) if step > 0 and _BOUNDS_FIRST else at
        copy: list[Any] = list(sequence.items)
        folding.real(tx, copy.__setitem__, at, new)
        list_store.change(tx.effects, sequence)[:] = copy
        return
    if open_lists.store(tx, sequence, key, value):
        return
    at = sequences.index_of(tx, sequence, key, "assignment ")
    list_store.change(tx.effects, sequence, at % max(len(sequence.models), 1))[at] = value


@do.delete_item.rule(List)
def delete_item(tx: Tracer, sequence: List, key: Value) -> None:
    """Delete an item or a slice."""
    at = operators.index(tx, key) if isinstance(key, Slice) else sequences.index_of(tx, sequence, key, "assignment ")
    del list_store.change(tx.effects, sequence)[at]


@do.binary.rule(List)
def binary(tx: Tracer, sequence: List, op: str, other: Value, swapped: bool) -> Value | None:
    """Concatenate and repeat."""
    if op == "+" and not swapped and isinstance(other, List) and other.type() is list:
        return List([*sequence.items, *other.items])
    items = sequences.repeated(sequence, other) if op == "*" else None
    return None if items is None else List(items)


@do.in_place.rule(List)
def in_place(tx: Tracer, sequence: List, op: str, other: Value) -> Value | None:
    """Model `+=` and `*=`, which change the list itself."""
    if op == "+":
        take(tx, sequence, other)
        return sequence
    items = sequences.repeated(sequence, other) if op == "*" else None
    if items is None:
        return None
    list_store.change(tx.effects, sequence)[:] = items
    return sequence


@codegen.reconstruct.rule(List)
def reconstruct(out: Builder, sequence: List) -> None:
    """Build the list; when an item may refer back to it, build it empty and fill it then."""
    if all(out.is_leaf(item) for item in sequence.items):
        out.build_list(sequence.items)
        return
    out.emit("BUILD_LIST", 0)
    out.remember(sequence)
    out.build_list(sequence.items)
    out.emit("LIST_EXTEND", 1)


@codegen.emit_effects.rule(List)
def emit_effects(out: Builder, sequence: List) -> None:
    """Append what is new, or replace the content."""
    for (
        place,
        value,
    ) in sequence.stores.values():  # before what is new: places from the end are those of the existing list
        out.load(value)
        out.load(sequence)
        out.load(place)
        out.emit("STORE_SUBSCR")
    new = sequence.new_items() if sequence.stores else sequence.appended()
    if (
        sequence.real is not None and type(sequence.real) is not list
    ):  # past what a subclass overrides: that was evaluated
        if new is not None:
            out.call_unbound(list.extend, sequence, [partial(out.build_list, new)])
        else:
            out.call_unbound(
                list.__setitem__, sequence, [partial(_push_all, out), partial(out.build_list, sequence.items)]
            )
        return
    if new is not None:
        out.call_method_of(sequence, "extend", [lambda: out.build_list(new)])
        return
    out.build_list(sequence.items)
    out.load(sequence)
    _push_all(out)
    out.emit("STORE_SUBSCR")


def _push_all(out: Builder) -> None:
    """Push the slice of all items."""
    out.constant(None)
    out.constant(None)
    out.emit("BUILD_SLICE", 2)


def _bounds_come_first() -> bool:
    """Tell whether CPython settles the bounds of a slice before it takes what is assigned, which may change it."""
    probe: list[Any] = [0]
    probe[1:] = map(probe.append, (1,))  # type: ignore[func-returns-value]
    return len(probe) == 3


def _append(tx: Tracer, sequence: List, args: list[Value], keywords: Keywords) -> Value:
    (item,) = arity("append", args, keywords, 1)
    list_store.append(tx.effects, sequence, [item])
    return NONE


def _extend(tx: Tracer, sequence: List, args: list[Value], keywords: Keywords) -> Value:
    (items,) = arity("extend", args, keywords, 1)
    take(tx, sequence, items)
    return NONE


def _init(tx: Tracer, sequence: List, args: list[Value], keywords: Keywords) -> Value:
    items = arity("list", args, keywords, 0, 1)
    if items and items[0] is sequence:
        raise Break("tracer.call", "a list is initialised with itself")
    list_store.change(tx.effects, sequence).clear()
    if items:
        take(tx, sequence, items[0])
    return NONE


def _insert(tx: Tracer, sequence: List, args: list[Value], keywords: Keywords) -> Value:
    at, item = arity("insert", args, keywords, 2)
    where = operators.whole_number(tx, at)
    list_store.change(tx.effects, sequence).insert(where, item)
    return NONE


def _pop(tx: Tracer, sequence: List, args: list[Value], keywords: Keywords) -> Value:
    arity("pop", args, keywords, 0, 1)
    last = None if args else open_lists.pop(tx, sequence)
    if last is not None:
        return last
    at = operators.whole_number(tx, args[0]) if args else -1
    if not sequence.count():
        tx.raising.error(IndexError, "pop from empty list")
    if not -sequence.count() <= at < sequence.count():
        tx.raising.error(IndexError, "pop index out of range")
    return list_store.change(tx.effects, sequence, at % sequence.count()).pop(at)


def _remove(tx: Tracer, sequence: List, args: list[Value], keywords: Keywords) -> Value:
    (item,) = arity("remove", args, keywords, 1)
    index = 0
    while index < sequence.count():  # a comparison may shorten it
        if operators.same_or_equal(tx, sequence.at(index), item):
            del list_store.change(tx.effects, sequence, index)[index : index + 1]
            return NONE
        index += 1
    tx.raising.error(ValueError, "list.remove(x): x not in list")


def _clear(tx: Tracer, sequence: List, args: list[Value], keywords: Keywords) -> Value:
    arity("clear", args, keywords, 0)
    if sequence.count():
        list_store.change(tx.effects, sequence).clear()
    return NONE


def _reverse(tx: Tracer, sequence: List, args: list[Value], keywords: Keywords) -> Value:
    arity("reverse", args, keywords, 0)
    list_store.change(tx.effects, sequence).reverse()
    return NONE


def _copy(tx: Tracer, sequence: List, args: list[Value], keywords: Keywords) -> Value:
    arity("copy", args, keywords, 0)
    return List(sequence.items)


def _index(tx: Tracer, sequence: List, args: list[Value], keywords: Keywords) -> Value:
    return sequences.position_of(tx, sequence, arity("index", args, keywords, 1, 3))


def _count(tx: Tracer, sequence: List, args: list[Value], keywords: Keywords) -> Value:
    return sequences.tally(tx, sequence, arity("count", args, keywords, 1))


def _sort(tx: Tracer, sequence: List, args: list[Value], keywords: Keywords) -> Value:
    """Sort as CPython does: the list is empty meanwhile, and what was reached is kept when a comparison raises."""
    arity("sort", args, {k: v for k, v in keywords.items() if k not in ("key", "reverse")}, 0)
    key, reverse = keywords.get("key", NONE), keywords.get("reverse", Const(False))
    items = list(sequence.items)
    order = list(range(len(items)))
    downwards = reverse.as_python()
    folding.real(tx, [].sort, reverse=downwards)
    list_store.change(tx.effects, sequence).clear()
    version = sequence.version
    try:
        keys = items if is_none(key) else [do.call(tx, key, [item], {}) for item in items]
        try:
            sort_keys = [k.as_python() for k in keys]
        except NotConstantError:
            sort_keys = [_Sorted(tx, k) for k in keys]
        folding.real(tx, order.sort, key=sort_keys.__getitem__, reverse=downwards)
    finally:
        touched = sequence.version != version
        list_store.change(tx.effects, sequence)[:] = [items[index] for index in order]
    if touched:
        tx.raising.error(ValueError, "list modified during sort")
    return NONE


class _Sorted:
    """Compares by the models; CPython's own sort asks for the comparisons that it makes in eager."""

    __slots__ = ("tx", "value")

    def __init__(self, tx: Tracer, value: Value) -> None:
        self.tx = tx
        self.value = value

    def __lt__(self, other: _Sorted) -> bool:
        return do.truth(self.tx, operators.compare(self.tx, "<", self.value, other.value))


_BOUNDS_FIRST = _bounds_come_first()
METHODS: dict[str, methods.Rule] = {
    "__init__": _init,
    "append": _append,
    "clear": _clear,
    "copy": _copy,
    "count": _count,
    "extend": _extend,
    "index": _index,
    "insert": _insert,
    "pop": _pop,
    "remove": _remove,
    "reverse": _reverse,
    "sort": _sort,
}
methods.declare(list, METHODS, methods.SIZE)
