"""From Python objects to models, with the guards that a model relies on."""

from __future__ import annotations

import collections
import enum
import functools
import types
import weakref
from collections.abc import Hashable
from types import CellType
from typing import TYPE_CHECKING, Any

from intarsia_ir.records import GuardKind, Source

from intarsia_tracer.trust import is_trusted
from intarsia_tracer.values.base import NotConstantError, Value
from intarsia_tracer.values.constants import ATOMS, FALSE, NONE, TRUE, Const
from intarsia_tracer.values.functions import BoundBuiltin, BoundMethod, Cell, Function, Globals, Partial
from intarsia_tracer.values.mappings import Dict, SetValue
from intarsia_tracer.values.objects import Builtin, ClassValue, CodeValue, ModuleValue, Object
from intarsia_tracer.values.sequences import List, Slice, Tuple

if TYPE_CHECKING:
    from intarsia_tracer.tracer import Tracer

__all__ = ["Wrapping"]

_BUILTINS = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    type(functools.lru_cache(lambda: None)),
)
_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
_IDENTITY = (enum.Enum, types.GenericAlias, types.UnionType)
_DICTS = (dict, collections.OrderedDict, collections.defaultdict, types.MappingProxyType)


class Wrapping:
    """The part of `Tracer` that models existing objects."""

    def wrap(self: Tracer, value: Any, source: Source | None) -> Value:  # type: ignore[misc]
        """Model an existing object found at `source`; None when no guard is needed to find it again."""
        kind = type(value)
        if kind in ATOMS or self.extension.is_atom(kind):
            if source is not None:
                self.guards.add(GuardKind.CONSTANT, source, value)
            return self._atom(value)
        known = self.known.get(id(value))
        if known is not None:
            self._found_again(known, source)
            return known
        found = self.extension.wrap(self, value, source)
        if found is None:
            found = self._wrap_plain(value, kind, source)
        if found.shared and found.identity() is value and not isinstance(found, Function):
            self.known[id(value)] = found
        self.kept.append(value)
        return found

    def _atom(self, value: Any) -> Const:
        """Return the model of an atom."""
        if value is None:
            return NONE
        if value is True:
            return TRUE
        return FALSE if value is False else Const(value)

    def _found_again(self: Tracer, known: Value, source: Source | None) -> None:  # type: ignore[misc]
        """An object turned up at a second place: rely on both being the same."""
        if source is None or source is known.source:
            return
        if known.source is None:
            self.guards.add(GuardKind.IDENTITY, source, known.identity())
        else:
            self.guards.add(GuardKind.ALIASING, source, (known.source, True))

    def _wrap_plain(self: Tracer, value: Any, kind: type, source: Source | None) -> Value:  # type: ignore[misc]
        """Model an object that the plug-in doesn't claim."""
        if kind is types.FunctionType:
            return Function(value, source)
        if kind is types.CodeType:
            return CodeValue(value, source)
        if issubclass(kind, (type, types.ModuleType, *_BUILTINS)):
            return self._wrap_reference(value, kind, source)
        if kind in (tuple, list) or kind in _DICTS or kind in (set, frozenset, slice):
            return self._wrap_container(value, kind, source)
        if issubclass(kind, tuple) and (hasattr(kind, "_fields") or hasattr(kind, "n_sequence_fields")):
            self._guard_shape(value, source)
            return Tuple(cls=kind, source=source, real=value, tx=self)
        return self._wrap_bound(value, kind, source) or self._wrap_object(value, kind, source)

    def _wrap_reference(self: Tracer, value: Any, kind: type, source: Source | None) -> Value:  # type: ignore[misc]
        """Model a class, module or built-in callable: only its identity counts."""
        if source is not None:
            self.reference_sources.setdefault(id(value), source)
            self.guards.add(GuardKind.IDENTITY, source, value)
        if issubclass(kind, type):
            return ClassValue(value, source)
        if issubclass(kind, types.ModuleType):
            return ModuleValue(value, source)
        owner = getattr(value, "__self__", None)
        if kind is types.BuiltinFunctionType and isinstance(getattr(type(owner), value.__name__, None), _METHODS):
            return BoundBuiltin(self.wrap(owner, None), value.__name__)
        return Builtin(value, source)

    def _wrap_container(self: Tracer, value: Any, kind: type, source: Source | None) -> Value:  # type: ignore[misc]
        """Model a built-in container."""
        if kind is slice:
            parts = [self.wrap(p, s and self.sources.attribute(s, n)) for p, s, n in _slice_parts(value, source)]
            self._guard_type(kind, source)
            return Slice(*parts, source=source)
        if kind in (set, frozenset):
            if source is not None:
                self.guards.add(GuardKind.CONSTANT, source, kind(value))
            return SetValue({self.key_of(item): self.key_value(item) for item in value}, kind, source, value)
        if kind in _DICTS:
            self._guard_type(kind, source)
            factory = getattr(value, "default_factory", None)
            factory_source = source and self.sources.attribute(source, "default_factory")
            model = self.wrap(factory, factory_source) if kind is collections.defaultdict else NONE
            return Dict(cls=kind, source=source, real=value, factory=model)
        self._guard_shape(value, source)
        if kind is tuple:
            return Tuple(source=source, real=value, tx=self)
        return List(source=source, real=value, tx=self)

    def _wrap_bound(self: Tracer, value: Any, kind: type, source: Source | None) -> Value | None:  # type: ignore[misc]
        """Model bound methods, partial objects and cells."""
        if kind is types.MethodType:
            self._guard_type(kind, source)
            function = self.wrap(value.__func__, source and self.sources.attribute(source, "__func__"))
            return BoundMethod(function, self.wrap(value.__self__, source and self.sources.attribute(source, "__self__")), source)
        if kind is types.MethodWrapperType:
            return BoundBuiltin(self.wrap(value.__self__, source and self.sources.attribute(source, "__self__")), value.__name__)
        if kind is functools.partial:
            self._guard_type(kind, source)
            part = (lambda name: self.sources.attribute(source, name)) if source else (lambda name: None)
            function = self.wrap(value.func, part("func"))
            args = self.wrap(value.args, part("args"))
            keywords = self.wrap(value.keywords, part("keywords"))
            assert isinstance(args, Tuple) and isinstance(keywords, Dict)
            named = {str(k): v for k, (_, v) in keywords.entries(self).items()}
            return Partial(function, args.items, named, source, value)
        if kind is CellType:
            return self.cell_of(value, source)
        return None

    def _wrap_object(self: Tracer, value: Any, kind: type, source: Source | None) -> Value:  # type: ignore[misc]
        """Model an instance of any other class."""
        if isinstance(value, _IDENTITY) or kind is object:
            if source is not None:
                self.guards.add(GuardKind.IDENTITY, source, value)
        else:
            self._guard_type(kind, source)
        base: Value | None = None
        if issubclass(kind, dict) and self.find_in_class(kind, "__getitem__")[0] is dict.__getitem__:  # type: ignore[index]
            base = Dict(source=source, real=value)
        elif issubclass(kind, BaseException):
            base = self.wrap(value.args, source and self.sources.attribute(source, "args"))
        return Object(kind, value, source, base)

    def _guard_type(self: Tracer, kind: type, source: Source | None) -> None:  # type: ignore[misc]
        """Rely on the exact class."""
        if source is not None:
            self.guards.add(GuardKind.TYPE, source, kind)
            self.reference_sources.setdefault(id(kind), self.sources.type_of(source))

    def _guard_shape(self: Tracer, value: Any, source: Source | None) -> None:  # type: ignore[misc]
        """Rely on the class and length of a sequence."""
        self._guard_type(type(value), source)
        if source is not None:
            self.guards.add(GuardKind.LENGTH, source, len(value))

    def guard_identity(self: Tracer, function: Function) -> None:  # type: ignore[misc]
        """Rely on a function being this very object."""
        if function.source is not None and not (function.trusted() and function.source in self.trusted_sources):
            self.guards.add(GuardKind.IDENTITY, function.source, function.value)

    # -- without guards ------------------------------------------------------------------------------------------

    def constant(self: Tracer, value: Any) -> Value:  # type: ignore[misc]
        """Model a constant of a code object."""
        if type(value) in ATOMS:
            return self._atom(value)
        if type(value) is tuple:
            return Tuple([self.constant(item) for item in value])
        if isinstance(value, types.CodeType):
            return CodeValue(value)
        return self.wrap(value, None)

    def from_python(self: Tracer, value: Any) -> Value:  # type: ignore[misc]
        """Model the result of an operation: containers are new ones."""
        kind = type(value)
        if kind in ATOMS or self.extension.is_atom(kind):
            return self._atom(value)
        if kind is tuple:
            return Tuple([self.from_python(item) for item in value])
        if kind is list:
            return List([self.from_python(item) for item in value])
        if kind is dict:
            made = Dict()
            for key, item in value.items():
                made.store(self, self.key_of(key), self.key_value(key), self.from_python(item))
            return made
        if kind in (set, frozenset):
            return SetValue({self.key_of(item): self.key_value(item) for item in value}, kind)
        if kind is slice:
            return Slice(*[self.from_python(part) for part in (value.start, value.stop, value.step)])
        return self.wrap(value, None)

    def key_of(self: Tracer, key: Any) -> Hashable:  # type: ignore[misc]
        """Return the hash key of an existing key."""
        return self.key_value(key).hash_key(self)

    def key_value(self: Tracer, key: Any) -> Value:  # type: ignore[misc]
        """Model the key of an existing dict or set."""
        return key if isinstance(key, Value) else self.constant(key)

    def class_value(self: Tracer, cls: Any) -> ClassValue:  # type: ignore[misc]
        """Model a class that is the type of something already guarded."""
        return ClassValue(cls, self.reference_sources.get(id(cls)))

    def cell_of(self: Tracer, real: CellType, owner: Source | None) -> Cell:  # type: ignore[misc]
        """Return the one model of an existing cell; `owner` is where the cell itself is found."""
        known = self.known.get(id(real))
        if isinstance(known, Cell):
            return known
        content = None if owner is None else self.sources.attribute(owner, "cell_contents")
        made = Cell(real=real, source=content, owner=owner)
        self.known[id(real)] = made
        self.kept.append(real)
        return made

    def globals_of(self: Tracer, names: dict[str, Any], source: Source | None) -> Globals:  # type: ignore[misc]
        """Return the one model of a module's namespace."""
        known = self.known.get(id(names))
        if isinstance(known, Globals):
            return known
        made = Globals(names, source, frame=False)
        self.known[id(names)] = made
        self.kept.append(names)
        return made


def _slice_parts(value: slice, source: Source | None) -> list[tuple[Any, Source | None, str]]:
    return [(value.start, source, "start"), (value.stop, source, "stop"), (value.step, source, "step")]


_ = (weakref, is_trusted, NotConstantError)
