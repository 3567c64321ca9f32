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
def hash_key(tx: Tracer, sequence: Tuple) -> Hashable:
    """Return the tuple of the items' keys."""
    if tx.classes.asks_python(sequence, "__hash__") or tx.classes.asks_python(sequence, "__eq__"):
        raise Break("tracer.hashing", f"{sequence.describe()} is used as a key, and its class decides")
    return tuple(do.hash_key(tx, item) for item in sequence.items)


@do.get_item.rule(Tuple)
def get_item(tx: Tracer, sequence: Tuple, key: Value) -> Value:
    """Index or slice."""
    if tx.classes.asks_python(sequence, "__getitem__"):
        return special.special(tx, sequence, "__getitem__", [key])
    if isinstance(key, Slice):
        at = operators.index(tx, key)
        if sequence.cls is tuple and at.indices(sequence.count()) == (0, sequence.count(), 1):
            return sequence
        return Tuple(sequence.items[at], _part_class(tx.extension, sequence.cls))
    return sequence.at(sequences.index_of(tx, sequence, key, ""))


@do.truth.rule(Tuple)
def truth(tx: Tracer, sequence: Tuple) -> bool:
    """Tell whether there are items, unless the class says otherwise."""
    overridden = any(tx.classes.asks_python(sequence, name) for name in ("__bool__", "__len__"))
    return asking.object_truth(tx, sequence) if overridden else sequences.truth(tx, sequence)


@do.length.rule(Tuple)
def length(tx: Tracer, sequence: Tuple) -> int:
    """Return the number of items, unless the class says otherwise."""
    overridden = tx.classes.asks_python(sequence, "__len__")
    return (
        iteration.size_from(tx, special.special(tx, sequence, "__len__", []))
        if overridden
        else sequences.length(tx, sequence)
    )


@do.contains.rule(Tuple)
def contains(tx: Tracer, sequence: Tuple, item: Value) -> bool:
    """Compare with each item, unless the class says otherwise."""
    return (
        asking.object_contains(tx, sequence, item)
        if tx.classes.asks_python(sequence, "__contains__")
        else sequences.contains(tx, sequence, item)
    )


@do.iterate.rule(Tuple)
def iterate(tx: Tracer, sequence: Tuple) -> Value:
    """Iterate by position, unless the class says otherwise."""
    return (
        asking.object_iterate(tx, sequence)
        if tx.classes.asks_python(sequence, "__iter__")
        else sequences.iterate(tx, sequence)
    )


# how named tuples and struct sequences read a field; a class may have put something else there
_FIELDS = (type(vars(typing.NamedTuple("_Named", [("field", int)]))["field"]), types.MemberDescriptorType)


@do.get_attribute.rule(Tuple)
def get_attribute(tx: Tracer, sequence: Tuple, name: str) -> Value:
    """Read a field of a named tuple or struct sequence, or a method."""
    fields = getattr(sequence.cls, "_fields", None)
    if fields is None and hasattr(sequence.cls, "n_sequence_fields"):
        fields = tuple(n for n, v in vars(sequence.cls).items() if type(v).__name__ == "member_descriptor")
    defined = (tx.classes.find(sequence.cls, name) or (None,))[0]
    if fields is not None and name in fields and isinstance(defined, _FIELDS):
        return sequence.at(fields.index(name))
    if sequence.cls is tuple or (name in ("index", "count") and defined is getattr(tuple, name)):
        if not defines(tuple, name):
            tx.raising.error(AttributeError, f"'tuple' object has no attribute {name!r}")
        return tx.live.from_python(sequence.cls) if name == "__class__" else BoundBuiltin(sequence, name)
    return class_lookup.class_attribute_for(tx, sequence, sequence.cls, name)


@do.call_method.rule(Tuple)
def call_method(tx: Tracer, sequence: Tuple, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of tuple."""
    if name not in METHODS and tx.classes.asks_python(sequence, name):  # called past what the class overrides
        return do.call_method(tx, Tuple(sequence.items), name, args, keywords)
    method = sequence.cls.__dict__.get(name)
    if name not in METHODS and sequence.cls is not tuple and type(method) is types.MethodDescriptorType:
        return folding.call_pure(tx, method, [sequence, *args], keywords)
    return methods.call(tx, tuple, sequence, name, args, keywords)


@do.binary.rule(Tuple)
def binary(tx: Tracer, sequence: Tuple, op: str, other: Value, swapped: bool) -> Value | None:
    """Concatenate and repeat."""
    if op == "+" and not swapped and isinstance(other, Tuple):
        if sequence.cls is other.cls is tuple and not (sequence.count() and other.count()):
            return sequence if sequence.count() else other  # nothing is made anew, which identity tells
        return Tuple([*sequence.items, *other.items], _joined_class(tx.extension, sequence.cls, other.cls))
    items = sequences.repeated(sequence, other) if op == "*" else None
    if items is not None and sequence.cls is tuple and len(items) == sequence.count():
        return sequence
    return None if items is None else Tuple(items, _part_class(tx.extension, sequence.cls))


@codegen.reconstruct.rule(Tuple)
def reconstruct(out: Builder, sequence: Tuple) -> None:
    """Push an existing tuple; else build it, or call its class."""
    if sequence.real is not None:
        out.constant(sequence.real)
    else:
        out.sequence_of_class(sequence.cls, sequence.items)


def _part_class(extension: Extension, cls: Any) -> Any:
    """Return the class of a slice or multiple of a tuple subclass."""
    return tuple if cls is tuple else extension.sequence_class(cls, None)


def _joined_class(extension: Extension, left: Any, right: Any) -> Any:
    """Return the class of the sum of two tuples."""
    return tuple if left is right is tuple else extension.sequence_class(left, right)


def _index(tx: Tracer, sequence: Tuple, args: list[Value], keywords: Keywords) -> Value:
    return sequences.position_of(tx, sequence, arity("index", args, keywords, 1, 3))


def _count(tx: Tracer, sequence: Tuple, args: list[Value], keywords: Keywords) -> Value:
    return sequences.tally(tx, sequence, arity("count", args, keywords, 1))


METHODS: dict[str, methods.Rule] = {"count": _count, "index": _index}
methods.declare(tuple, METHODS, methods.refused(["__getnewargs__"], "it is for `pickle`"))
