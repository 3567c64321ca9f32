"""Methods written in C, bound to their objects."""

from __future__ import annotations

import types
from typing import Any

from intarsia_pyeval.values.base import Value

__all__ = ["BoundBuiltin"]


class BoundBuiltin(Value):
    """A method of a built-in class, bound to a model of its object."""

    __slots__ = ("name", "owner", "raw")
    shared = False

    def __init__(self, owner: Value, name: str, raw: Any = None) -> None:
        self.source = None
        self.owner = owner
        self.name = name
        self.raw = raw  # the descriptor, where the object's class may have another method of this name

    def type(self) -> Any:
        """Return the type of built-in methods."""
        return types.BuiltinMethodType

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"method {self.name!r} of {self.owner.describe()}"
