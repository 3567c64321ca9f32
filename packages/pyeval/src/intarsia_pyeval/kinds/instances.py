"""Instances of classes written in Python, and of classes written in C that have no model of their own."""

from __future__ import annotations

import collections
import types
from collections.abc import Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.codegen import native_method
from intarsia_pyeval.kinds import sets
from intarsia_pyeval.semantics import asking, calling, iteration, keys, lookup, special, storing, subclasses
from intarsia_pyeval.stores import dict_store
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.sequences import List, Tuple
from intarsia_pyeval.values.sets import SetValue

if TYPE_CHECKING:
    from intarsia_bytecode import Loader
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


_IN_PLACE = frozenset({"__iadd__", "__iand__", "__imul__", "__ior__", "__isub__", "__ixor__"})
_FILLING = frozenset({"__init__", "__ior__", "update"})
_USED_BY_ORDERED = ("__contains__", "__delitem__", "__getitem__", "__setitem__", "keys", "__missing__")
_READING_NAMES = """
    __add__ __contains__ __eq__ __ge__ __getitem__ __gt__ __iter__ __le__ __len__ __lt__ __mul__ __ne__ __or__
    __repr__ __reversed__ __ror__ __str__ copy count get index items keys values
"""
#: Existing instances of their subclasses are only stored to: other methods call each other, or make what is missing.
_ONLY_STORED_TO = (collections.OrderedDict, collections.defaultdict)
#: Methods of built-in containers that don't change them.
_READING = frozenset(_READING_NAMES.split())


@do.hash_key.rule(Object)
def hash_key(tx: Tracer, owner: Object) -> Hashable:
    """Objects with the default hash are keys by identity, others by what their class says."""
    hashed = lookup.object_hash_key(tx.identities, owner)
    return keys.evaluated_key(tx, owner) if hashed is None else hashed


@do.get_attribute.rule(Object)
def get_attribute(tx: Tracer, owner: Object, name: str) -> Value:
    """Look the attribute up."""
    return lookup.object_attribute(tx, owner, name)


@do.set_attribute.rule(Object)
def set_attribute(tx: Tracer, owner: Object, name: str, value: Value) -> None:
    """Set the attribute: by a property, by `__setattr__`, or plainly."""
    storing.object_set_attribute(tx, owner, name, value)


@do.delete_attribute.rule(Object)
def delete_attribute(tx: Tracer, owner: Object, name: str) -> None:
    """Delete the attribute."""
    storing.object_set_attribute(tx, owner, name, None)


@do.call.rule(Object)
def call(tx: Tracer, owner: Object, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call `__call__`."""
    return calling.call_object(tx, owner, args, keywords)


@do.call_method.rule(Object)
def call_method(tx: Tracer, owner: Object, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method that the class has from a base class written in C."""
    definition = tx.classes.find(owner.cls, name)
    raw = definition[0] if definition else None
    # a class may give a method of its base another name: `__setattr__ = dict.__setitem__`
    method = raw.__name__ if isinstance(raw, (types.WrapperDescriptorType, types.MethodDescriptorType)) else name
    return do.call_native(tx, owner, raw, method, args, keywords)


@do.call_native.rule(Object)
def call_native(tx: Tracer, owner: Object, raw: Any, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call the descriptor `raw` of a base class written in C."""
    home = getattr(raw, "__objclass__", None)
    if owner.base is not None and home is not None and issubclass(owner.base.type(), home) and home is not object:
        if owner.existing and name not in _READING:
            stored = name == "__setitem__" and home is owner.base.type()
            if not isinstance(owner.base, (Dict, List)) or (issubclass(owner.cls, _ONLY_STORED_TO) and not stored):
                raise Break("tracer.mutation", f"changing {owner.describe()} isn't modelled")
            tx.effects.changed(owner)
        hook = tx.classes.find(owner.cls, "__missing__") if issubclass(home, dict) else None
        if name == "__getitem__" and hook is not None and len(args) == 1 and not do.contains(tx, owner.base, args[0]):
            return special.special(tx, owner, "__missing__", args)
        if owner.cls is not home and _asks_back(tx, owner, home, name, args, keywords):
            raise Break("tracer.call", f"{home.__name__}.{name} of {owner.describe()} asks the subclass")
        answer = do.call_method(tx, owner.base, name, args, keywords)
        return owner if answer is owner.base and name in _IN_PLACE else answer
    result = storing.object_slot(tx, owner, raw, name, args, keywords)
    if result is None and owner.foreign is not None:
        raise Break(owner.foreign.code, f"{name!r} of {owner.foreign.what} is called")
    if result is None and issubclass(type(owner.value), types.GeneratorType):
        raise Break("tracer.iterator", f"{name!r} of a generator that was made outside of the frame is called")
    return do.call_method.default(tx, owner, name, args, keywords) if result is None else result


def _asks_back(tx: Tracer, owner: Object, home: Any, name: str, args: Sequence[Value], keywords: Keywords) -> bool:
    """Tell whether a method of a built-in class makes another of the subclass, or uses what that overrides."""
    if home is dict and name in ("__or__", "__ror__", "copy"):
        return not subclasses.plain_mapping(tx.classes, owner)
    if not issubclass(home, (collections.OrderedDict, collections.defaultdict)):
        return False
    if name in ("__or__", "__ror__", "__copy__", "copy"):
        return True
    overridden = any(tx.classes.asks_python(owner, each) for each in _USED_BY_ORDERED)
    return overridden and (name in ("pop", "popitem", "setdefault") or (name in _FILLING and bool(args or keywords)))


@do.truth.rule(Object)
def truth(tx: Tracer, owner: Object) -> bool:
    """Ask `__bool__`, then `__len__`."""
    return asking.object_truth(tx, owner)


@do.length.rule(Object)
def length(tx: Tracer, owner: Object) -> int:
    """Ask `__len__`."""
    return iteration.size_from(tx, special.special(tx, owner, "__len__", []))


@do.get_item.rule(Object)
def get_item(tx: Tracer, owner: Object, key: Value) -> Value:
    """Ask `__getitem__`."""
    return special.special(tx, owner, "__getitem__", [key])


@do.set_item.rule(Object)
def set_item(tx: Tracer, owner: Object, key: Value, value: Value) -> None:
    """Ask `__setitem__`."""
    special.special(tx, owner, "__setitem__", [key, value])


@do.delete_item.rule(Object)
def delete_item(tx: Tracer, owner: Object, key: Value) -> None:
    """Ask `__delitem__`."""
    special.special(tx, owner, "__delitem__", [key])


@do.contains.rule(Object)
def contains(tx: Tracer, owner: Object, item: Value) -> bool:
    """Ask `__contains__`, else iterate."""
    return asking.object_contains(tx, owner, item)


@do.iterate.rule(Object)
def iterate(tx: Tracer, owner: Object) -> Value:
    """Ask `__iter__`, else index from 0 on."""
    return asking.object_iterate(tx, owner)


@do.advance.rule(Object)
def advance(tx: Tracer, owner: Object) -> Value | None:
    """Ask `__next__`."""
    return asking.object_advance(tx, owner)


@do.unary.rule(Object)
def unary(tx: Tracer, owner: Object, op: str) -> Value:
    """Ask the special method."""
    return special.special(tx, owner, {"-": "__neg__", "+": "__pos__", "~": "__invert__"}[op], [])


@codegen.reconstruct.rule(Object)
def reconstruct(out: Builder, owner: Object) -> None:
    """Make the object without its constructor, then set what it holds."""
    if owner.value is not None:
        out.constant(owner.value)
        return
    _push_new(out, owner)


@codegen.emit_effects.rule(Object)
def emit_effects(out: Builder, owner: Object) -> None:
    """Set the attributes that were written."""
    if owner.value is not None:
        out.write_attributes(owner, owner.written)


def _push_new(out: Builder, owner: Object) -> None:
    """Push an instance made without its constructor, with its attributes."""
    cls = owner.cls
    args = owner.base.items if isinstance(owner.base, Tuple) else []
    out.call(
        lambda: out.emit("LOAD_CONST", native_method(cls, "__new__")),
        [lambda: out.constant(cls), *[partial(out.load, arg) for arg in args]],
    )
    out.remember(owner)
    if issubclass(cls, BaseException):
        loads: list[Loader] = [partial(out.load, arg) for arg in args]
        out.call_unbound(native_method(cls, "__init__"), owner, loads)
    if isinstance(owner.base, Dict):
        for key, item in dict_store.entries(out.tx, owner.base).values():
            parts = [partial(out.load, key), partial(out.load, item)]
            out.call_unbound(owner.base.cls.__setitem__, owner, parts)
    elif isinstance(owner.base, List):
        items = owner.base.items
        out.call_unbound(list.extend, owner, [lambda: out.build_list(items)])
    elif isinstance(owner.base, SetValue):
        sets.replay(out, owner.base.recipe, lambda: out.load(owner), past_overrides=True)
    out.write_attributes(owner, owner.written)
