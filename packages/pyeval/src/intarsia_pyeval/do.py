"""What can be done with a value: the operations of Python that kinds of value have rules for.

A kind's rules are in its file of `kinds`; `get_item(tx, x, key)` carries out the one for `x`. An operation that a kind
has no rule for breaks: nothing is guessed. How operators are tried on two operands, what stands in for a missing
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
def hash_key(tx: Tracer, x: Value) -> Hashable:
    """Return what stands for the value as a key of a dict or set; equal values have equal keys."""
    raise Break(x.refusal("tracer.hashing", "__hash__"), f"{x.describe()} is used as a key")


@operation
def get_attribute(tx: Tracer, x: Value, name: str) -> Value:
    """Model `getattr(x, name)`."""
    raise Break("tracer.attribute", f"attribute {name!r} of {x.describe()} isn't modelled")


@operation
def set_attribute(tx: Tracer, x: Value, name: str, value: Value) -> None:
    """Model `setattr(x, name, value)`."""
    raise Break("tracer.mutation", f"setting attribute {name!r} of {x.describe()} isn't modelled")


@operation
def delete_attribute(tx: Tracer, x: Value, name: str) -> None:
    """Model `delattr(x, name)`."""
    raise Break("tracer.mutation", f"deleting attribute {name!r} of {x.describe()} isn't modelled")


@operation
def call(tx: Tracer, x: Value, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `x(*args, **keywords)`."""
    raise Break(x.refusal("tracer.call", "__call__"), f"calling {x.describe()} isn't modelled")


@operation
def call_method(tx: Tracer, x: Value, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model a built-in method."""
    raise Break("tracer.call", f"method {name!r} of {x.describe()} isn't modelled")


@operation
def call_native(tx: Tracer, x: Value, raw: Any, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call the descriptor `raw` of a base class written in C: where there is one class, the method of its name."""
    return call_method(tx, x, name, args, keywords)


@operation
def truth(tx: Tracer, x: Value) -> bool:
    """Model `bool(x)`."""
    raise Break("tracer.operator", f"the truth of {x.describe()} isn't modelled")


@operation
def as_bool(tx: Tracer, x: Value) -> Value:
    """Model `bool(x)` as a value, which may stay open."""
    return boolean(truth(tx, x))


@operation
def branch(tx: Tracer, x: Value, expected: Callable[[], bool | None]) -> bool:
    """Model `bool(x)` for a jump; `expected` tells which truth the program goes on with, if the other surely raises."""
    return truth(tx, x)


@operation
def convert(tx: Tracer, x: Value, cls: Any) -> Value | None:
    """Model `cls(x)` for a number class; None when this class has no rule for it."""
    return None


@operation
def format_text(tx: Tracer, x: Value, spec: Value) -> Value | None:
    """Model `format(x, spec)` as text that stays open; None where nothing of it is open."""
    return None


@operation
def length(tx: Tracer, x: Value) -> int:
    """Model `len(x)`."""
    raise Break(x.refusal("tracer.operator", "__len__"), f"the length of {x.describe()} isn't modelled")


@operation
def get_item(tx: Tracer, x: Value, key: Value) -> Value:
    """Model `x[key]`."""
    names = ("__getitem__", "__class_getitem__")
    raise Break(x.refusal("tracer.operator", *names), f"subscripting {x.describe()} isn't modelled")


@operation
def set_item(tx: Tracer, x: Value, key: Value, value: Value) -> None:
    """Model `x[key] = value`."""
    raise Break("tracer.mutation", f"storing an item of {x.describe()} isn't modelled")


@operation
def delete_item(tx: Tracer, x: Value, key: Value) -> None:
    """Model `del x[key]`."""
    raise Break("tracer.mutation", f"deleting an item of {x.describe()} isn't modelled")


@operation
def contains(tx: Tracer, x: Value, item: Value) -> bool:
    """Model `item in x`."""
    raise Break("tracer.operator", f"membership in {x.describe()} isn't modelled")


@operation
def iterate(tx: Tracer, x: Value) -> Value:
    """Model `iter(x)`."""
    code = x.refusal("tracer.iterator", "__iter__", "__getitem__")
    raise Break(code, f"iterating over {x.describe()} isn't modelled")


@operation
def advance(tx: Tracer, x: Value) -> Value | None:
    """Model `next(x)`; None when it is exhausted."""
    raise Break(x.refusal("tracer.iterator", "__next__"), f"advancing {x.describe()} isn't modelled")


@operation
def binary(tx: Tracer, x: Value, op: str, other: Value, swapped: bool) -> Value | None:
    """Model `x op other` (or `other op x` when swapped); None when this class has no rule for it."""
    return None


@operation
def in_place(tx: Tracer, x: Value, op: str, other: Value) -> Value | None:
    """Model `x op= other`; None when it is the same as the plain operator."""
    return None


@operation
def compare(tx: Tracer, x: Value, op: str, other: Value) -> Value | None:
    """Model a rich comparison; None when this class has no rule for it."""
    return None


@operation
def unary(tx: Tracer, x: Value, op: str) -> Value:
    """Model `-x`, `+x` and `~x`."""
    raise Break("tracer.operator", f"unary {op} on {x.describe()} isn't modelled")
