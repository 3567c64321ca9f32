"""Classes that the traced code makes, and objects that are made of its functions, such as properties.

What CPython's own rules read of a class is read of a real one, a stand-in: it is made while tracing, of stand-ins for
the functions and values of its body, and no code of the program's ever gets it. Replacement code makes the class anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value
from intarsia_pyeval.values.functions import Cell
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import ClassValue, Reference

__all__ = ["Decorator", "Held", "Made", "MadeClass", "Names", "Recipe"]


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How replacement code makes an object.

    Args:
        maker: What is called: an existing callable.
        args: By position.
        keywords: By name.
        names: The namespace of a class, which is the last argument: its entries in order; None for other objects.
        prepared: Whether the entries are put one by one into what the metaclass prepares.
        cell: The `__class__` of the methods, which making the class fills.
    """

    maker: Any
    args: Sequence[Value] = ()
    keywords: Mapping[str, Value] = field(default_factory=dict)
    names: Mapping[str, Value] | None = None
    prepared: bool = False
    cell: Cell | None = None


class Held:
    """Stands in a real class for a value of the traced code: nothing may look at it.

    Args:
        model: The value.
    """

    __slots__ = ("model",)

    def __init__(self, model: Value) -> None:
        self.model = model

    def __repr__(self) -> NoReturn:
        """The text isn't known.

        Raises:
            Break: Always.
        """
        raise Break("tracer.call", f"making a class asks for the text of {self.model.describe()}")

    def __bool__(self) -> NoReturn:
        """Whether it is true isn't known.

        Raises:
            Break: Always.
        """
        raise Break("tracer.call", f"making a class asks whether {self.model.describe()} is true")


class Made(Reference):
    """An object that traced code makes of its functions, such as a property.

    Args:
        value: The stand-in.
        recipe: How it is made.
    """

    __slots__ = ("recipe",)
    shared = True

    def __init__(self, value: Any, recipe: Recipe) -> None:
        super().__init__(value)
        self.recipe = recipe

    def as_python(self) -> Any:
        """The stand-in isn't the object."""
        raise NotConstantError(self.describe())

    def describe(self) -> str:
        """Return a few words for messages."""
        return f"a {type(self.value).__name__} made by the traced code"


class MadeClass(ClassValue):
    """A class that traced code makes.

    Args:
        value: The stand-in.
        recipe: How it is made.

    Attributes:
        changes: What was done to it since, in order: a name and what it was set to, or a decorator and its keywords.
    """

    __slots__ = ("changes", "recipe")
    shared = True

    def __init__(self, value: Any, recipe: Recipe) -> None:
        super().__init__(value)
        self.recipe = recipe
        self.changes: list[tuple[str, Value] | tuple[Any, Keywords]] = []

    def as_python(self) -> Any:
        """The stand-in isn't the class."""
        raise NotConstantError(self.describe())


class Names(Dict):
    """The namespace of a class body.

    Args:
        prepared: What the metaclass prepared, which may give what is stored another form; None for a plain dict.
    """

    __slots__ = ("prepared",)

    def __init__(self, prepared: Any = None) -> None:
        super().__init__()
        self.prepared = prepared


class Decorator(Value):
    """A decorator of classes that was given its keywords.

    Args:
        function: The decorator.
        keywords: What it was given.
    """

    __slots__ = ("function", "keywords")

    def __init__(self, function: Value, keywords: Keywords) -> None:
        self.source = None
        self.function = function
        self.keywords = keywords

    def type(self) -> Any:
        """Return the class of functions."""
        return type(lambda: None)
