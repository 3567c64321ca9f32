"""Tuples, named tuples and struct sequences."""

from __future__ import annotations

import types
import typing
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.kinds import sequences
from intarsia_pyeval.semantics import asking, class_lookup, folding, iteration, methods, operators, special
from intarsia_pyeval.values.base import Keywords, Value, defines
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.sequences import Slice, Tuple
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Extension, Tracer

__all__: list[str] = []


@do.hash_key.rule(Tuple)
def hash_key(tx: Tracer, x: Tuple) -> Hashable:
    """Return the tuple of the items' keys."""
    if tx.classes.asks_python(x, "__hash__") or tx.classes.asks_python(x, "__eq__"):
        raise Break("tracer.hashing", f"{x.describe()} is used as a key, and its class decides")
    return tuple(do.hash_key(tx, item) for item in x.items)


@do.get_item.rule(Tuple)
def get_item(tx: Tracer, x: Tuple, key: Value) -> Value:
    """Index or slice."""
    if tx.classes.asks_python(x, "__getitem__"):
        return special.special(tx, x, "__getitem__", [key])
    if isinstance(key, Slice):
        at = operators.index(tx, key)
        if x.cls is tuple and at.indices(x.count()) == (0, x.count(), 1):
            return x
        return Tuple(x.items[at], _part_class(tx.extension, x.cls))
    return x.at(sequences.index_of(tx, x, key, ""))


@do.truth.rule(Tuple)
def truth(tx: Tracer, x: Tuple) -> bool:
    """Tell whether there are items, unless the class says otherwise."""
    own = any(tx.classes.asks_python(x, name) for name in ("__bool__", "__len__"))
    return asking.object_truth(tx, x) if own else sequences.truth(tx, x)


@do.length.rule(Tuple)
def length(tx: Tracer, x: Tuple) -> int:
    """Return the number of items, unless the class says otherwise."""
    own = tx.classes.asks_python(x, "__len__")
    return iteration.size_from(tx, special.special(tx, x, "__len__", [])) if own else sequences.length(tx, x)


@do.contains.rule(Tuple)
def contains(tx: Tracer, x: Tuple, item: Value) -> bool:
    """Compare with each item, unless the class says otherwise."""
    return (
        asking.object_contains(tx, x, item)
        if tx.classes.asks_python(x, "__contains__")
        else sequences.contains(tx, x, item)
    )


@do.iterate.rule(Tuple)
def iterate(tx: Tracer, x: Tuple) -> Value:
    """Iterate by position, unless the class says otherwise."""
    return asking.object_iterate(tx, x) if tx.classes.asks_python(x, "__iter__") else sequences.iterate(tx, x)


# how named tuples and struct sequences read a field; a class may have put something else there
_FIELDS = (type(vars(typing.NamedTuple("_Named", [("field", int)]))["field"]), types.MemberDescriptorType)


@do.get_attribute.rule(Tuple)
def get_attribute(tx: Tracer, x: Tuple, name: str) -> Value:
    """Read a field of a named tuple or struct sequence, or a method."""
    fields = getattr(x.cls, "_fields", None)
    if fields is None and hasattr(x.cls, "n_sequence_fields"):
        fields = tuple(n for n, v in vars(x.cls).items() if type(v).__name__ == "member_descriptor")
    defined = (tx.classes.find(x.cls, name) or (None,))[0]
    if fields is not None and name in fields and isinstance(defined, _FIELDS):
        return x.at(fields.index(name))
    if x.cls is tuple or (name in ("index", "count") and defined is getattr(tuple, name)):
        if not defines(tuple, name):
            tx.raising.error(AttributeError, f"'tuple' object has no attribute {name!r}")
        return tx.live.from_python(x.cls) if name == "__class__" else BoundBuiltin(x, name)
    return class_lookup.class_attribute_for(tx, x, x.cls, name)


@do.call_method.rule(Tuple)
def call_method(tx: Tracer, x: Tuple, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of tuple."""
    if name not in METHODS and tx.classes.asks_python(x, name):  # called past what the class overrides
        return do.call_method(tx, Tuple(x.items), name, args, keywords)
    own = x.cls.__dict__.get(name)
    if name not in METHODS and x.cls is not tuple and type(own) is types.MethodDescriptorType:
        return folding.call_pure(tx, own, [x, *args], keywords)
    return methods.call(tx, tuple, x, name, args, keywords)


@do.binary.rule(Tuple)
def binary(tx: Tracer, x: Tuple, op: str, other: Value, swapped: bool) -> Value | None:
    """Concatenate and repeat."""
    if op == "+" and not swapped and isinstance(other, Tuple):
        if x.cls is other.cls is tuple and not (x.count() and other.count()):
            return x if x.count() else other  # nothing is made anew, which identity tells
        return Tuple([*x.items, *other.items], _joined_class(tx.extension, x.cls, other.cls))
    items = sequences.repeated(x, other) if op == "*" else None
    if items is not None and x.cls is tuple and len(items) == x.count():
        return x
    return None if items is None else Tuple(items, _part_class(tx.extension, x.cls))


@codegen.reconstruct.rule(Tuple)
def reconstruct(out: Builder, x: Tuple) -> None:
    """Push an existing tuple; else build it, or call its class."""
    if x.real is not None:
        out.constant(x.real)
    else:
        out.sequence_of_class(x.cls, x.items)


def _part_class(extension: Extension, cls: Any) -> Any:
    """Return the class of a slice or multiple of a tuple subclass."""
    return tuple if cls is tuple else extension.sequence_class(cls, None)


def _joined_class(extension: Extension, left: Any, right: Any) -> Any:
    """Return the class of the sum of two tuples."""
    return tuple if left is right is tuple else extension.sequence_class(left, right)


def _index(tx: Tracer, x: Tuple, args: list[Value], keywords: Keywords) -> Value:
    return sequences.position_of(tx, x, arity("index", args, keywords, 1, 3))


def _count(tx: Tracer, x: Tuple, args: list[Value], keywords: Keywords) -> Value:
    return sequences.tally(tx, x, arity("count", args, keywords, 1))


METHODS: dict[str, methods.Rule] = {"count": _count, "index": _index}
methods.declare(tuple, METHODS, methods.refused(["__getnewargs__"], "it is for `pickle`"))
