"""From Python objects to models, with the guards that a model relies on."""

from __future__ import annotations

import collections
import enum
import functools
import gc
import sys
import types
from collections.abc import Hashable
from functools import partial
from types import CellType
from typing import TYPE_CHECKING, Any

from intarsia_ir.guards import AliasingGuard, ConstantGuard, IdentityGuard, LengthGuard, TypeGuard
from intarsia_ir.records import Source
from intarsia_pyeval import do
from intarsia_pyeval.descriptors import is_plain_lookup
from intarsia_pyeval.semantics.keys import check_existing
from intarsia_pyeval.state.live import Live
from intarsia_pyeval.stores import dict_store
from intarsia_pyeval.trust import is_trusted
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import ATOMS, FALSE, NONE, TRUE, Const
from intarsia_pyeval.values.deques import Deque
from intarsia_pyeval.values.functions import BoundMethod, Cell, Function, Globals, Partial
from intarsia_pyeval.values.made import Held, MadeClass
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import Builtin, ClassValue, CodeValue, ModuleValue, Object
from intarsia_pyeval.values.sequences import List, Slice, Tuple
from intarsia_pyeval.values.sets import SetValue

if TYPE_CHECKING:
    from intarsia_pyeval.sources import Guards
    from intarsia_pyeval.tracer import Tracer

__all__ = ["Models"]


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


class Models(Live):
    """Models existing objects: each is modelled once, with guards on what its model relies on.

    Args:
        tx: The capture, for models and plug-ins to ask.
    """

    def __init__(self, tx: Tracer) -> None:
        super().__init__()
        self._tx = tx
        self._functions: dict[tuple[Any, str, str], Value] = {}  # class, name, part of a property -> the function there

    def wrap(self, value: Any, source: Source | None) -> Value:
        """Model an existing object found at `source`; None when no guard is needed to find it again."""
        tx = self._tx
        kind = type(value)
        if kind in ATOMS or tx.extension.is_atom(kind):
            if source is not None:
                changing = tx.extension.number(tx, value, source) if kind in (int, float, str) else None
                if changing is not None:
                    return changing
                tx.guards.add(ConstantGuard, source, value)
                if kind in (float, complex) and value != value:
                    return Const(value, source)
            return _atom(value)
        earlier = self.known(value)
        if earlier is not None:
            if kind is not Held:  # what a class made here holds is found wherever the class is
                _found_again(tx.guards, earlier, source)
            return earlier
        model = tx.extension.wrap(tx, value, source)
        if model is None:
            model = _wrap_plain(tx, value, kind, source)
        if model.shared and model.identity() is value and not isinstance(model, Function):
            self._known[id(value)] = model
        self.keep(value)
        return model

    def item(self, value: Any, owner: Source | None, index: int) -> Value:
        """Model an item of an existing sequence that is found at `owner`."""
        return self.wrap(value, None if owner is None else self._tx.sources.item(owner, index))

    def constant(self, value: Any) -> Value:
        """Model a constant of a code object."""
        if type(value) in ATOMS:
            return _atom(value)
        if type(value) is tuple:
            return Tuple([self.constant(item) for item in value])
        if isinstance(value, types.CodeType):
            return CodeValue(value)
        return self.wrap(value, None)

    def from_python(self, value: Any) -> Value:
        """Model the result of an operation: containers are new ones."""
        tx = self._tx
        kind = type(value)
        if kind in ATOMS or tx.extension.is_atom(kind):
            return _atom(value)
        if kind is tuple:
            return Tuple([self.from_python(item) for item in value])
        if kind is list:
            return List([self.from_python(item) for item in value])
        if kind is dict:
            mapping = Dict()
            for key, item in value.items():
                dict_store.store(tx, mapping, self.key(key), self.key_value(key), self.from_python(item))
            return mapping
        if kind in (set, frozenset):
            return SetValue({self.key(item): self.key_value(item) for item in value}, kind, mirror=value)
        if kind is slice:
            return Slice([self.from_python(part) for part in (value.start, value.stop, value.step)])
        return self.wrap(value, None)

    def key(self, key: Any) -> Hashable:
        """Return the hash key of an existing key."""
        hashed = do.hash_key(self._tx, self.key_value(key))
        check_existing(hashed)
        return hashed

    def key_value(self, key: Any) -> Value:
        """Model the key of an existing dict or set."""
        if isinstance(key, Value):
            return key
        return Tuple(real=key, model=self.item) if type(key) is tuple else self.constant(key)

    def class_value(self, cls: Any) -> ClassValue:
        """Model a class that is the type of something already guarded."""
        model = self.known(cls)
        if isinstance(model, MadeClass):
            return model
        return ClassValue(cls, self._tx.classes.place(cls))

    def cell(self, real: CellType, owner: Source | None) -> Cell:
        """Return the one model of an existing cell; `owner` is where the cell itself is found."""
        tx = self._tx
        model = self.known(real)
        if isinstance(model, Cell):
            return model
        content = None if owner is None else tx.sources.attribute(owner, "cell_contents")
        modelled = Cell(real=real, source=content, owner=owner)
        self.adopt(real, modelled)
        return modelled

    def namespace(self, names: dict[str, Any], source: Source | None) -> Globals:
        """Return the one model of a module's namespace."""
        tx = self._tx
        model = self.known(names)
        if isinstance(model, Globals):
            return model
        name = names.get("__name__")
        if source is None and is_trusted(name) and name in sys.modules:
            source = tx.sources.attribute(tx.sources.module(str(name)), "__dict__")
        modelled = Globals(names, source, frame=False)
        self.adopt(names, modelled)
        return modelled

    def class_function(self, owner: Value, cls: Any, name: str, part: str = "") -> Value:
        """Return the function that a class defines, or a part of its property, with a source to guard it by."""
        tx = self._tx
        key = (cls, name, part)
        function = self._functions.get(key)
        if function is not None:
            return function
        definition = tx.classes.find(cls, name)
        assert definition is not None
        raw, index = definition
        value = getattr(raw, part) if part else raw
        trusted = is_trusted(getattr(value, "__module__", None))
        base = tx.classes.place_of(owner, cls)
        source = None
        if base is not None and not trusted and not part and issubclass(type(raw), types.FunctionType):
            source = tx.sources.attribute(base, name)
        else:
            tx.classes.rely_on_passing_over(owner, cls, index, name)
            home = None if trusted else tx.classes.place_in_order(owner, cls, index)
            if home is not None:
                source = tx.sources.item(tx.sources.attribute(home, "__dict__"), name)
                source = tx.sources.attribute(source, part) if part else source
        modelled = self.wrap(value, source)
        self._functions[key] = modelled
        return modelled


def _atom(value: Any) -> Const:
    """Return the model of an atom."""
    if value is None:
        return NONE
    if value is True:
        return TRUE
    return FALSE if value is False else Const(value)


def _found_again(guards: Guards, model: Value, source: Source | None) -> None:
    """An object turned up at a second place, or as a constant: rely on both being the same."""
    if source is model.source:
        return
    if source is None:
        assert model.source is not None
        guards.add(IdentityGuard, model.source, model.identity())
    elif model.source is None:
        guards.add(IdentityGuard, source, model.identity())
        model.source = source  # what is read of it from now on can be found, and relied on
    else:
        guards.add(AliasingGuard, source, model.source, True)


def _wrap_plain(tx: Tracer, value: Any, kind: type, source: Source | None) -> Value:
    """Model an object that the plug-in doesn't claim."""
    if kind is types.FunctionType:
        return Function(value, source)
    if kind is types.CodeType:
        return CodeValue(value, source)
    if kind is types.BuiltinFunctionType and source is not None and _is_bound(value):
        return _bound_method(tx, value, source)
    if issubclass(kind, (type, types.ModuleType, *_BUILTINS)):
        return _wrap_reference(tx, value, kind, source)
    if kind is types.MappingProxyType and type(gc.get_referents(value)[0]) not in _DICTS:
        return _wrap_object(tx, value, kind, source)
    if kind in (tuple, list, collections.deque) or kind in _DICTS or kind in (set, frozenset, slice):
        return _wrap_container(tx, value, kind, source)
    if _is_named_tuple(kind):
        _guard_shape(tx, value, source)
        return Tuple(cls=kind, source=source, real=value, model=tx.live.item)
    return _wrap_bound(tx, value, kind, source) or _wrap_object(tx, value, kind, source)


def _is_named_tuple(kind: Any) -> bool:
    """Tell whether a class is that of named tuples or struct sequences, whose items guards fetch as those of tuples."""
    if not issubclass(kind, tuple) or not (hasattr(kind, "_fields") or hasattr(kind, "n_sequence_fields")):
        return False
    return kind.__getitem__ is tuple.__getitem__ and kind.__len__ is tuple.__len__


def _is_bound(value: Any) -> bool:
    """Tell whether a built-in method belongs to an instance: then it is another object each time it is looked up."""
    owner = value.__self__
    if owner is None or isinstance(owner, (types.ModuleType, type)):
        return False
    return isinstance(getattr(type(owner), value.__name__, None), _METHODS)


def _bound_method(tx: Tracer, value: Any, source: Source) -> Value:
    """Model a built-in method of an instance by both."""
    _guard_type(tx, types.BuiltinFunctionType, source)
    tx.guards.add(ConstantGuard, tx.sources.attribute(source, "__name__"), value.__name__)
    return BoundBuiltin(tx.live.wrap(value.__self__, tx.sources.attribute(source, "__self__")), value.__name__)


def _wrap_reference(tx: Tracer, value: Any, kind: type, source: Source | None) -> Value:
    """Model a class, module or built-in callable: only its identity counts."""
    if source is not None:
        tx.classes.note(value, source)
        tx.guards.add(IdentityGuard, source, value)
    if issubclass(kind, type):
        return ClassValue(value, source)
    if issubclass(kind, types.ModuleType):
        return ModuleValue(value, source)
    owner = getattr(value, "__self__", None)
    if kind is types.BuiltinFunctionType and isinstance(getattr(type(owner), value.__name__, None), _METHODS):
        return BoundBuiltin(tx.live.wrap(owner, None), value.__name__)
    raw = tx.extension.class_method(value)
    if raw is not None:
        receiver = None if source is None else tx.sources.attribute(source, "__self__")
        return BoundBuiltin(ClassValue(owner, receiver), value.__name__, raw)
    return Builtin(value, source)


def _wrap_container(tx: Tracer, value: Any, kind: type, source: Source | None) -> Value:
    """Model a built-in container."""
    if kind is slice:
        parts = [tx.live.wrap(p, s and tx.sources.attribute(s, n)) for p, s, n in _slice_parts(value, source)]
        _guard_type(tx, kind, source)
        return Slice(parts, source)
    if kind in (set, frozenset):
        elements = {tx.live.key(item): tx.live.key_value(item) for item in value}
        if source is not None:
            tx.guards.add(ConstantGuard, source, kind(value))
        return SetValue(elements, kind, source, value)
    if kind in _DICTS:
        _guard_type(tx, kind, source)
        factory = getattr(value, "default_factory", None)
        factory_source = source and tx.sources.attribute(source, "default_factory")
        model = tx.live.wrap(factory, factory_source) if kind is collections.defaultdict else NONE
        return Dict(cls=kind, source=source, real=value, factory=model)
    if kind is list:
        _guard_type(tx, kind, source)
        rely = None if source is None else partial(tx.guards.add, LengthGuard, source, len(value))
        length = None if source is None else partial(tx.extension.number, tx, len(value), tx.sources.length_of(source))
        return List(source=source, real=value, model=tx.live.item, rely=rely, length=length)
    _guard_shape(tx, value, source)
    if kind is tuple:
        return Tuple(source=source, real=value, model=tx.live.item)
    if source is not None:
        tx.guards.add(ConstantGuard, tx.sources.attribute(source, "maxlen"), value.maxlen)
    return Deque((), value.maxlen, source, value, tx.live.item)


def _wrap_bound(tx: Tracer, value: Any, kind: type, source: Source | None) -> Value | None:
    """Model bound methods, partial objects and cells."""
    if kind is types.MethodType:
        _guard_type(tx, kind, source)
        function = tx.live.wrap(value.__func__, source and tx.sources.attribute(source, "__func__"))
        return BoundMethod(
            function, tx.live.wrap(value.__self__, source and tx.sources.attribute(source, "__self__")), source
        )
    if kind is types.MethodWrapperType:
        return BoundBuiltin(
            tx.live.wrap(value.__self__, source and tx.sources.attribute(source, "__self__")), value.__name__
        )
    if kind is functools.partial:
        _guard_type(tx, kind, source)
        part = (lambda name: tx.sources.attribute(source, name)) if source else (lambda name: None)
        function = tx.live.wrap(value.func, part("func"))
        args = tx.live.wrap(value.args, part("args"))
        keywords = tx.live.wrap(value.keywords, part("keywords"))
        assert isinstance(args, Tuple) and isinstance(keywords, Dict)
        named = {str(k): v for k, (_, v) in dict_store.entries(tx, keywords).items()}
        return Partial(function, args.items, named, source, value)
    if kind is CellType:
        return tx.live.cell(value, source)
    return None


def _wrap_object(tx: Tracer, value: Any, kind: type, source: Source | None) -> Value:
    """Model an instance of any other class."""
    if issubclass(kind, _IDENTITY) or kind is object:
        if source is not None:
            tx.guards.add(IdentityGuard, source, value)
    elif source is not None and tx.extension.rely_on_made_class(tx, kind, source):
        tx.classes.note_alike(kind, source)
    else:
        _guard_type(tx, kind, source)
    base: Value | None = None
    if issubclass(kind, dict):
        base = Dict(cls=collections.OrderedDict if issubclass(kind, collections.OrderedDict) else dict, real=value)
        base.source = source
    elif issubclass(kind, list) and kind.__getitem__ is list.__getitem__ and kind.__len__ is list.__len__:
        rely = None if source is None else partial(tx.guards.add, LengthGuard, source, len(value))
        base = List(source=source, real=value, model=tx.live.item, rely=rely)
    elif issubclass(kind, BaseException):
        plain = is_plain_lookup(kind)
        args = source and (tx.sources.attribute if plain else tx.sources.plain_attribute)(source, "args")
        base = tx.live.wrap(BaseException.args.__get__(value), args)  # type: ignore[attr-defined]
    model = Object(kind, value, source, base)
    model.foreign = tx.extension.foreign(value)
    return model


def _guard_type(tx: Tracer, kind: type, source: Source | None) -> None:
    """Rely on the exact class."""
    if source is not None:
        tx.guards.add(TypeGuard, source, kind)
        tx.classes.note(kind, tx.sources.type_of(source))


def _guard_shape(tx: Tracer, value: Any, source: Source | None) -> None:
    """Rely on the class and length of a sequence."""
    _guard_type(tx, type(value), source)
    if source is not None:
        tx.guards.add(LengthGuard, source, len(value))


def _slice_parts(value: slice, source: Source | None) -> list[tuple[Any, Source | None, str]]:
    return [(value.start, source, "start"), (value.stop, source, "stop"), (value.step, source, "step")]
