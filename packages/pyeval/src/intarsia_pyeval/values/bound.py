"""Methods written in C, bound to their objects."""

from __future__ import annotations

import types
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.values.base import Keywords, Value

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

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

    def truth(self, tx: Tracer) -> bool:
        """Methods are true."""
        return True

    def call(self, tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        """Call the method."""
        if self.raw is not None:
            return self.owner.call_native(tx, self.raw, self.name, args, keywords)
        return self.owner.call_method(tx, self.name, args, keywords)

    def get_attribute(self, tx: Tracer, name: str) -> Value:
        """Read `__name__` or `__self__`."""
        if name == "__name__":
            return tx.live.from_python(self.name)
        return self.owner if name == "__self__" else super().get_attribute(tx, name)

    def reconstruct(self, out: Builder) -> None:
        """Fetch the method from its object, or bind its descriptor."""
        if isinstance(self.raw, types.ClassMethodDescriptorType):
            out.constant(self.raw)
            out.call_method("__get__", [partial(out.constant, None), partial(out.load, self.owner)])
            return
        if self.raw is not None:
            out.constant(self.raw)
            # CPython 3.11 crashes where some descriptors aren't given the class
            out.call_method("__get__", [partial(out.load, self.owner), partial(out.constant, self.owner.type())])
            return
        out.load(self.owner)
        out.load_attribute(self.name)
