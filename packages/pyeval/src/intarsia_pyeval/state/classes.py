"""What classes define, and where they are found."""

from __future__ import annotations

import abc
import types
from typing import Any

from intarsia_ir.guards import AbsentGuard, HasAttributeGuard, SubclassGuard, TypeGuard
from intarsia_ir.records import Source
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.sources import Guards, Sources
from intarsia_pyeval.state.lookups import Lookups
from intarsia_pyeval.trust import is_trusted
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.objects import ClassValue, Object
from intarsia_pyeval.values.sequences import Tuple

__all__ = ["Classes"]


_WRITTEN_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType, types.NoneType)


class Classes:
    """Looks names up in classes, and relies on what the look-up saw.

    Args:
        sources: Where existing objects are found.
        guards: What was relied on.
        lookups: Which names were looked up.
    """

    def __init__(self, sources: Sources, guards: Guards, lookups: Lookups) -> None:
        self._sources = sources
        self._guards = guards
        self._lookups = lookups
        self._places: dict[int, Source] = {}  # id of a class, module or callable -> where it was found first
        self._alike: dict[int, list[Source]] = {}  # id of a class of which others do as well -> objects of it
        self._found: dict[tuple[Any, str], tuple[Any, int] | None] = {}

    def note(self, reference: Any, source: Source) -> None:
        """A class, or another object that counts only by its identity, is found at `source`."""
        self._places.setdefault(id(reference), source)

    def note_alike(self, cls: Any, source: Source) -> None:
        """The object at `source` is relied on to be of a class like `cls`, which may be another one."""
        self.note(cls, self._sources.type_of(source))
        self._alike.setdefault(id(cls), []).append(source)

    def rely_on_identity(self, cls: Any) -> None:
        """The program may tell `cls` from others like it: rely on objects having this one."""
        for source in self._alike.get(id(cls), ()):
            self._guards.add(TypeGuard, source, cls)

    def place(self, reference: Any) -> Source | None:
        """Return where a class, or another object that counts only by its identity, was found."""
        return self._places.get(id(reference))

    def place_of(self, owner: Value, cls: Any) -> Source | None:
        """Return where the class of `owner` is found."""
        if isinstance(owner, ClassValue):
            return owner.source
        if owner.source is not None:
            return self._sources.type_of(owner.source)
        return self._places.get(id(cls))

    def find(self, cls: Any, name: str) -> tuple[Any, int] | None:
        """Return what the class or a base defines under `name`, and the position of the base in the MRO.

        The capture relies on the answer: on the absence of a name, and on the kind or identity of what is found.
        """
        key = (cls, name)
        if key in self._found:
            return self._found[key]
        definition = None
        for index, base in enumerate(cls.__mro__):
            names = base.__dict__
            if name in names:
                definition = names[name], index
                break
        self._found[key] = definition
        self._lookups.note_class(
            cls, name, *((None, None) if definition is None else (cls.__mro__[definition[1]], definition[0]))
        )
        return definition

    def forget(self) -> None:
        """A class that was made while tracing is changed: look names up anew."""
        self._found.clear()

    def place_in_order(self, owner: Value, cls: Any, index: int) -> Source | None:
        """Return where the class at a position in the order of the bases of `owner`'s class is found.

        A class made while tracing is found nowhere, but its bases may be.
        """
        source = self.place_of(owner, cls)
        if source is not None:
            return self._sources.item(self._sources.attribute(source, "__mro__"), index)
        wanted = cls.__mro__[index]
        for heir in cls.__mro__:
            place = self._places.get(id(heir))
            if place is not None and wanted in heir.__mro__:
                if heir is wanted:
                    return place
                return self._sources.item(self._sources.attribute(place, "__mro__"), heir.__mro__.index(wanted))
        return None

    def asks_python(self, value: Value, name: str) -> bool:
        """Tell whether a special method of an instance or a named tuple is a function written in Python."""
        if type(value) is not Object and not (isinstance(value, Tuple) and value.cls is not tuple):
            return False
        definition = self.find(value.type(), name)
        return definition is not None and not isinstance(definition[0], _WRITTEN_IN_C)

    def is_subclass(self, kind: Any, cls: Any) -> bool:
        """Model `issubclass`, and rely on the bases of classes of the user, and on what isn't registered.

        What an abstract class once accepted it accepts for ever. Of two library classes neither changes.
        """
        self.rely_on_identity(cls)
        by_bases = cls in kind.__mro__
        answer = by_bases or issubclass(kind, cls)
        source = self._places.get(id(kind))
        libraries = is_trusted(kind.__module__), is_trusted(cls.__module__)
        may_be_registered = isinstance(cls, abc.ABCMeta) and not answer
        lasting = all(libraries) if may_be_registered else any(libraries) or by_bases is not answer
        if source is not None and kind is not cls and not lasting:
            self._guards.add(SubclassGuard, source, cls, answer)
        return answer

    def rely_on_passing_over(self, owner: Value, cls: Any, count: int, name: str) -> None:
        """Rely on the first `count` classes in the order of an object's class, itself among them, lacking a name."""
        for index, passed in enumerate(cls.__mro__[:count]):
            base = None if is_trusted(passed.__module__) else self.place_in_order(owner, cls, index)
            if base is not None:
                self._guards.add(AbsentGuard, self._sources.attribute(base, "__dict__"), name)

    def rely_on_absence(self, owner: Value, cls: Any, name: str) -> None:
        """Rely on a container, of which own attributes aren't modelled, having no such attribute.

        Raises:
            Break: It has one.
        """
        real = getattr(owner, "real", None)
        if real is None or cls.__dictoffset__ == 0:
            return
        if hasattr(real, name):
            raise Break("tracer.attribute", f"{owner.describe()} has an attribute {name!r} of its own")
        if owner.source is not None:
            self._guards.add(HasAttributeGuard, owner.source, name, False)
