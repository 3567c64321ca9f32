"""Classes, modules, built-in callables, and instances of classes written in Python.

An instance is modelled by what is read of it: attributes are looked up as `object.__getattribute__` does, without
running user code; properties and methods are evaluated. Attributes that traced code sets are kept in `written` and
stored in the real object after the graph ran.
"""

from __future__ import annotations

import types
from typing import Any, NamedTuple

from intarsia_ir.records import Source
from intarsia_pyeval.values.base import Value

__all__ = [
    "Builtin",
    "ClassValue",
    "CodeValue",
    "Foreign",
    "InstanceDict",
    "ModuleValue",
    "Object",
    "Reference",
    "Super",
]


class Reference(Value):
    """An existing object that counts only by its identity."""

    __slots__ = ("value",)
    shared = False

    def __init__(self, value: Any, source: Source | None = None) -> None:
        self.value = value
        self.source = source

    def type(self) -> Any:
        """Return the class."""
        return type(self.value)

    def identity(self) -> object | None:
        """Return the object."""
        real: object | None = self.value
        return real

    def as_python(self) -> Any:
        """Return the object."""
        return self.value

    def describe(self) -> str:
        """Return a few words for messages."""
        name = getattr(self.value, "__qualname__", None) or getattr(self.value, "__name__", None)
        module = getattr(self.value, "__module__", None)
        prefix = f"{module}." if isinstance(module, str) else ""
        return f"{prefix}{name}" if isinstance(name, str) else f"a {type(self.value).__name__}"


class Builtin(Reference):
    """A callable written in C: a function, a method descriptor, a slot wrapper."""

    __slots__ = ()


class CodeValue(Reference):
    """A code object; it was reached through a function that is guarded by it."""

    __slots__ = ()


class ModuleValue(Reference):
    """A module."""

    __slots__ = ()


class ClassValue(Reference):
    """A class."""

    __slots__ = ()

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"class {self.value.__module__}.{self.value.__qualname__}"


class Foreign(NamedTuple):
    """An object that a plug-in could model, but for something about it.

    Args:
        code: The code of the break where it is used.
        what: The object, in a few words.
    """

    code: str
    what: str


class Object(Value):
    """An instance of a class, existing or made while tracing.

    Args:
        cls: Its class.
        value: The existing object, or None.
        source: Where an existing object is fetched.
        base: Model of the built-in part, for subclasses of dict, list, tuple, str, int...
        foreign: Why the plug-in that could model it doesn't.
    """

    __slots__ = ("base", "birth", "cls", "foreign", "read", "value", "written")

    def __init__(
        self, cls: Any, value: Any = None, source: Source | None = None, base: Value | None = None, birth: int = -1
    ) -> None:
        self.source = source
        self.cls = cls
        self.value = value
        self.base = base
        self.birth = birth
        self.foreign: Foreign | None = None
        self.written: dict[str, Value | None] = {}  # None: deleted
        self.read: dict[str, Value] = {}

    @property
    def existing(self) -> bool:
        """Tell whether the object existed before the call."""
        return self.value is not None

    def type(self) -> Any:
        """Return the class."""
        return self.cls

    def identity(self) -> object | None:
        """Return the existing object."""
        real: object | None = self.value
        return real

    def as_python(self) -> Any:
        """Enumeration members and the like are known by their identity."""
        if self.value is not None and _counts_by_identity(self.value):
            return self.value
        return super().as_python()

    def describe(self) -> str:
        """Return a few words for messages."""
        if self.foreign is not None:
            return self.foreign.what
        return f"an object of class {self.cls.__module__}.{self.cls.__qualname__}"


def _counts_by_identity(value: object) -> bool:
    """Tell whether a real object may be used while tracing: nothing it holds ever changes."""
    import enum

    return issubclass(type(value), (enum.Enum, types.GenericAlias, types.UnionType)) or type(value) is object


class InstanceDict(Value):
    """`obj.__dict__`: reads and writes go to the model of the object."""

    __slots__ = ("owner",)
    shared = False

    def __init__(self, owner: Any) -> None:
        self.source = None
        self.owner = owner

    def type(self) -> Any:
        """Return dict."""
        return dict


class Super(Value):
    """`super()`: looks attributes up after a class in the order of another's bases."""

    __slots__ = ("after", "owner")

    def __init__(self, after: Any, owner: Value) -> None:
        self.source = None
        self.after = after
        self.owner = owner

    def type(self) -> Any:
        """Return super."""
        return super


class Traceback(Value):
    """A traceback: may be passed on, but not looked at."""

    __slots__ = ()

    def type(self) -> Any:
        """Return the traceback type."""
        return types.TracebackType
