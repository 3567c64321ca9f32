"""Classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import calling, class_lookup, folding, iteration, operators
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.made import MadeClass
from intarsia_pyeval.values.objects import ClassValue, Object, Reference

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.call.rule(ClassValue)
def call(tx: Tracer, cls: ClassValue, args: Sequence[Value], keywords: Keywords) -> Value:
    """Make an instance."""
    return calling.call_class(tx, cls, args, keywords)


@do.get_attribute.rule(ClassValue)
def get_attribute(tx: Tracer, cls: ClassValue, name: str) -> Value:
    """Look the attribute up in the class and its bases."""
    return class_lookup.class_attribute(tx, cls, name)


@do.get_item.rule(ClassValue)
def get_item(tx: Tracer, cls: ClassValue, key: Value) -> Value:
    """Model `Enum["NAME"]` and generic aliases of known parts."""
    return class_lookup.class_item(tx, cls, key)


@do.iterate.rule(ClassValue)
def iterate(tx: Tracer, cls: ClassValue) -> Value:
    """Iterate over the members of an enumeration."""
    return class_lookup.class_iterate(tx, cls)


@do.contains.rule(ClassValue)
def contains(tx: Tracer, cls: ClassValue, item: Value) -> bool:
    """Model membership in an enumeration, for members."""
    if not isinstance(item, Object) or item.cls is not cls.value:
        raise Break("tracer.operator", f"{item.describe()} in {cls.describe()} isn't modelled")
    return any(operators.same(tx, member, item) for member in iteration.unpack(tx, cls))


@do.call_method.rule(ClassValue)
def call_method(tx: Tracer, cls: ClassValue, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `__init_subclass__` of `object`, checks of `type`, and methods in C that the plug-in knows."""
    if name == "__init_subclass__" and not args and not keywords:
        return Const(None)
    if name in ("__instancecheck__", "__subclasscheck__"):
        return tx.callables.rules[getattr(type, name)](tx, [cls, *args], keywords)
    answer = tx.extension.call_class_method(tx, cls, name, args, keywords)
    return answer if answer is not None else do.call_method.default(tx, cls, name, args, keywords)


@do.length.rule(ClassValue)
def length(tx: Tracer, cls: ClassValue) -> int:
    """Return the number of members of an enumeration."""
    return len(iteration.unpack(tx, cls))


@do.truth.rule(ClassValue)
def truth(tx: Tracer, cls: ClassValue) -> bool:
    """Classes are true, unless their metaclass says otherwise."""
    if type(cls.value) is type or not hasattr(type(cls.value), "__bool__"):
        return True
    return bool(folding.real(tx, bool, cls.value))


@do.binary.rule(ClassValue)
def binary(tx: Tracer, cls: ClassValue, op: str, other: Value, swapped: bool) -> Value | None:
    """Model `A | B`."""
    if op != "|" or isinstance(cls, MadeClass) or isinstance(other, MadeClass):
        return None
    if (isinstance(other, Const) and other.value is not None) or not isinstance(other, (Reference, Const)):
        return None
    left, right = (other, cls) if swapped else (cls, other)
    return tx.live.wrap(folding.real(tx, lambda: left.value | right.value), None)
