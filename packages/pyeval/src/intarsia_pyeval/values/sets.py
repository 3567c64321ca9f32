"""Sets and frozen sets, in the order that CPython gives them.

The order of a set depends on the history of its hash table. So a model keeps that history: a *mirror*, a real set of
the elements' keys that goes through the same operations, says in which order the elements come; and a *recipe*, the
operations themselves, builds the set again. A set of elements whose hashes aren't known has no mirror.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intarsia_ir.records import Source
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.objects import Reference
from intarsia_pyeval.values.sequences import Tuple

__all__ = ["Operand", "Recipe", "SetValue"]


Elements = dict[Hashable, Value]
LONG = 2000  # steps; a longer recipe isn't worth its code


@dataclass(frozen=True, slots=True)
class Operand:
    """What a set operation takes: an element, an iterable, or a set as it was then.

    Args:
        elements: The elements.
        mirror: What the mirror's operation takes, an element in a tuple; None when the order isn't known.
        kind: "element", "items", "keys" (of a dict), "set", or "self": the very set that the method is called on.
        recipe: How a set was made.
    """

    elements: Elements
    mirror: Any
    kind: str
    recipe: Recipe | None = None

    def mirrored(self) -> Any:
        """Return what the mirror's operation takes."""
        return self.mirror[0] if self.kind == "element" else self.mirror

    def weight(self) -> int:
        """Return the length of its code, roughly."""
        return self.recipe.weight if self.recipe is not None else len(self.elements)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a set was made, up to some moment.

    Args:
        cls: set or frozenset.
        first: "" for an existing set, "new", or the method of `owner` that made it.
        owner: The set that the method belongs to, or the operand that the class was called with.
        operands: Of the method.
        existing: The existing set.
        steps: The methods called on it since.
        weight: Number of steps, all operands included.
    """

    cls: Any
    first: str
    owner: Operand | None = None
    operands: tuple[Operand, ...] = ()
    existing: SetValue | None = None
    steps: tuple[tuple[str, tuple[Operand, ...]], ...] = ()
    weight: int = 1

    def then(self, name: str, operands: Sequence[Operand]) -> Recipe:
        """Return the recipe with one more step; too long a one is never carried out."""
        if self.weight > LONG:
            return self
        weight = self.weight + 1 + sum(o.weight() for o in operands)
        steps = (*self.steps, (name, tuple(operands)))
        return Recipe(self.cls, self.first, self.owner, self.operands, self.existing, steps, weight)


class SetValue(Value):
    """A set or frozenset.

    Args:
        elements: Key -> model of the element.
        cls: The class.
        source: Where an existing set is fetched.
        real: The existing set.
        mirror: See above; None when unknown.
        recipe: See above; None for an existing set.
    """

    __slots__ = ("cls", "elements", "mirror", "real", "recipe")

    def __init__(
        self,
        elements: Mapping[Hashable, Value] | None = None,
        cls: Any = set,
        source: Source | None = None,
        real: Any = None,
        mirror: Any = None,
        recipe: Recipe | None = None,
    ) -> None:
        self.source = source
        self.cls = cls
        self.real = real
        self.elements: Elements = dict(elements or {})
        self.mirror = mirror
        if real is not None:
            recipe = Recipe(cls, "", existing=self)
        elif recipe is None:
            operand = items_operand(self.elements.items())
            recipe = Recipe(cls, "new", operand, weight=1 + len(self.elements))
            if mirror is None and operand.mirror is not None:
                self.mirror = cls(operand.mirror)
        self.recipe = recipe

    def snapshot(self) -> Operand:
        """Return the set as it is now."""
        return Operand(dict(self.elements), self.mirror_now(), "set", self.recipe)

    def mirror_now(self) -> Any:
        """Return the mirror; a constant is its own."""
        if self.real is not None and self.source is None and not self.recipe.steps:
            certain = all(is_certain(model) for model in self.elements.values())
            return self.real if certain else None
        return self.mirror

    def type(self) -> Any:
        """Return set or frozenset."""
        return self.cls

    def identity(self) -> object | None:
        """Return the existing set."""
        real: object | None = self.real
        return real

    def as_python(self) -> Any:
        """Return the set, if every element is known."""
        elements = [item.as_python() for item in self.elements.values()]
        mirror = self.mirror_now()
        return mirror if mirror is not None and all(is_plain(v) for v in self.elements.values()) else self.cls(elements)

    # -- changing ------------------------------------------------------------------------------------------------

    # -- building ------------------------------------------------------------------------------------------------


# -- operands ------------------------------------------------------------------------------------------------


def items_operand(pairs: Iterable[tuple[Hashable, Value]]) -> Operand:
    """Return the operand for elements that are inserted one after the other."""
    pairs = list(pairs)
    elements: Elements = {}
    for key, item in pairs:
        elements.setdefault(key, item)
    certain = all(is_certain(item) for item in elements.values())
    return Operand(elements, [key for key, _ in pairs] if certain else None, "items")


def is_certain(model: Value) -> bool:
    """Tell whether an element's hash is that of its key, and the same in every call."""
    if isinstance(model, Tuple):
        return all(is_certain(item) for item in model.items)
    if isinstance(model, SetValue):
        return all(is_certain(item) for item in model.elements.values())
    return isinstance(model, (Const, Reference)) or isinstance(model.identity(), enum.Enum)


def is_plain(model: Value) -> bool:
    """Tell whether the key of an element is the element itself."""
    if isinstance(model, Tuple):
        return model.cls is tuple and all(is_plain(item) for item in model.items)
    return isinstance(model, Const)


# -- rules ---------------------------------------------------------------------------------------------------
