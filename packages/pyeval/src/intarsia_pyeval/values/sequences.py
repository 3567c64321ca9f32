"""Tuples, lists and slices.

Items of an existing sequence are modelled when they are first looked at. A list that existed before the call is
changed only after the graph ran: either by what was appended, or as a whole.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_ir.errors import InternalError
from intarsia_ir.records import Source
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value, defines
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const, boolean, is_none
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.extension import Extension
    from intarsia_pyeval.tracer import Tracer

__all__ = ["METHODS", "Items", "List", "Slice", "Tuple"]


class Items(Value):
    """What tuples and lists have in common.

    Args:
        items: Models of the items, or None for those of an existing sequence that nobody looked at yet.
        real: The existing sequence.
        tx: Needed together with `real`, to model items later.
    """

    __slots__ = ("_items", "_missing", "_tx", "real")

    def __init__(
        self,
        items: Iterable[Value] = (),
        source: Source | None = None,
        real: Sequence[Any] | None = None,
        tx: Tracer | None = None,
    ) -> None:
        self.source = source
        self.real = real
        self._tx = tx
        self._items: list[Value | None] = list(items) if real is None else [None] * len(real)
        self._missing = 0 if real is None else len(real)

    @property
    def items(self) -> list[Value]:
        """All items, modelled."""
        if self._missing:
            for index, item in enumerate(self._items):
                if item is None:
                    self.at(index)
        return self._items  # type: ignore[return-value]

    def at(self, index: int) -> Value:
        """Return the model of one item; `index` is in range."""
        item = self._items[index]
        if item is None:
            assert self.real is not None and self._tx is not None
            index = index if index >= 0 else index + len(self._items)
            source = None if self.source is None else self._tx.sources.item(self.source, index)
            item = self._items[index] = self._tx.live.wrap(self.real[index], source)
            self._missing -= 1
        return item

    def count(self) -> int:
        """Return the number of items."""
        return len(self._items)

    def truth(self, tx: Tracer) -> bool:
        """Tell whether there are items."""
        return bool(self._items)

    def length(self, tx: Tracer) -> int:
        """Return the number of items."""
        return len(self._items)

    def contains(self, tx: Tracer, item: Value) -> bool:
        """Compare with each item."""
        return any(tx.same_or_equal(other, item) for other in self.items)

    def iterate(self, tx: Tracer) -> Value:
        """Iterate by position, so that growing a list is seen."""
        return tx.iterator_over(self)

    def index_of(self, tx: Tracer, key: Value, doing: str = "") -> int:
        """Return the position that `key` means, checked against the length."""
        at = tx.index(key)
        if not isinstance(at, int):
            tx.raising.error(
                TypeError, f"{self.type().__name__} indices must be integers or slices, not {type(at).__name__}"
            )
        if not -len(self._items) <= at < len(self._items):
            tx.raising.error(IndexError, f"{self.noun()} {doing}index out of range")
        return at

    def noun(self) -> str:
        """Return the word that CPython's messages use."""
        return "list"

    def find(self, tx: Tracer, args: Sequence[Value]) -> Value:
        """Model `index`."""
        bounds = [tx.index(arg) for arg in args[1:]]
        if not all(isinstance(bound, int) for bound in bounds):
            raise Break("tracer.exception", f"{self.noun()}.index is given a bound that is no integer")
        at, stop, _ = slice(*[*bounds, None, None][:2]).indices(len(self._items))
        while at < min(stop, len(self._items)):  # a comparison may shorten it
            if tx.same_or_equal(self.at(at), args[0]):
                return Const(at)
            at += 1
        if self.type() is tuple:
            tx.raising.error(ValueError, "tuple.index(x): x not in tuple")
        try:
            shown = repr(args[0].as_python())
        except NotConstantError as unknown:
            raise Break("tracer.exception", f"{self.noun()}.index doesn't find {unknown}") from None
        tx.raising.error(ValueError, f"{shown} is not in {self.noun()}")

    def tally(self, tx: Tracer, args: Sequence[Value]) -> Value:
        """Model `count`."""
        return Const(sum(tx.same_or_equal(item, args[0]) for item in self.items))

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Compare item by item, as CPython does."""
        if not isinstance(other, Items) or not self.comparable(other):
            return None
        if op in ("==", "!=") and len(self._items) != len(other._items):
            return boolean(op == "!=")
        for mine, yours in zip(self.items, other.items, strict=False):
            if not tx.same_or_equal(mine, yours):
                return boolean(op == "!=") if op in ("==", "!=") else tx.compare(op, mine, yours)
        sizes = {"<": len(self._items) < len(other._items), ">": len(self._items) > len(other._items)}
        sizes |= {"==": len(self._items) == len(other._items), "<=": not sizes[">"], ">=": not sizes["<"]}
        return boolean(not sizes["=="] if op == "!=" else sizes[op])

    def comparable(self, other: Value) -> bool:
        """Tell whether CPython compares the two item by item."""
        raise InternalError(f"{type(self).__name__} must define this", code="tracer.abstract")

    def repeated(self, tx: Tracer, other: Value) -> list[Value] | None:
        """Return the items of `self * other`, or None when `other` isn't an integer."""
        if not isinstance(other, Const) or not isinstance(other.value, int):
            return None
        return self.items * other.value


class Tuple(Items):
    """A tuple; `cls` may be a named tuple class, a struct sequence or another subclass without own state."""

    __slots__ = ("cls",)
    shared = False

    def __init__(
        self,
        items: Iterable[Value] = (),
        cls: Any = tuple,
        source: Source | None = None,
        real: Sequence[Any] | None = None,
        tx: Tracer | None = None,
    ) -> None:
        super().__init__(items, source, real, tx)
        self.cls = cls

    def type(self) -> Any:
        """Return the class."""
        return self.cls

    def noun(self) -> str:
        """Return the word that CPython's messages use."""
        return "tuple"

    def comparable(self, other: Value) -> bool:
        """Tuples compare with tuples."""
        return issubclass(other.type(), tuple)

    def as_python(self) -> Any:
        """Return the tuple, if every item is known."""
        items = [item.as_python() for item in self.items]
        if self.cls is tuple:
            return tuple(items)
        return tuple.__new__(self.cls, items) if hasattr(self.cls, "_make") else self.cls(items)

    def hash_key(self, tx: Tracer) -> Hashable:
        """Return the tuple of the items' keys."""
        if tx.classes.asks_python(self, "__hash__") or tx.classes.asks_python(self, "__eq__"):
            raise Break("tracer.hashing", f"{self.describe()} is used as a key, and its class decides")
        return tuple(item.hash_key(tx) for item in self.items)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        """Index or slice."""
        if tx.classes.asks_python(self, "__getitem__"):
            return tx.special(self, "__getitem__", [key])
        if isinstance(key, Slice):
            at = tx.index(key)
            if self.cls is tuple and at.indices(self.count()) == (0, self.count(), 1):
                return self
            return Tuple(self.items[at], _part_class(tx.extension, self.cls))
        return self.at(self.index_of(tx, key))

    def truth(self, tx: Tracer) -> bool:
        """Tell whether there are items, unless the class says otherwise."""
        own = any(tx.classes.asks_python(self, name) for name in ("__bool__", "__len__"))
        return tx.object_truth(self) if own else super().truth(tx)

    def length(self, tx: Tracer) -> int:
        """Return the number of items, unless the class says otherwise."""
        own = tx.classes.asks_python(self, "__len__")
        return tx.size_from(tx.special(self, "__len__", [])) if own else super().length(tx)

    def contains(self, tx: Tracer, item: Value) -> bool:
        """Compare with each item, unless the class says otherwise."""
        return (
            tx.object_contains(self, item)
            if tx.classes.asks_python(self, "__contains__")
            else super().contains(tx, item)
        )

    def iterate(self, tx: Tracer) -> Value:
        """Iterate by position, unless the class says otherwise."""
        return tx.object_iterate(self) if tx.classes.asks_python(self, "__iter__") else super().iterate(tx)

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read a field of a named tuple or struct sequence, or a method."""
        fields = getattr(self.cls, "_fields", None)
        if fields is None and hasattr(self.cls, "n_sequence_fields"):
            fields = tuple(n for n, v in vars(self.cls).items() if type(v).__name__ == "member_descriptor")
        if fields is not None and name in fields:
            return self.at(fields.index(name))
        if self.cls is tuple or name in ("index", "count"):
            if not defines(tuple, name):
                tx.raising.error(AttributeError, f"'tuple' object has no attribute {name!r}")
            return tx.live.from_python(self.cls) if name == "__class__" else BoundBuiltin(self, name)
        return tx.class_attribute_for(self, self.cls, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call a method of tuple."""
        if name in ("index", "count"):
            args = arity(name, args, keywords, 1, 3 if name == "index" else 1)
            return self.find(tx, args) if name == "index" else self.tally(tx, args)
        if tx.classes.asks_python(self, name):  # called past what the class overrides
            return Tuple(self.items).call_method(tx, name, args, keywords)
        own = self.cls.__dict__.get(name)
        if self.cls is not tuple and type(own) is types.MethodDescriptorType:
            return tx.call_pure(own, [self, *args], keywords)
        return tx.operator_method(self, name, args, keywords)

    def binary(self, tx: Tracer, op: str, other: Value, swapped: bool) -> Value | None:
        """Concatenate and repeat."""
        if op == "+" and not swapped and isinstance(other, Tuple):
            if self.cls is other.cls is tuple and not (self.count() and other.count()):
                return self if self.count() else other  # nothing is made anew, which identity tells
            return Tuple([*self.items, *other.items], _joined_class(tx.extension, self.cls, other.cls))
        items = self.repeated(tx, other) if op == "*" else None
        if items is not None and self.cls is tuple and len(items) == self.count():
            return self
        return None if items is None else Tuple(items, _part_class(tx.extension, self.cls))

    def reconstruct(self, out: Builder) -> None:
        """Push an existing tuple; else build it, or call its class."""
        if self.real is not None:
            out.constant(self.real)
        else:
            out.sequence_of_class(self.cls, self.items)


def _part_class(extension: Extension, cls: Any) -> Any:
    """Return the class of a slice or multiple of a tuple subclass."""
    return tuple if cls is tuple else extension.sequence_class(cls, None)


def _joined_class(extension: Extension, left: Any, right: Any) -> Any:
    """Return the class of the sum of two tuples."""
    return tuple if left is right is tuple else extension.sequence_class(left, right)


class Slice(Value):
    """A slice; its parts may be anything."""

    __slots__ = ("parts",)
    shared = False

    def __init__(self, parts: Sequence[Value], source: Source | None = None) -> None:
        self.source = source
        start, stop, *step = parts
        self.parts = (start, stop, step[0] if step else NONE)

    def type(self) -> Any:
        """Return slice."""
        return slice

    def as_python(self) -> Any:
        """Return the slice, if its parts are known."""
        return slice(*[part.as_python() for part in self.parts])

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read a part, or a method."""
        names = ("start", "stop", "step")
        return self.parts[names.index(name)] if name in names else BoundBuiltin(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call `indices`."""
        if name == "indices" and len(args) == 1 and not keywords:
            return tx.live.from_python(tx.real(self.as_python().indices, args[0].as_python()))
        return super().call_method(tx, name, args, keywords)

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Compare slices by their parts."""
        if isinstance(other, Slice) and op in ("==", "!="):
            return tx.compare(op, Tuple(self.parts), Tuple(other.parts))
        return None

    def reconstruct(self, out: Builder) -> None:
        """Build the slice."""
        for part in self.parts:
            out.load(part)
        out.emit("BUILD_SLICE", 3)


class List(Items):
    """A list. `kept` counts the leading items of the existing list that are as they were before the call."""

    __slots__ = ("kept", "version")

    def __init__(
        self,
        items: Iterable[Value] = (),
        source: Source | None = None,
        real: Sequence[Any] | None = None,
        tx: Tracer | None = None,
    ) -> None:
        super().__init__(items, source, real, tx)
        self.kept = 0 if real is None else len(real)
        self.version = 0  # grows with every change

    def type(self) -> Any:
        """Return list."""
        return list

    def identity(self) -> object | None:
        """Return the existing list."""
        return self.real

    def comparable(self, other: Value) -> bool:
        """Lists compare with lists."""
        return issubclass(other.type(), list)

    def as_python(self) -> Any:
        """Return a copy, if every item is known."""
        return [item.as_python() for item in self.items]

    def get_item(self, tx: Tracer, key: Value) -> Value:
        """Index or slice."""
        if isinstance(key, Slice):
            return List(self.items[tx.index(key)])
        return self.at(self.index_of(tx, key))

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Return a method."""
        if not defines(list, name):
            tx.raising.error(AttributeError, f"'list' object has no attribute {name!r}")
        return tx.live.from_python(list) if name == "__class__" else BoundBuiltin(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call a method of list."""
        method = METHODS.get(name)
        if method is None:
            return tx.operator_method(self, name, args, keywords)
        return method(self, tx, list(args), keywords)

    def change(self, tx: Tracer, kept: int = 0) -> list[Value]:
        """Return the items for changing; `kept` leading ones will stay as they are."""
        items = self.items
        tx.effects.changed(self)
        self.version += 1
        self.kept = min(self.kept, kept)
        return items

    def take(self, tx: Tracer, items: Value) -> None:
        """Append what an iterable gives, one by one: it may look at the list meanwhile."""
        if isinstance(items, Items) and items.type() in (list, tuple):
            new = list(items.items)
            self.change(tx, self.kept).extend(new)
            return
        iterator = items.iterate(tx)
        tx.ask_length(items)
        for item in tx.elements_left(iterator):
            self.change(tx, self.kept).append(item)

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        """Store an item or a slice."""
        if isinstance(key, Slice):
            at = tx.index(key)
            start, stop, step = at.indices(len(self._items))
            itself = tx.built_in_part(value, NONE) is self
            new = list(self.items) if itself else tx.taken(value if tx.is_read_whole(value) else value.iterate(tx))
            at = slice(start, max(start, stop), step) if step > 0 and _BOUNDS_FIRST else at
            copy: list[Any] = list(self.items)
            tx.real(copy.__setitem__, at, new)
            self.change(tx)[:] = copy
            return
        at = self.index_of(tx, key, "assignment ")
        self.change(tx, at % max(len(self._items), 1))[at] = value

    def delete_item(self, tx: Tracer, key: Value) -> None:
        """Delete an item or a slice."""
        at = tx.index(key) if isinstance(key, Slice) else self.index_of(tx, key, "assignment ")
        del self.change(tx)[at]

    def binary(self, tx: Tracer, op: str, other: Value, swapped: bool) -> Value | None:
        """Concatenate and repeat."""
        if op == "+" and not swapped and isinstance(other, List) and other.type() is list:
            return List([*self.items, *other.items])
        items = self.repeated(tx, other) if op == "*" else None
        return None if items is None else List(items)

    def in_place(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Model `+=` and `*=`, which change the list itself."""
        if op == "+":
            self.take(tx, other)
            return self
        items = self.repeated(tx, other) if op == "*" else None
        if items is None:
            return None
        self.change(tx)[:] = items
        return self

    def reconstruct(self, out: Builder) -> None:
        """Build the list; when an item may refer back to it, build it empty and fill it then."""
        if all(out.is_leaf(item) for item in self.items):
            out.build_list(self.items)
            return
        out.emit("BUILD_LIST", 0)
        out.remember(self)
        out.build_list(self.items)
        out.emit("LIST_EXTEND", 1)

    def emit_effects(self, out: Builder) -> None:
        """Append what is new, or replace the content."""
        real_length = 0 if self.real is None else len(self.real)
        if self.kept == real_length <= len(self.items):
            out.call_method_of(self, "extend", [lambda: out.build_list(self.items[self.kept :])])
            return
        out.build_list(self.items)
        out.load(self)
        out.constant(None)
        out.constant(None)
        out.emit("BUILD_SLICE", 2)
        out.emit("STORE_SUBSCR")


def _bounds_come_first() -> bool:
    """Tell whether CPython settles the bounds of a slice before it takes what is assigned, which may change it."""
    probe: list[Any] = [0]
    probe[1:] = map(probe.append, (1,))  # type: ignore[func-returns-value]
    return len(probe) == 3


_BOUNDS_FIRST = _bounds_come_first()
Method = Callable[[List, "Tracer", list[Value], Keywords], Value]


def _append(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    (item,) = arity("append", args, keywords, 1)
    self.change(tx, self.kept).append(item)
    return NONE


def _extend(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    (items,) = arity("extend", args, keywords, 1)
    self.take(tx, items)
    return NONE


def _init(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    items = arity("list", args, keywords, 0, 1)
    if items and items[0] is self:
        raise Break("tracer.call", "a list is initialised with itself")
    self.change(tx).clear()
    if items:
        self.take(tx, items[0])
    return NONE


def _insert(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    at, item = arity("insert", args, keywords, 2)
    where = tx.whole_number(at)
    self.change(tx).insert(where, item)
    return NONE


def _pop(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    arity("pop", args, keywords, 0, 1)
    at = tx.whole_number(args[0]) if args else -1
    if not self.count():
        tx.raising.error(IndexError, "pop from empty list")
    if not -self.count() <= at < self.count():
        tx.raising.error(IndexError, "pop index out of range")
    return self.change(tx, at % self.count()).pop(at)


def _remove(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    (item,) = arity("remove", args, keywords, 1)
    index = 0
    while index < self.count():  # a comparison may shorten it
        if tx.same_or_equal(self.at(index), item):
            del self.change(tx, index)[index : index + 1]
            return NONE
        index += 1
    tx.raising.error(ValueError, "list.remove(x): x not in list")


def _clear(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    arity("clear", args, keywords, 0)
    if self.count():
        self.change(tx).clear()
    return NONE


def _reverse(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    arity("reverse", args, keywords, 0)
    self.change(tx).reverse()
    return NONE


def _copy(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    arity("copy", args, keywords, 0)
    return List(self.items)


def _index(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    return self.find(tx, arity("index", args, keywords, 1, 3))


def _count(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    return self.tally(tx, arity("count", args, keywords, 1))


def _sort(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    """Sort as CPython does: the list is empty meanwhile, and what was reached is kept when a comparison raises."""
    arity("sort", args, {k: v for k, v in keywords.items() if k not in ("key", "reverse")}, 0)
    key, reverse = keywords.get("key", NONE), keywords.get("reverse", Const(False))
    items = list(self.items)
    order = list(range(len(items)))
    downwards = reverse.as_python()
    tx.real([].sort, reverse=downwards)
    self.change(tx).clear()
    version = self.version
    try:
        keys = items if is_none(key) else [tx.call(key, [item], {}) for item in items]
        try:
            known = [k.as_python() for k in keys]
        except NotConstantError:
            known = [_Sorted(tx, k) for k in keys]
        tx.real(order.sort, key=known.__getitem__, reverse=downwards)
    finally:
        touched = self.version != version
        self.change(tx)[:] = [items[index] for index in order]
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
        return self.tx.truth(self.tx.compare("<", self.value, other.value))


METHODS: dict[str, Method] = {
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
