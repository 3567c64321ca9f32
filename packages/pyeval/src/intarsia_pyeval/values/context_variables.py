"""Context variables that the traced code sets, and the tokens by which it resets them."""

from __future__ import annotations

import contextvars
from typing import Any

from intarsia_pyeval.values.base import Value

__all__ = ["Token", "Variable"]


class Variable(Value):
    """What a context variable is set to by now; behind the graph it is set to that.

    Args:
        real: The variable.
        place: Its model.
    """

    __slots__ = ("content", "place", "real")

    def __init__(self, real: contextvars.ContextVar[Any], place: Value) -> None:
        self.source = None
        self.real = real
        self.place = place
        self.content: Value | None = None  # None: as it was before the call

    def type(self) -> Any:
        """Return the class of the variable."""
        return contextvars.ContextVar

    def identity(self) -> object | None:
        """It has effects outside of the frame."""
        return self


class Token(Value):
    """What setting a variable gave.

    Args:
        variable: The variable.
        before: What it was set to; None: what it was before the call.
    """

    __slots__ = ("before", "used", "variable")

    def __init__(self, variable: Variable, before: Value | None) -> None:
        self.source = None
        self.variable = variable
        self.before = before
        self.used = False

    def type(self) -> Any:
        """Return the class of tokens."""
        return contextvars.Token
