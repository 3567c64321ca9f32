"""What every value model offers. The defaults break: an operation that a class doesn't define isn't guessed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_ir.errors import InternalError
from intarsia_ir.records import Source
from intarsia_pyeval.breaks import Break, Unreconstructable

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["NULL", "Keywords", "NotConstantError", "Null", "Value", "defines"]

Keywords = dict[str, "Value"]


def defines(cls: Any, name: str) -> bool:
    """Tell whether a class or a base of it defines a name; `hasattr` would find what only its metaclass has."""
    return any(name in vars(base) for base in cls.__mro__)


class NotConstantError(Break):
    """A value isn't known in full while tracing: a break, unless who asked has another answer."""

    def __init__(self, what: str) -> None:
        super().__init__("tracer.call", f"{what} is needed while tracing")
        self.what = what

    def __str__(self) -> str:
        return self.what


class Value:
    """A Python value while tracing.

    Args:
        source: How a later call of the frame fetches the same value; None for values made while tracing.
    """

    __slots__ = ("source",)

    #: Whether two loads of this value must give the same object, so that codegen keeps it in a temporary.
    shared = True

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    # -- what it is ----------------------------------------------------------------------------------------------

    def type(self) -> Any:
        """Return the Python class of the value."""
        raise InternalError(f"{type(self).__name__} must define this", code="tracer.abstract")

    def as_python(self) -> Any:
        """Return the value as a Python object, containers copied.

        Raises:
            NotConstantError: Some part of it isn't known while tracing.
        """
        raise NotConstantError(self.describe())

    def is_nan(self) -> bool:
        """Tell whether it is a number that differs from itself."""
        return False

    def settled(self) -> Value:
        """Return the constant that this is, if it is a number that later calls are made to share; else itself."""
        return self

    def identity(self) -> object | None:
        """Return the existing Python object that this stands for, or None when it is made by the traced code."""
        return None

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"a {self.type().__name__}"

    def hash_key(self, tx: Tracer) -> Hashable:
        """Return what stands for the value as a key of a dict or set; equal values have equal keys."""
        raise Break(self._refused("tracer.hashing", "__hash__"), f"{self.describe()} is used as a key")

    # -- what can be done with it --------------------------------------------------------------------------------

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Model `getattr(self, name)`."""
        raise Break("tracer.attribute", f"attribute {name!r} of {self.describe()} isn't modelled")

    def set_attribute(self, tx: Tracer, name: str, value: Value) -> None:
        """Model `setattr(self, name, value)`."""
        raise Break("tracer.mutation", f"setting attribute {name!r} of {self.describe()} isn't modelled")

    def delete_attribute(self, tx: Tracer, name: str) -> None:
        """Model `delattr(self, name)`."""
        raise Break("tracer.mutation", f"deleting attribute {name!r} of {self.describe()} isn't modelled")

    def call(self, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        """Model `self(*args, **keywords)`."""
        raise Break(self._refused("tracer.call", "__call__"), f"calling {self.describe()} isn't modelled")

    def call_method(self, tx: Tracer, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Model a built-in method."""
        raise Break("tracer.call", f"method {name!r} of {self.describe()} isn't modelled")

    def call_native(self, tx: Tracer, raw: Any, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call the descriptor `raw` of a base class written in C: where there is one class, the method of its name."""
        return self.call_method(tx, name, args, keywords)

    def truth(self, tx: Tracer) -> bool:
        """Model `bool(self)`."""
        raise Break("tracer.operator", f"the truth of {self.describe()} isn't modelled")

    def convert(self, tx: Tracer, cls: Any) -> Value | None:
        """Model `cls(self)` for a number class; None when this class has no rule for it."""
        return None

    def length(self, tx: Tracer) -> int:
        """Model `len(self)`."""
        raise Break(self._refused("tracer.operator", "__len__"), f"the length of {self.describe()} isn't modelled")

    def get_item(self, tx: Tracer, key: Value) -> Value:
        """Model `self[key]`."""
        names = ("__getitem__", "__class_getitem__")
        raise Break(self._refused("tracer.operator", *names), f"subscripting {self.describe()} isn't modelled")

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        """Model `self[key] = value`."""
        raise Break("tracer.mutation", f"storing an item of {self.describe()} isn't modelled")

    def delete_item(self, tx: Tracer, key: Value) -> None:
        """Model `del self[key]`."""
        raise Break("tracer.mutation", f"deleting an item of {self.describe()} isn't modelled")

    def contains(self, tx: Tracer, item: Value) -> bool:
        """Model `item in self`."""
        raise Break("tracer.operator", f"membership in {self.describe()} isn't modelled")

    def iterate(self, tx: Tracer) -> Value:
        """Model `iter(self)`."""
        code = self._refused("tracer.iterator", "__iter__", "__getitem__")
        raise Break(code, f"iterating over {self.describe()} isn't modelled")

    def advance(self, tx: Tracer) -> Value | None:
        """Model `next(self)`; None when it is exhausted."""
        raise Break(self._refused("tracer.iterator", "__next__"), f"advancing {self.describe()} isn't modelled")

    def binary(self, tx: Tracer, op: str, other: Value, swapped: bool) -> Value | None:
        """Model `self op other` (or `other op self` when swapped); None when this class has no rule for it."""
        return None

    def in_place(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Model `self op= other`; None when it is the same as the plain operator."""
        return None

    def compare(self, tx: Tracer, op: str, other: Value) -> Value | None:
        """Model a rich comparison; None when this class has no rule for it."""
        return None

    def unary(self, tx: Tracer, op: str) -> Value:
        """Model `-self`, `+self` and `~self`."""
        raise Break("tracer.operator", f"unary {op} on {self.describe()} isn't modelled")

    def _refused(self, code: str, *names: str) -> str:
        """Return the code of a break: eager raises where a class has none of the special methods that are asked for."""
        found = [vars(base)[name] for base in self.type().__mro__ for name in names if name in vars(base)]
        return code if found and found[0] is not None else "tracer.operation_raised"

    # -- how it is built again -----------------------------------------------------------------------------------

    def reconstruct(self, out: Builder) -> None:
        """Emit bytecode that pushes the value.

        Raises:
            Unreconstructable: It can't be built.
        """
        raise Unreconstructable(f"{self.describe()} can't be built by bytecode")

    def emit_effects(self, out: Builder) -> None:
        """Emit bytecode that brings the existing object up to the state that tracing left it in."""

    def carry(self) -> tuple[Value, ...] | None:
        """Return what a resume function needs to make this stack entry again, or None to pass it as it is."""
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class Null(Value):
    """The empty slot that CPython pushes below some callables."""

    __slots__ = ()

    def type(self) -> Any:
        """There is no class: nothing may look at it."""
        return type(None)

    def describe(self) -> str:
        """Return a few words for messages."""
        return "an empty stack slot"


NULL = Null()
