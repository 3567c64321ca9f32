"""Values that are known in full: Python's immutable data."""

from __future__ import annotations

import re
import types
from typing import Any

from intarsia_ir.records import Source
from intarsia_pyeval.values.base import Value

__all__ = ["ATOMS", "FALSE", "NONE", "TRUE", "Const", "boolean", "is_none"]


#: Types whose values are immutable, compare by value, and whose operators, attributes and methods have no effects.
ATOMS: frozenset[type] = frozenset(
    {int, float, bool, complex, str, bytes, types.NoneType, types.EllipsisType, types.NotImplementedType, range}
    | {re.Pattern, re.Match}
)


class Const(Value):
    """An atom: an immutable value known in full. Operations on it run while tracing.

    Args:
        value: The object.
        source: Where a NaN of the call is found: other than equal numbers, NaNs are told apart by being objects.
    """

    __slots__ = ("value",)
    shared = False

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value = value
        self.source = source

    def type(self) -> Any:
        """Return the Python class of the value."""
        return type(self.value)

    def as_python(self) -> Any:
        """Return the object itself."""
        return self.value

    def is_nan(self) -> bool:
        """Tell whether it differs from itself."""
        return type(self.value) in (float, complex) and self.value != self.value

    def describe(self) -> str:
        """Return a few words for messages."""
        text = repr(self.value)
        return text if len(text) <= 60 else text[:57] + "..."


NONE = Const(None)
TRUE = Const(True)
FALSE = Const(False)


def boolean(value: bool) -> Const:
    """Return the constant True or False."""
    return TRUE if value else FALSE


def is_none(value: Value) -> bool:
    """Tell whether `value` is None."""
    return isinstance(value, Const) and value.value is None
