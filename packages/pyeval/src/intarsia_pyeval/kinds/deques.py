"""`collections.deque`."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.kinds import lists, sequences
from intarsia_pyeval.semantics import folding, iteration, methods, operators
from intarsia_pyeval.stores import list_store
from intarsia_pyeval.values.base import Keywords, Value, defines
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const
from intarsia_pyeval.values.deques import Deque
from intarsia_pyeval.values.sequences import Slice
from intarsia_pyeval.values.signatures import arity, named

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["take_left"]


@do.get_item.rule(Deque)
def get_item(tx: Tracer, deque: Deque, key: Value) -> Value:
    """Index; there are no slices."""
    if isinstance(key, Slice):
        raise Break("tracer.exception", "a deque is sliced")
    return deque.at(sequences.index_of(tx, deque, key, ""))


@sequences.index_of.rule(Deque)
def index_of(tx: Tracer, deque: Deque, key: Value, doing: str) -> int:
    """Return the position that `key` means; the TypeError about one that is no integer is left to CPython."""
    if not isinstance(operators.index(tx, key), int):
        raise Break("tracer.exception", f"{key.describe()} is the index of a deque")
    return sequences.index_of.default(tx, deque, key, doing)


@do.contains.rule(Deque)
def contains(tx: Tracer, deque: Deque, item: Value) -> bool:
    """Compare with each item."""
    return deque.unchanged(lambda: sequences.contains(tx, deque, item))


@sequences.position_of.rule(Deque)
def position_of(tx: Tracer, deque: Deque, args: Sequence[Value]) -> Value:
    """Model `index`."""
    return deque.unchanged(lambda: sequences.position_of.default(tx, deque, args))


@sequences.tally.rule(Deque)
def tally(tx: Tracer, deque: Deque, args: Sequence[Value]) -> Value:
    """Model `count`."""
    return deque.unchanged(lambda: sequences.tally.default(tx, deque, args))


@do.get_attribute.rule(Deque)
def get_attribute(tx: Tracer, deque: Deque, name: str) -> Value:
    """Return the greatest length, or a method."""
    if name == "maxlen":
        return tx.live.from_python(deque.maxlen)
    if not defines(collections.deque, name):
        tx.raising.error(AttributeError, f"'collections.deque' object has no attribute {name!r}")
    return tx.live.from_python(collections.deque) if name == "__class__" else BoundBuiltin(deque, name)


@do.call_method.rule(Deque)
def call_method(tx: Tracer, deque: Deque, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of deque."""
    return methods.call(tx, collections.deque, deque, name, args, keywords)


@lists.take.rule(Deque)
def take(tx: Tracer, deque: Deque, items: Value) -> None:
    """Append what an iterable gives, one by one."""
    for item in _given(tx, deque, items):
        list_store.change(tx.effects, deque, deque.kept).append(item)
        deque.cut(NONE)


def take_left(tx: Tracer, deque: Deque, items: Value) -> None:
    """Put what an iterable gives in front, one by one."""
    for item in _given(tx, deque, items):
        list_store.change(tx.effects, deque).insert(0, item)
        deque.cut(NONE, left=True)


def _given(tx: Tracer, deque: Deque, items: Value) -> Iterable[Value]:
    """Iterate over an argument; the deque itself is copied first."""
    return list(deque.items) if items is deque else iteration.elements(tx, items)


@do.set_item.rule(Deque)
def set_item(tx: Tracer, deque: Deque, key: Value, value: Value) -> None:
    """Store an item: iterators don't mind."""
    if isinstance(key, Slice):
        raise Break("tracer.exception", "a deque is sliced")
    version = deque.version
    lists.set_item(tx, deque, key, value)
    deque.version = version


@do.binary.rule(Deque)
def binary(tx: Tracer, deque: Deque, op: str, other: Value, swapped: bool) -> Value | None:
    """Concatenate two deques; repeat one."""
    if op == "+" and not swapped and isinstance(other, Deque):
        result = Deque([*deque.items, *other.items], deque.maxlen)
    else:
        items = sequences.repeated(deque, other) if op == "*" else None
        if items is None:
            return None
        result = Deque(items, deque.maxlen)
    result.cut(NONE)
    return result


@do.in_place.rule(Deque)
def in_place(tx: Tracer, deque: Deque, op: str, other: Value) -> Value | None:
    """Model `+=` and `*=`."""
    result = lists.in_place(tx, deque, op, other)
    return None if result is None else deque.cut(result)


@do.delete_item.rule(Deque)
def delete_item(tx: Tracer, deque: Deque, key: Value) -> None:
    """Delete an item."""
    if isinstance(key, Slice):
        raise Break("tracer.exception", "a deque is sliced")
    lists.delete_item(tx, deque, key)


@codegen.reconstruct.rule(Deque)
def reconstruct(out: Builder, deque: Deque) -> None:
    """Make the deque empty, and fill it then: an item may refer back to it."""
    options = {} if deque.maxlen is None else {"maxlen": Const(deque.maxlen)}
    out.call_with_keywords(collections.deque, [], options)
    out.remember(deque)
    out.call_method_of(deque, "extend", [lambda: out.build_list(deque.items)])


@codegen.emit_effects.rule(Deque)
def emit_effects(out: Builder, deque: Deque) -> None:
    """Replace the content."""
    out.call_method_of(deque, "clear", [])
    out.call_method_of(deque, "extend", [lambda: out.build_list(deque.items)])


def _append_left(tx: Tracer, deque: Deque, args: list[Value], keywords: Keywords) -> Value:
    (item,) = arity("appendleft", args, keywords, 1)
    list_store.change(tx.effects, deque).insert(0, item)
    return deque.cut(NONE, left=True)


def _extend_left(tx: Tracer, deque: Deque, args: list[Value], keywords: Keywords) -> Value:
    (items,) = arity("extendleft", args, keywords, 1)
    take_left(tx, deque, items)
    return NONE


def _extend(tx: Tracer, deque: Deque, args: list[Value], keywords: Keywords) -> Value:
    (items,) = arity("extend", args, keywords, 1)
    lists.take(tx, deque, items)
    return NONE


def _init(tx: Tracer, deque: Deque, args: list[Value], keywords: Keywords) -> Value:
    items, limit = _arguments(tx, args, keywords)
    if (deque.real is not None and limit != deque.maxlen) or items is deque:
        raise Break("tracer.mutation", "a deque is initialised again with another greatest length, or with itself")
    deque.maxlen = limit
    if deque.count():
        list_store.change(tx.effects, deque).clear()
    if items is not None:
        lists.take(tx, deque, items)
    return NONE


def _arguments(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> tuple[Value | None, int | None]:
    """Return the iterable and the greatest length that a deque is made with."""
    given = named("deque", args, keywords, ("iterable", "maxlen"))
    limit = given["maxlen"].as_python() if "maxlen" in given else None
    folding.real(tx, collections.deque, (), limit)  # checks it
    return given.get("iterable"), limit


def _pop(left: bool) -> Callable[[Tracer, Deque, list[Value], Keywords], Value]:
    def method(tx: Tracer, deque: Deque, args: list[Value], keywords: Keywords) -> Value:
        arity("pop", args, keywords, 0)
        if not deque.count():
            tx.raising.error(IndexError, "pop from an empty deque")
        return list_store.change(tx.effects, deque).pop(0 if left else -1)

    return method


def _rotate(tx: Tracer, deque: Deque, args: list[Value], keywords: Keywords) -> Value:
    arity("rotate", args, keywords, 0, 1)
    turned = collections.deque(deque.items)
    folding.real(tx, turned.rotate, operators.whole_number(tx, args[0]) if args else 1)
    if deque.count() > 1:
        list_store.change(tx.effects, deque)[:] = turned
    return NONE


def _copy(tx: Tracer, deque: Deque, args: list[Value], keywords: Keywords) -> Value:
    arity("copy", args, keywords, 0)
    return Deque(deque.items, deque.maxlen)


def _as_in_lists(name: str) -> methods.Rule:
    """Return the method of a list, after which what is too much is forgotten."""
    of_lists = lists.METHODS[name]

    def method(tx: Tracer, deque: Deque, args: list[Value], keywords: Keywords) -> Value:
        return deque.cut(of_lists(tx, deque, args, keywords))

    return method


def _reverse(tx: Tracer, deque: Deque, args: list[Value], keywords: Keywords) -> Value:
    version = deque.version
    lists.METHODS["reverse"](tx, deque, args, keywords)
    deque.version = version  # iterators don't mind
    return NONE


def _insert(tx: Tracer, deque: Deque, args: list[Value], keywords: Keywords) -> Value:
    if deque.maxlen is not None and deque.count() >= deque.maxlen:
        arity("insert", args, keywords, 2)
        tx.raising.error(IndexError, "deque already at its maximum size")
    return lists.METHODS["insert"](tx, deque, args, keywords)


METHODS: dict[str, methods.Rule] = {
    "__copy__": _copy,
    "__init__": _init,
    "append": _as_in_lists("append"),
    "appendleft": _append_left,
    "clear": _as_in_lists("clear"),
    "copy": _copy,
    "count": _as_in_lists("count"),
    "extend": _extend,
    "extendleft": _extend_left,
    "index": _as_in_lists("index"),
    "insert": _insert,
    "pop": _pop(left=False),
    "popleft": _pop(left=True),
    "reverse": _reverse,
    "rotate": _rotate,
}
_REFUSED = methods.refused(
    ["remove"], "which of equal items goes, and what a comparison changes meanwhile, is CPython's"
)
methods.declare(collections.deque, METHODS, _REFUSED, methods.SIZE, methods.PICKLED)
