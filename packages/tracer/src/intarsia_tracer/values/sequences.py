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
from intarsia_tracer.breaks import Break
from intarsia_tracer.values.base import Keywords, NotConstantError, Value
from intarsia_tracer.values.constants import NONE, Const, boolean

if TYPE_CHECKING:
    from intarsia_tracer.codegen import Builder
    from intarsia_tracer.tracer import Tracer

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
            item = self._items[index] = self._tx.wrap(self.real[index], source)
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
            tx.raise_error(
                TypeError, f"{self.type().__name__} indices must be integers or slices, not {type(at).__name__}"
            )
        if not -len(self._items) <= at < len(self._items):
            tx.raise_error(IndexError, f"{self.noun()} {doing}index out of range")
        return at

    def noun(self) -> str:
        """Return the word that CPython's messages use."""
        return "list"

    def find(self, tx: Tracer, args: Sequence[Value]) -> Value:
        """Model `index`."""
        start, stop, _ = slice(*[a.as_python() for a in args[1:]] or [None]).indices(len(self._items))
        if len(args) == 2:
            start, stop, _ = slice(args[1].as_python(), None).indices(len(self._items))
        for index in range(start, stop):
            if tx.same_or_equal(self.at(index), args[0]):
                return Const(index)
        if self.type() is tuple:
            tx.raise_error(ValueError, "tuple.index(x): x not in tuple")
        try:
            shown = repr(args[0].as_python())
        except NotConstantError as unknown:
            raise Break("tracer.exception", f"list.index doesn't find {unknown}") from None
        tx.raise_error(ValueError, f"{shown} is not in list")

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
        return isinstance(other, Tuple)

    def as_python(self) -> Any:
        """Return the tuple, if every item is known."""
        items = [item.as_python() for item in self.items]
        if self.cls is tuple:
            return tuple(items)
        return self.cls._make(items) if hasattr(self.cls, "_make") else self.cls(items)

    def hash_key(self, tx: Tracer) -> Hashable:
        """Return the tuple of the items' keys."""
        return tuple(item.hash_key(tx) for item in self.items)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        """Index or slice."""
        if isinstance(key, Slice):
            return Tuple(self.items[key.as_python()], tx.slice_class(self.cls))
        return self.at(self.index_of(tx, key))

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read a field of a named tuple or struct sequence, or a method."""
        fields = getattr(self.cls, "_fields", None)
        if fields is None and hasattr(self.cls, "n_sequence_fields"):
            fields = tuple(n for n, v in vars(self.cls).items() if type(v).__name__ == "member_descriptor")
        if fields is not None and name in fields:
            return self.at(fields.index(name))
        if self.cls is tuple or name in ("index", "count"):
            if not hasattr(tuple, name):
                tx.raise_error(AttributeError, f"'tuple' object has no attribute {name!r}")
            return tx.from_python(self.cls) if name == "__class__" else tx.bound_builtin(self, name)
        return tx.class_attribute_for(self, self.cls, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call a method of tuple."""
        if name in ("index", "count") and args and not keywords:
            return self.find(tx, args) if name == "index" else self.tally(tx, args)
        own = self.cls.__dict__.get(name)
        if self.cls is not tuple and type(own) is types.MethodDescriptorType:
            return tx.call_pure(own, [self, *args], keywords)
        return tx.operator_method(self, name, args, keywords)

    def binary(self, tx: Tracer, op: str, other: Value, swapped: bool) -> Value | None:
        """Concatenate and repeat."""
        if op == "+" and isinstance(other, Tuple):
            left, right = (other, self) if swapped else (self, other)
            return Tuple([*left.items, *right.items], tx.joined_class(left.cls, right.cls))
        items = self.repeated(tx, other) if op == "*" else None
        return None if items is None else Tuple(items, tx.slice_class(self.cls))

    def reconstruct(self, out: Builder) -> None:
        """Push an existing tuple; else build it, or call its class."""
        if self.real is not None:
            out.constant(self.real)
        else:
            out.sequence_of_class(self.cls, self.items)


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
        return self.parts[names.index(name)] if name in names else tx.bound_builtin(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call `indices`."""
        if name == "indices" and len(args) == 1 and not keywords:
            return tx.from_python(tx.real(self.as_python().indices, args[0].as_python()))
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

    __slots__ = ("kept",)

    def __init__(
        self,
        items: Iterable[Value] = (),
        source: Source | None = None,
        real: Sequence[Any] | None = None,
        tx: Tracer | None = None,
    ) -> None:
        super().__init__(items, source, real, tx)
        self.kept = 0 if real is None else len(real)

    def type(self) -> Any:
        """Return list."""
        return list

    def identity(self) -> object | None:
        """Return the existing list."""
        return self.real

    def comparable(self, other: Value) -> bool:
        """Lists compare with lists."""
        return isinstance(other, List)

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
        if not hasattr(list, name):
            tx.raise_error(AttributeError, f"'list' object has no attribute {name!r}")
        return tx.from_python(list) if name == "__class__" else tx.bound_builtin(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call a method of list."""
        method = METHODS.get(name)
        if method is None:
            return tx.operator_method(self, name, args, keywords)
        return method(self, tx, list(args), keywords)

    def change(self, tx: Tracer, kept: int = 0) -> list[Value]:
        """Return the items for changing; `kept` leading ones will stay as they are."""
        items = self.items
        tx.changed(self)
        self.kept = min(self.kept, kept)
        return items

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        """Store an item or a slice."""
        if isinstance(key, Slice):
            new = tx.taken(value if isinstance(value, Items) else value.iterate(tx))
            at = tx.index(key)
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
        if op == "+" and isinstance(other, List):
            left, right = (other, self) if swapped else (self, other)
            return List([*left.items, *right.items])
        items = self.repeated(tx, other) if op == "*" else None
        return None if items is None else List(items)

    def in_place(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Model `+=` and `*=`, which change the list itself."""
        if op == "+":
            new = tx.taken(other)
            self.change(tx, self.kept).extend(new)
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


Method = Callable[[List, "Tracer", list[Value], Keywords], Value]


def _append(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    (item,) = tx.arity("append", args, keywords, 1)
    self.change(tx, self.kept).append(item)
    return NONE


def _extend(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    (items,) = tx.arity("extend", args, keywords, 1)
    new = list(tx.taken(items))
    self.change(tx, self.kept).extend(new)
    return NONE


def _init(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    items = tx.arity("list", args, keywords, 0, 1)
    new = list(tx.taken(items[0])) if items else []
    self.change(tx)[:] = new
    return NONE


def _insert(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    at, item = tx.arity("insert", args, keywords, 2)
    self.change(tx).insert(tx.index(at), item)
    return NONE


def _pop(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    tx.arity("pop", args, keywords, 0, 1)
    if not self.count():
        tx.raise_error(IndexError, "pop from empty list")
    at = tx.index(args[0]) if args else -1
    if not -self.count() <= at < self.count():
        tx.raise_error(IndexError, "pop index out of range")
    return self.change(tx, at % self.count()).pop(at)


def _remove(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    (item,) = tx.arity("remove", args, keywords, 1)
    for index in range(self.count()):
        if tx.same_or_equal(self.at(index), item):
            del self.change(tx, index)[index]
            return NONE
    tx.raise_error(ValueError, "list.remove(x): x not in list")


def _clear(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    tx.arity("clear", args, keywords, 0)
    self.change(tx).clear()
    return NONE


def _reverse(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    tx.arity("reverse", args, keywords, 0)
    self.change(tx).reverse()
    return NONE


def _copy(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    tx.arity("copy", args, keywords, 0)
    return List(self.items)


def _index(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    return self.find(tx, tx.arity("index", args, keywords, 1, 3))


def _count(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    return self.tally(tx, tx.arity("count", args, keywords, 1))


def _sort(self: List, tx: Tracer, args: list[Value], keywords: Keywords) -> Value:
    tx.arity("sort", args, {}, 0)
    key, reverse = keywords.get("key", NONE), keywords.get("reverse", NONE)
    items = list(self.items)
    keys = items if isinstance(key, Const) and key.value is None else [tx.call(key, [item], {}) for item in items]
    try:
        known = [k.as_python() for k in keys]
    except NotConstantError:
        known = [_Sorted(tx, k) for k in keys]
    downwards = tx.truth(reverse)
    order = tx.real(sorted, range(len(items)), key=known.__getitem__, reverse=downwards)
    self.change(tx)[:] = [items[index] for index in order]
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
