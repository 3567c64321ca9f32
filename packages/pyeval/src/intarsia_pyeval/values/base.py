"""What every value model offers. The defaults break: an operation that a class doesn't define isn't guessed."""

from __future__ import annotations

from typing import Any

from intarsia_ir.errors import InternalError
from intarsia_ir.records import Source
from intarsia_pyeval.breaks import Break

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

    def refusal(self, code: str, *names: str) -> str:
        """Return the code of a break: eager raises where a class has none of the special methods that are asked for."""
        definitions = [vars(base)[name] for base in self.type().__mro__ for name in names if name in vars(base)]
        return code if definitions and definitions[0] is not None else "tracer.operation_raised"

    # -- how it is built again -----------------------------------------------------------------------------------

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
