"""Values that are known in full: Python's immutable data."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_ir.records import Source
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value
from intarsia_pyeval.values.bound import BoundBuiltin

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["ATOMS", "FALSE", "NONE", "TRUE", "UNARY", "Const", "boolean", "is_none"]

#: Types whose values are immutable, compare by value, and whose operators, attributes and methods have no effects.
ATOMS: frozenset[type] = frozenset(
    {int, float, bool, complex, str, bytes, types.NoneType, types.EllipsisType, types.NotImplementedType, range}
)
UNARY: dict[str, Callable[[Any], Any]] = {"-": lambda v: -v, "+": lambda v: +v, "~": lambda v: ~v}
_SIZED = (str, bytes, range)


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

    def hash_key(self, tx: Tracer) -> Hashable:
        """Return the object itself."""
        if self.is_nan():
            raise Break("tracer.hashing", "a NaN is a key, which only its own object finds")
        key: Hashable = self.value
        tx.real(hash, key)
        return key

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read an attribute; methods are called by name."""
        found = tx.real(getattr, self.value, name)
        if name == "__class__" or not callable(found):
            return tx.live.from_python(found)
        return BoundBuiltin(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Run a method of the atom."""
        found = tx.extension.call_atom_method(tx, self.value, name)
        if found is not None:
            return found
        if name == "join" and len(args) == 1 and not keywords:
            if not any(tx.classes.find(args[0].type(), each) for each in ("__iter__", "__getitem__")):
                tx.raising.error(TypeError, "can only join an iterable")
            args = [tx.list_of(args[0])]
        try:
            real_args = [a.as_python() for a in args]
            real_keywords = {k: v.as_python() for k, v in keywords.items()}
        except NotConstantError as unknown:
            return self._with_unknown(tx, name, args, keywords, str(unknown))
        return tx.live.from_python(tx.real(getattr(self.value, name), *real_args, **real_keywords))

    def _with_unknown(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords, unknown: str) -> Value:
        """Call a method with an operand that isn't an atom."""
        if isinstance(self.value, str) and name == "format":
            return tx.format_string(self.value, args, keywords)
        raise Break("tracer.call", f"{type(self.value).__name__}.{name} is called with {unknown}")

    def truth(self, tx: Tracer) -> bool:
        """Return the truth of the atom."""
        return bool(self.value)

    def length(self, tx: Tracer) -> int:
        """Return the length of a string or range."""
        return int(tx.real(len, self.value))

    def get_item(self, tx: Tracer, key: Value) -> Value:
        """Index a string, bytes or range."""
        value = self.value
        if not isinstance(value, _SIZED):
            tx.real(lambda: value[0])
        at = tx.index(key)
        return tx.live.from_python(tx.real(lambda: value[at]))

    def contains(self, tx: Tracer, item: Value) -> bool:
        """Model `in` on a string or range."""
        value = self.value
        try:
            wanted = item.as_python()
        except NotConstantError:
            return super().contains(tx, item)
        return bool(tx.real(lambda: wanted in value))

    def iterate(self, tx: Tracer) -> Value:
        """Iterate over the characters of a string, the bytes of bytes, or a range."""
        if not isinstance(self.value, _SIZED):
            tx.real(iter, self.value)
        return tx.iterator_over(self)

    def unary(self, tx: Tracer, op: str) -> Value:
        """Apply a unary operator."""
        return tx.live.from_python(tx.real(UNARY[op], self.value))

    def reconstruct(self, out: Builder) -> None:
        """Push the object as a constant of the code."""
        out.constant(self.value)


NONE = Const(None)
TRUE = Const(True)
FALSE = Const(False)


def boolean(value: bool) -> Const:
    """Return the constant True or False."""
    return TRUE if value else FALSE


def is_none(value: Value) -> bool:
    """Tell whether `value` is None."""
    return isinstance(value, Const) and value.value is None
