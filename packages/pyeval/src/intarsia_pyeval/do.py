"""What can be done with a value: the operations of Python that kinds of value have rules for.

A kind's rules are in its file of `kinds`; `get_item(tx, owner, key)` carries out the one for `owner`. An operation that
a kind has no rule for breaks: nothing is guessed. How operators are tried on two operands, what stands in for a missing
special method and the like are no matter of one kind: `operators`, `iteration` and `calling` put operations together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.operation import operation
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import boolean

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = [
    "advance",
    "as_bool",
    "binary",
    "branch",
    "call",
    "call_method",
    "call_native",
    "compare",
    "contains",
    "convert",
    "delete_attribute",
    "delete_item",
    "format_text",
    "get_attribute",
    "get_item",
    "hash_key",
    "in_place",
    "iterate",
    "length",
    "set_attribute",
    "set_item",
    "truth",
    "unary",
]


@operation
def hash_key(tx: Tracer, value: Value) -> Hashable:
    """Return what stands for the value as a key of a dict or set; equal values have equal keys."""
    raise Break(value.refusal("tracer.hashing", "__hash__"), f"{value.describe()} is used as a key")


@operation
def get_attribute(tx: Tracer, owner: Value, name: str) -> Value:
    """Model `getattr(owner, name)`."""
    raise Break("tracer.attribute", f"attribute {name!r} of {owner.describe()} isn't modelled")


@operation
def set_attribute(tx: Tracer, owner: Value, name: str, value: Value) -> None:
    """Model `setattr(owner, name, value)`."""
    raise Break("tracer.mutation", f"setting attribute {name!r} of {owner.describe()} isn't modelled")


@operation
def delete_attribute(tx: Tracer, owner: Value, name: str) -> None:
    """Model `delattr(owner, name)`."""
    raise Break("tracer.mutation", f"deleting attribute {name!r} of {owner.describe()} isn't modelled")


@operation
def call(tx: Tracer, value: Value, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `value(*args, **keywords)`."""
    raise Break(value.refusal("tracer.call", "__call__"), f"calling {value.describe()} isn't modelled")


@operation
def call_method(tx: Tracer, owner: Value, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model a built-in method."""
    raise Break("tracer.call", f"method {name!r} of {owner.describe()} isn't modelled")


@operation
def call_native(tx: Tracer, owner: Value, raw: Any, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call the descriptor `raw` of a base class written in C: where there is one class, the method of its name."""
    return call_method(tx, owner, name, args, keywords)


@operation
def truth(tx: Tracer, value: Value) -> bool:
    """Model `bool(value)`."""
    raise Break("tracer.operator", f"the truth of {value.describe()} isn't modelled")


@operation
def as_bool(tx: Tracer, value: Value) -> Value:
    """Model `bool(value)` as a value, which may stay open."""
    return boolean(truth(tx, value))


@operation
def branch(tx: Tracer, value: Value, expected: Callable[[], bool | None]) -> bool:
    """Model `bool(value)` for a jump; `expected` tells which truth goes on, if the other surely raises."""
    return truth(tx, value)


@operation
def convert(tx: Tracer, value: Value, cls: Any) -> Value | None:
    """Model `cls(value)` for a number class; None when this class has no rule for it."""
    return None


@operation
def format_text(tx: Tracer, value: Value, spec: Value) -> Value | None:
    """Model `format(value, spec)` as text that stays open; None where nothing of it is open."""
    return None


@operation
def length(tx: Tracer, value: Value) -> int:
    """Model `len(value)`."""
    raise Break(value.refusal("tracer.operator", "__len__"), f"the length of {value.describe()} isn't modelled")


@operation
def get_item(tx: Tracer, owner: Value, key: Value) -> Value:
    """Model `owner[key]`."""
    names = ("__getitem__", "__class_getitem__")
    raise Break(owner.refusal("tracer.operator", *names), f"subscripting {owner.describe()} isn't modelled")


@operation
def set_item(tx: Tracer, owner: Value, key: Value, value: Value) -> None:
    """Model `owner[key] = value`."""
    raise Break("tracer.mutation", f"storing an item of {owner.describe()} isn't modelled")


@operation
def delete_item(tx: Tracer, owner: Value, key: Value) -> None:
    """Model `del owner[key]`."""
    raise Break("tracer.mutation", f"deleting an item of {owner.describe()} isn't modelled")


@operation
def contains(tx: Tracer, owner: Value, item: Value) -> bool:
    """Model `item in owner`."""
    raise Break("tracer.operator", f"membership in {owner.describe()} isn't modelled")


@operation
def iterate(tx: Tracer, value: Value) -> Value:
    """Model `iter(value)`."""
    code = value.refusal("tracer.iterator", "__iter__", "__getitem__")
    raise Break(code, f"iterating over {value.describe()} isn't modelled")


@operation
def advance(tx: Tracer, value: Value) -> Value | None:
    """Model `next(value)`; None when it is exhausted."""
    raise Break(value.refusal("tracer.iterator", "__next__"), f"advancing {value.describe()} isn't modelled")


@operation
def binary(tx: Tracer, value: Value, op: str, other: Value, swapped: bool) -> Value | None:
    """Model `value op other` (or `other op value` when swapped); None when this class has no rule for it."""
    return None


@operation
def in_place(tx: Tracer, value: Value, op: str, other: Value) -> Value | None:
    """Model `value op= other`; None when it is the same as the plain operator."""
    return None


@operation
def compare(tx: Tracer, value: Value, op: str, other: Value) -> Value | None:
    """Model a rich comparison; None when this class has no rule for it."""
    return None


@operation
def unary(tx: Tracer, value: Value, op: str) -> Value:
    """Model `-value`, `+value` and `~value`."""
    raise Break("tracer.operator", f"unary {op} on {value.describe()} isn't modelled")
