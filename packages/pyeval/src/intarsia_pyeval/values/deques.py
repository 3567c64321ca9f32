"""`collections.deque`."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from intarsia_ir.records import Source
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, Value, defines
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const
from intarsia_pyeval.values.sequences import METHODS, List, Slice
from intarsia_pyeval.values.signatures import arity, named

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["Deque"]

T = TypeVar("T")


class Deque(List):
    """A deque: a list that is changed at both ends and forgets what is beyond its greatest length.

    Its `version` tells iterators of changes, but for items that are replaced.
    """

    __slots__ = ("maxlen",)

    def __init__(
        self,
        items: Iterable[Value] = (),
        maxlen: int | None = None,
        source: Source | None = None,
        real: Sequence[Any] | None = None,
        tx: Tracer | None = None,
    ) -> None:
        super().__init__(items, source, real, tx)
        self.maxlen = maxlen

    def type(self) -> Any:
        """Return deque."""
        return collections.deque

    def noun(self) -> str:
        """Return the word that CPython's messages use."""
        return "deque"

    def comparable(self, other: Value) -> bool:
        """Deques compare with deques."""
        return issubclass(other.type(), collections.deque)

    def as_python(self) -> Any:
        """Return a copy, if every item is known."""
        return collections.deque(super().as_python(), self.maxlen)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        """Index; there are no slices."""
        if isinstance(key, Slice):
            raise Break("tracer.exception", "a deque is sliced")
        return self.at(self.index_of(tx, key))

    def index_of(self, tx: Tracer, key: Value, doing: str = "") -> int:
        """Return the position that `key` means; the TypeError about one that is no integer is left to CPython."""
        if not isinstance(tx.index(key), int):
            raise Break("tracer.exception", f"{key.describe()} is the index of a deque")
        return super().index_of(tx, key, doing)

    def contains(self, tx: Tracer, item: Value) -> bool:
        """Compare with each item."""
        return self._unchanged(lambda: super(Deque, self).contains(tx, item))

    def find(self, tx: Tracer, args: Sequence[Value]) -> Value:
        """Model `index`."""
        return self._unchanged(lambda: super(Deque, self).find(tx, args))

    def tally(self, tx: Tracer, args: Sequence[Value]) -> Value:
        """Model `count`."""
        return self._unchanged(lambda: super(Deque, self).tally(tx, args))

    def _unchanged(self, search: Callable[[], T]) -> T:
        """Break where a comparison changes the deque, which CPython notices."""
        version = self.version
        found = search()
        if self.version != version:
            raise Break("tracer.exception", "a deque is changed by a comparison of its items")
        return found

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Return the greatest length, or a method."""
        if name == "maxlen":
            return tx.live.from_python(self.maxlen)
        if not defines(collections.deque, name):
            tx.raising.error(AttributeError, f"'collections.deque' object has no attribute {name!r}")
        return tx.live.from_python(collections.deque) if name == "__class__" else BoundBuiltin(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call a method of deque."""
        method = _METHODS.get(name)
        if method is not None:
            return method(self, tx, list(args), keywords)
        if name in ("clear", "count", "index", "reverse", "append"):
            version = self.version
            found = self._cut(METHODS[name](self, tx, list(args), keywords))
            self.version = version if name == "reverse" else self.version
            return found
        return tx.operator_method(self, name, args, keywords)

    def take(self, tx: Tracer, items: Value) -> None:
        """Append what an iterable gives, one by one."""
        for item in self._given(tx, items):
            self.change(tx, self.kept).append(item)
            self._cut(NONE)

    def take_left(self, tx: Tracer, items: Value) -> None:
        """Put what an iterable gives in front, one by one."""
        for item in self._given(tx, items):
            self.change(tx).insert(0, item)
            self._cut(NONE, left=True)

    def _given(self, tx: Tracer, items: Value) -> Iterable[Value]:
        """Iterate over an argument; the deque itself is copied first."""
        return list(self.items) if items is self else tx.elements(items)

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        """Store an item: iterators don't mind."""
        if isinstance(key, Slice):
            raise Break("tracer.exception", "a deque is sliced")
        version = self.version
        super().set_item(tx, key, value)
        self.version = version

    def _cut(self, result: Value, left: bool = False) -> Value:
        """Forget what is too much at the other end."""
        while self.maxlen is not None and len(self._items) > self.maxlen:
            self._items.pop(-1 if left else 0)
            self.kept = 0
        return result

    def binary(self, tx: Tracer, op: str, other: Value, swapped: bool) -> Value | None:
        """Concatenate two deques; repeat one."""
        if op == "+" and not swapped and isinstance(other, Deque):
            made = Deque([*self.items, *other.items], self.maxlen)
        else:
            items = self.repeated(tx, other) if op == "*" else None
            if items is None:
                return None
            made = Deque(items, self.maxlen)
        made._cut(NONE)
        return made

    def in_place(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Model `+=` and `*=`."""
        found = super().in_place(tx, op, other)
        return None if found is None else self._cut(found)

    def delete_item(self, tx: Tracer, key: Value) -> None:
        """Delete an item."""
        if isinstance(key, Slice):
            raise Break("tracer.exception", "a deque is sliced")
        super().delete_item(tx, key)

    def reconstruct(self, out: Builder) -> None:
        """Make the deque empty, and fill it then: an item may refer back to it."""
        options = {} if self.maxlen is None else {"maxlen": Const(self.maxlen)}
        out.call_with_keywords(collections.deque, [], options)
        out.remember(self)
        out.call_method_of(self, "extend", [lambda: out.build_list(self.items)])

    def emit_effects(self, out: Builder) -> None:
        """Replace the content."""
        out.call_method_of(self, "clear", [])
        out.call_method_of(self, "extend", [lambda: out.build_list(self.items)])


def _append_left(self: Deque, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    (item,) = arity("appendleft", args, keywords, 1)
    self.change(tx).insert(0, item)
    return self._cut(NONE, left=True)


def _extend_left(self: Deque, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    (items,) = arity("extendleft", args, keywords, 1)
    self.take_left(tx, items)
    return NONE


def _extend(self: Deque, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    (items,) = arity("extend", args, keywords, 1)
    self.take(tx, items)
    return NONE


def _init(self: Deque, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    items, limit = _arguments(tx, args, keywords)
    if (self.real is not None and limit != self.maxlen) or items is self:
        raise Break("tracer.mutation", "a deque is initialised again with another greatest length, or with itself")
    self.maxlen = limit
    if self.count():
        self.change(tx).clear()
    if items is not None:
        self.take(tx, items)
    return NONE


def _arguments(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> tuple[Value | None, int | None]:
    """Return the iterable and the greatest length that a deque is made with."""
    given = named("deque", args, keywords, ("iterable", "maxlen"))
    limit = given["maxlen"].as_python() if "maxlen" in given else None
    tx.real(collections.deque, (), limit)  # checks it
    return given.get("iterable"), limit


def _pop(left: bool) -> Callable[[Deque, Tracer, list[Value], Keywords], Value]:
    def method(self: Deque, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
        arity("pop", args, keywords, 0)
        if not self.count():
            tx.raising.error(IndexError, "pop from an empty deque")
        return self.change(tx).pop(0 if left else -1)

    return method


def _rotate(self: Deque, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    arity("rotate", args, keywords, 0, 1)
    turned = collections.deque(self.items)
    tx.real(turned.rotate, tx.whole_number(args[0]) if args else 1)
    if self.count() > 1:
        self.change(tx)[:] = turned
    return NONE


def _copy(self: Deque, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    arity("copy", args, keywords, 0)
    return Deque(self.items, self.maxlen)


_METHODS: dict[str, Callable[[Deque, Tracer, list[Value], Keywords], Value]] = {
    "__init__": _init,
    "appendleft": _append_left,
    "copy": _copy,
    "extend": _extend,
    "extendleft": _extend_left,
    "pop": _pop(left=False),
    "popleft": _pop(left=True),
    "rotate": _rotate,
}
