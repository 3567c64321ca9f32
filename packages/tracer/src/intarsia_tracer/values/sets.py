"""Sets and frozen sets."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_ir.records import Source
from intarsia_tracer.breaks import Break
from intarsia_tracer.values.base import Keywords, Value
from intarsia_tracer.values.constants import NONE, boolean

if TYPE_CHECKING:
    from intarsia_tracer.codegen import Builder
    from intarsia_tracer.tracer import Tracer

__all__ = ["SetValue"]


class SetValue(Value):
    """A set or frozenset; `elements` maps keys to models, in an order that only stands in for the real one."""

    __slots__ = ("cls", "elements", "real")

    def __init__(
        self,
        elements: Mapping[Hashable, Value] | None = None,
        cls: Any = set,
        source: Source | None = None,
        real: Any = None,
    ) -> None:
        self.source = source
        self.cls = cls
        self.real = real
        self.elements: dict[Hashable, Value] = dict(elements or {})

    @staticmethod
    def of(tx: Tracer, items: Iterable[Value], cls: Any = set) -> SetValue:
        """Return the set of `items`."""
        elements: dict[Hashable, Value] = {}
        for item in items:
            elements.setdefault(item.hash_key(tx), item)
        return SetValue(elements, cls)

    def type(self) -> Any:
        """Return set or frozenset."""
        return self.cls

    def identity(self) -> object | None:
        """Return the existing set."""
        found: object | None = self.real
        return found

    def as_python(self) -> Any:
        """Return a copy, if every element is known."""
        return self.cls(item.as_python() for item in self.elements.values())

    def hash_key(self, tx: Tracer) -> Hashable:
        """Return the frozen set of keys."""
        if self.cls is not frozenset:
            tx.raise_error(TypeError, "unhashable type: 'set'")
        return frozenset(self.elements)

    def truth(self, tx: Tracer) -> bool:
        """Tell whether there are elements."""
        return bool(self.elements)

    def length(self, tx: Tracer) -> int:
        """Return the number of elements."""
        return len(self.elements)

    def contains(self, tx: Tracer, item: Value) -> bool:
        """Look the element up."""
        return item.hash_key(tx) in self.elements

    def iterate(self, tx: Tracer) -> Value:
        """Iterate in the order of a real set with these elements."""
        self.in_order()
        return tx.iterator_over(self)

    def in_order(self) -> list[Value]:
        """Return the elements in the order in which CPython would iterate.

        The order of a set depends on the history of its hash table, so only up to one element is certain, or
        small non-negative integers, which lie at their own places in any table that holds them.
        """
        items = list(self.elements.values())
        if len(items) <= 1:
            return items
        keys = list(self.elements)
        if all(type(key) in (int, bool) and 0 <= key < 8 for key in keys):  # type: ignore[operator]
            return [self.elements[key] for key in sorted(keys)]  # type: ignore[type-var]
        raise Break("tracer.iterator", "the order of a set isn't known while tracing")

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Return a method."""
        if not hasattr(self.cls, name):
            tx.raise_error(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        return tx.from_python(self.cls) if name == "__class__" else tx.bound_builtin(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call a method."""
        if name in _SET_READERS and not keywords:
            others = [SetValue.of(tx, tx.unpack(arg)) for arg in args]
            return _SET_READERS[name](self, tx, others)
        if name in _SET_WRITERS and self.cls is set and not keywords:
            return _SET_WRITERS[name](self, tx, list(args))
        return tx.operator_method(self, name, args, keywords)

    def binary(self, tx: Tracer, op: str, other: Value, swapped: bool) -> Value | None:
        """Model the set operators."""
        if not isinstance(other, SetValue) or op not in _SET_OPERATORS:
            return None
        left, right = (other, self) if swapped else (self, other)
        made = _SET_READERS[_SET_OPERATORS[op]](left, tx, [right])
        return made

    def in_place(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Model the operators that change a set."""
        if self.cls is not set or not isinstance(other, SetValue) or op not in _SET_OPERATORS:
            return None
        made = _SET_READERS[_SET_OPERATORS[op]](self, tx, [other])
        assert isinstance(made, SetValue)
        tx.changed(self)
        self.elements = made.elements
        return self

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Compare as sets."""
        if not isinstance(other, SetValue):
            return None
        mine, yours = self.elements.keys(), other.elements.keys()
        result: bool = {
            "==": lambda: mine == yours,
            "!=": lambda: mine != yours,
            "<": lambda: mine < yours,
            "<=": lambda: mine <= yours,
            ">": lambda: mine > yours,
            ">=": lambda: mine >= yours,
        }[op]()
        return boolean(result)

    def reconstruct(self, out: Builder) -> None:
        """Build the set."""
        for item in self.elements.values():
            out.load(item)
        out.emit("BUILD_SET", len(self.elements))
        if self.cls is frozenset:
            out.wrap_call(frozenset)

    def emit_effects(self, out: Builder) -> None:
        """Replace the content."""
        out.call_method_of(self, "clear", [])
        out.call_method_of(self, "update", [lambda: out.build_list(list(self.elements.values()))])


def _union(self: SetValue, tx: Tracer, others: list[SetValue]) -> Value:
    merged = dict(self.elements)
    for other in others:
        for key, item in other.elements.items():
            merged.setdefault(key, item)
    return SetValue(merged, self.cls)


def _intersection(self: SetValue, tx: Tracer, others: list[SetValue]) -> Value:
    return SetValue({k: v for k, v in self.elements.items() if all(k in o.elements for o in others)}, self.cls)


def _difference(self: SetValue, tx: Tracer, others: list[SetValue]) -> Value:
    return SetValue({k: v for k, v in self.elements.items() if not any(k in o.elements for o in others)}, self.cls)


def _symmetric(self: SetValue, tx: Tracer, others: list[SetValue]) -> Value:
    (other,) = others
    mine = {k: v for k, v in self.elements.items() if k not in other.elements}
    return SetValue(mine | {k: v for k, v in other.elements.items() if k not in self.elements}, self.cls)


def _subset(self: SetValue, tx: Tracer, others: list[SetValue]) -> Value:
    return boolean(self.elements.keys() <= others[0].elements.keys())


def _superset(self: SetValue, tx: Tracer, others: list[SetValue]) -> Value:
    return boolean(self.elements.keys() >= others[0].elements.keys())


def _disjoint(self: SetValue, tx: Tracer, others: list[SetValue]) -> Value:
    return boolean(self.elements.keys().isdisjoint(others[0].elements.keys()))


def _set_copy(self: SetValue, tx: Tracer, others: list[SetValue]) -> Value:
    return self if self.cls is frozenset else SetValue(self.elements, self.cls)


def _add(self: SetValue, tx: Tracer, args: list[Value]) -> Value:
    tx.changed(self)
    self.elements.setdefault(args[0].hash_key(tx), args[0])
    return NONE


def _discard(self: SetValue, tx: Tracer, args: list[Value]) -> Value:
    tx.changed(self)
    self.elements.pop(args[0].hash_key(tx), None)
    return NONE


def _set_remove(self: SetValue, tx: Tracer, args: list[Value]) -> Value:
    if args[0].hash_key(tx) not in self.elements:
        tx.raise_model(KeyError, [args[0]])
    return _discard(self, tx, args)


def _set_update(self: SetValue, tx: Tracer, args: list[Value]) -> Value:
    for arg in args:
        for item in tx.unpack(arg):
            _add(self, tx, [item])
    return NONE


def _set_clear(self: SetValue, tx: Tracer, args: list[Value]) -> Value:
    tx.changed(self)
    self.elements.clear()
    return NONE


def _set_pop(self: SetValue, tx: Tracer, args: list[Value]) -> Value:
    if not self.elements:
        tx.raise_error(KeyError, "pop from an empty set")
    first = self.in_order()[0]
    return (_discard(self, tx, [first]), first)[1]


_SET_OPERATORS = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}
_SET_READERS: dict[str, Callable[[SetValue, Tracer, list[SetValue]], Value]] = {
    "copy": _set_copy,
    "difference": _difference,
    "intersection": _intersection,
    "isdisjoint": _disjoint,
    "issubset": _subset,
    "issuperset": _superset,
    "symmetric_difference": _symmetric,
    "union": _union,
}
_SET_WRITERS: dict[str, Callable[[SetValue, Tracer, list[Value]], Value]] = {
    "add": _add,
    "clear": _set_clear,
    "discard": _discard,
    "pop": _set_pop,
    "remove": _set_remove,
    "update": _set_update,
}
