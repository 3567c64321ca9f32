"""Existing objects and their models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from types import CellType
from typing import Any

from intarsia_ir.records import Source
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.functions import Cell, Globals
from intarsia_pyeval.values.objects import ClassValue

__all__ = ["Live", "StandIns"]


class StandIns:
    """Real objects in the place of what the traced code makes.

    Attributes:
        used: Whether there are any.
        functions: A function -> what stands for it.
        parts: id of what a stand-in class holds, made by its metaclass or a decorator -> how it is found again.
    """

    def __init__(self) -> None:
        self.used = False
        self.functions: dict[Value, Any] = {}
        self.parts: dict[int, Value] = {}


class Live(ABC):
    """Which existing objects have models already. How one is made of an object is up to `wrapping`."""

    def __init__(self) -> None:
        self._known: dict[int, Value] = {}  # id of an existing object -> its model
        self._kept: list[Any] = []  # keeps those objects alive, so that ids stay theirs
        self.stand_ins = StandIns()

    def known(self, value: Any) -> Value | None:
        """Return the model of an object, if it has one already."""
        return self._known.get(id(value))

    def adopt(self, value: Any, model: Value) -> None:
        """Take a model as that of an object."""
        self._known[id(value)] = model
        self._kept.append(value)

    def keep(self, value: Any) -> None:
        """Keep something alive for the capture, so that its identity stays its own."""
        self._kept.append(value)

    def models(self) -> list[Value]:
        """Return the models of existing objects."""
        return list(self._known.values())

    @abstractmethod
    def wrap(self, value: Any, source: Source | None) -> Value:
        """Model an existing object found at `source`; None when no guard is needed to find it again."""

    @abstractmethod
    def item(self, value: Any, owner: Source | None, index: int) -> Value:
        """Model an item of an existing sequence that is found at `owner`."""

    @abstractmethod
    def constant(self, value: Any) -> Value:
        """Model a constant of a code object."""

    @abstractmethod
    def from_python(self, value: Any) -> Value:
        """Model the result of an operation: containers are new ones."""

    @abstractmethod
    def key(self, key: Any) -> Hashable:
        """Return the hash key of an existing key."""

    @abstractmethod
    def key_value(self, key: Any) -> Value:
        """Model the key of an existing dict or set."""

    @abstractmethod
    def class_value(self, cls: Any) -> ClassValue:
        """Model a class that is the type of something already guarded."""

    @abstractmethod
    def cell(self, real: CellType, owner: Source | None) -> Cell:
        """Return the one model of an existing cell; `owner` is where the cell itself is found."""

    @abstractmethod
    def namespace(self, names: dict[str, Any], source: Source | None) -> Globals:
        """Return the one model of a module's namespace."""

    @abstractmethod
    def class_function(self, owner: Value, cls: Any, name: str, part: str = "") -> Value:
        """Return the function that a class defines, or a part of its property, with a source to guard it by."""
