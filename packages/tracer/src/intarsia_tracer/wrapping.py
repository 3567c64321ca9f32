"""From Python objects to models, with the guards that a model relies on."""

from __future__ import annotations

import collections
import enum
import functools
import gc
import sys
import types
from collections.abc import Hashable
from types import CellType
from typing import TYPE_CHECKING, Any

from intarsia_ir.records import ArgumentSource, DictItemSource, GuardKind, ItemSource, Source
from intarsia_tracer.descriptors import is_plain_lookup
from intarsia_tracer.trust import is_trusted
from intarsia_tracer.values.base import Value
from intarsia_tracer.values.constants import ATOMS, FALSE, NONE, TRUE, Const
from intarsia_tracer.values.deques import Deque
from intarsia_tracer.values.functions import BoundBuiltin, BoundMethod, Cell, Function, Globals, Partial
from intarsia_tracer.values.mappings import Dict
from intarsia_tracer.values.objects import Builtin, ClassValue, CodeValue, ModuleValue, Object
from intarsia_tracer.values.sequences import List, Slice, Tuple
from intarsia_tracer.values.sets import SetValue

if TYPE_CHECKING:
    from intarsia_tracer.tracer import Tracer

__all__ = [
    "cell_of",
    "class_value",
    "constant",
    "from_python",
    "globals_of",
    "guard_identity",
    "key_of",
    "key_value",
    "wrap",
]

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


def wrap(tx: Tracer, value: Any, source: Source | None) -> Value:
    """Model an existing object found at `source`; None when no guard is needed to find it again."""
    kind = type(value)
    if kind in ATOMS or tx.extension.is_atom(kind):
        if source is not None:
            found = _symbolic(tx, value, kind, source)
            if found is not None:
                return found
            tx.guards.add(GuardKind.CONSTANT, source, value)
            if kind in (float, complex) and value != value:
                return Const(value, source)
        return _atom(tx, value)
    known = tx.known.get(id(value))
    if known is not None:
        _found_again(tx, known, source)
        return known
    found = tx.extension.wrap(tx, value, source)
    if found is None:
        found = _wrap_plain(tx, value, kind, source)
    if found.shared and found.identity() is value and not isinstance(found, Function):
        tx.known[id(value)] = found
    tx.kept.append(value)
    return found


def _symbolic(tx: Tracer, value: Any, kind: type, source: Source) -> Value | None:
    """Model a number that is no constant: one that changed before, or any argument where every number is a symbol."""
    if kind not in (int, float) or not (tx.symbolic.numbers or tx.symbolic.every):
        return None
    if source in tx.symbolic.numbers or (tx.symbolic.every and _is_argument(source)):
        return tx.extension.number(tx, value, source)
    return None


def _is_argument(source: Source) -> bool:
    """Tell whether something is an argument, or an item of one."""
    while isinstance(source, (ItemSource, DictItemSource)):
        source = source.base
    return isinstance(source, ArgumentSource)


def _atom(tx: Tracer, value: Any) -> Const:
    """Return the model of an atom."""
    if value is None:
        return NONE
    if value is True:
        return TRUE
    return FALSE if value is False else Const(value)


def _found_again(tx: Tracer, known: Value, source: Source | None) -> None:
    """An object turned up at a second place, or as a constant: rely on both being the same."""
    if source is known.source:
        return
    if source is None:
        tx.guards.add(GuardKind.IDENTITY, known.source, known.identity())
    elif known.source is None:
        tx.guards.add(GuardKind.IDENTITY, source, known.identity())
        known.source = source  # what is read of it from now on can be found, and relied on
    else:
        tx.guards.add(GuardKind.ALIASING, source, (known.source, True))


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
        return Tuple(cls=kind, source=source, real=value, tx=tx)
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
    tx.guards.add(GuardKind.CONSTANT, tx.sources.attribute(source, "__name__"), value.__name__)
    return BoundBuiltin(tx.wrap(value.__self__, tx.sources.attribute(source, "__self__")), value.__name__)


def _wrap_reference(tx: Tracer, value: Any, kind: type, source: Source | None) -> Value:
    """Model a class, module or built-in callable: only its identity counts."""
    if source is not None:
        tx.reference_sources.setdefault(id(value), source)
        tx.guards.add(GuardKind.IDENTITY, source, value)
    if issubclass(kind, type):
        return ClassValue(value, source)
    if issubclass(kind, types.ModuleType):
        return ModuleValue(value, source)
    owner = getattr(value, "__self__", None)
    if kind is types.BuiltinFunctionType and isinstance(getattr(type(owner), value.__name__, None), _METHODS):
        return BoundBuiltin(tx.wrap(owner, None), value.__name__)
    raw = tx.extension.class_method(value)
    if raw is not None:
        found = None if source is None else tx.sources.attribute(source, "__self__")
        return BoundBuiltin(ClassValue(owner, found), value.__name__, raw)
    return Builtin(value, source)


def _wrap_container(tx: Tracer, value: Any, kind: type, source: Source | None) -> Value:
    """Model a built-in container."""
    if kind is slice:
        parts = [tx.wrap(p, s and tx.sources.attribute(s, n)) for p, s, n in _slice_parts(value, source)]
        _guard_type(tx, kind, source)
        return Slice(parts, source)
    if kind in (set, frozenset):
        elements = {tx.key_of(item): tx.key_value(item) for item in value}
        if source is not None:
            tx.guards.add(GuardKind.CONSTANT, source, kind(value))
        return SetValue(elements, kind, source, value)
    if kind in _DICTS:
        _guard_type(tx, kind, source)
        factory = getattr(value, "default_factory", None)
        factory_source = source and tx.sources.attribute(source, "default_factory")
        model = tx.wrap(factory, factory_source) if kind is collections.defaultdict else NONE
        return Dict(cls=kind, source=source, real=value, factory=model)
    _guard_shape(tx, value, source)
    if kind is tuple:
        return Tuple(source=source, real=value, tx=tx)
    if kind is collections.deque:
        if source is not None:
            tx.guards.add(GuardKind.CONSTANT, tx.sources.attribute(source, "maxlen"), value.maxlen)
        return Deque((), value.maxlen, source, value, tx)
    return List(source=source, real=value, tx=tx)


def _wrap_bound(tx: Tracer, value: Any, kind: type, source: Source | None) -> Value | None:
    """Model bound methods, partial objects and cells."""
    if kind is types.MethodType:
        _guard_type(tx, kind, source)
        function = tx.wrap(value.__func__, source and tx.sources.attribute(source, "__func__"))
        return BoundMethod(
            function, tx.wrap(value.__self__, source and tx.sources.attribute(source, "__self__")), source
        )
    if kind is types.MethodWrapperType:
        return BoundBuiltin(
            tx.wrap(value.__self__, source and tx.sources.attribute(source, "__self__")), value.__name__
        )
    if kind is functools.partial:
        _guard_type(tx, kind, source)
        part = (lambda name: tx.sources.attribute(source, name)) if source else (lambda name: None)
        function = tx.wrap(value.func, part("func"))
        args = tx.wrap(value.args, part("args"))
        keywords = tx.wrap(value.keywords, part("keywords"))
        assert isinstance(args, Tuple) and isinstance(keywords, Dict)
        named = {str(k): v for k, (_, v) in keywords.entries(tx).items()}
        return Partial(function, args.items, named, source, value)
    if kind is CellType:
        return tx.cell_of(value, source)
    return None


def _wrap_object(tx: Tracer, value: Any, kind: type, source: Source | None) -> Value:
    """Model an instance of any other class."""
    if issubclass(kind, _IDENTITY) or kind is object:
        if source is not None:
            tx.guards.add(GuardKind.IDENTITY, source, value)
    else:
        _guard_type(tx, kind, source)
    base: Value | None = None
    if issubclass(kind, dict):
        base = Dict(cls=collections.OrderedDict if issubclass(kind, collections.OrderedDict) else dict, real=value)
        base.source = source
    elif issubclass(kind, BaseException):
        plain = is_plain_lookup(kind)
        args = source and (tx.sources.attribute if plain else tx.sources.plain_attribute)(source, "args")
        base = tx.wrap(BaseException.args.__get__(value), args)  # type: ignore[attr-defined]
    made = Object(kind, value, source, base)
    made.foreign = tx.extension.foreign(value)
    return made


def _guard_type(tx: Tracer, kind: type, source: Source | None) -> None:
    """Rely on the exact class."""
    if source is not None:
        tx.guards.add(GuardKind.TYPE, source, kind)
        tx.reference_sources.setdefault(id(kind), tx.sources.type_of(source))


def _guard_shape(tx: Tracer, value: Any, source: Source | None) -> None:
    """Rely on the class and length of a sequence."""
    _guard_type(tx, type(value), source)
    if source is not None:
        tx.guards.add(GuardKind.LENGTH, source, len(value))


def guard_identity(tx: Tracer, function: Function) -> None:
    """Rely on a function being this very object."""
    if function.source is not None and not (function.trusted() and function.source in tx.trusted_sources):
        tx.guards.add(GuardKind.IDENTITY, function.source, function.value)


# -- without guards ------------------------------------------------------------------------------------------


def constant(tx: Tracer, value: Any) -> Value:
    """Model a constant of a code object."""
    if type(value) in ATOMS:
        return _atom(tx, value)
    if type(value) is tuple:
        return Tuple([tx.constant(item) for item in value])
    if isinstance(value, types.CodeType):
        return CodeValue(value)
    return tx.wrap(value, None)


def from_python(tx: Tracer, value: Any) -> Value:
    """Model the result of an operation: containers are new ones."""
    kind = type(value)
    if kind in ATOMS or tx.extension.is_atom(kind):
        return _atom(tx, value)
    if kind is tuple:
        return Tuple([tx.from_python(item) for item in value])
    if kind is list:
        return List([tx.from_python(item) for item in value])
    if kind is dict:
        made = Dict()
        for key, item in value.items():
            made.store(tx, tx.key_of(key), tx.key_value(key), tx.from_python(item))
        return made
    if kind in (set, frozenset):
        return SetValue({tx.key_of(item): tx.key_value(item) for item in value}, kind, mirror=value)
    if kind is slice:
        return Slice([tx.from_python(part) for part in (value.start, value.stop, value.step)])
    return tx.wrap(value, None)


def key_of(tx: Tracer, key: Any) -> Hashable:
    """Return the hash key of an existing key."""
    return tx.key_value(key).hash_key(tx)


def key_value(tx: Tracer, key: Any) -> Value:
    """Model the key of an existing dict or set."""
    if isinstance(key, Value):
        return key
    return Tuple(real=key, tx=tx) if type(key) is tuple else tx.constant(key)


def class_value(tx: Tracer, cls: Any) -> ClassValue:
    """Model a class that is the type of something already guarded."""
    return ClassValue(cls, tx.reference_sources.get(id(cls)))


def cell_of(tx: Tracer, real: CellType, owner: Source | None) -> Cell:
    """Return the one model of an existing cell; `owner` is where the cell itself is found."""
    known = tx.known.get(id(real))
    if isinstance(known, Cell):
        return known
    content = None if owner is None else tx.sources.attribute(owner, "cell_contents")
    made = Cell(real=real, source=content, owner=owner)
    tx.known[id(real)] = made
    tx.kept.append(real)
    return made


def globals_of(tx: Tracer, names: dict[str, Any], source: Source | None) -> Globals:
    """Return the one model of a module's namespace."""
    known = tx.known.get(id(names))
    if isinstance(known, Globals):
        return known
    name = names.get("__name__")
    if source is None and is_trusted(name) and name in sys.modules:
        source = tx.sources.attribute(tx.sources.module(str(name)), "__dict__")
    made = Globals(names, source, frame=False)
    tx.known[id(names)] = made
    tx.kept.append(names)
    return made


def _slice_parts(value: slice, source: Source | None) -> list[tuple[Any, Source | None, str]]:
    return [(value.start, source, "start"), (value.stop, source, "stop"), (value.step, source, "step")]
