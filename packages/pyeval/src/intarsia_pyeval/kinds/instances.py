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
def hash_key(tx: Tracer, x: Object) -> Hashable:
    """Objects with the default hash are keys by identity, others by what their class says."""
    found = lookup.object_hash_key(tx.identities, x)
    return keys.evaluated_key(tx, x) if found is None else found


@do.get_attribute.rule(Object)
def get_attribute(tx: Tracer, x: Object, name: str) -> Value:
    """Look the attribute up."""
    return lookup.object_attribute(tx, x, name)


@do.set_attribute.rule(Object)
def set_attribute(tx: Tracer, x: Object, name: str, value: Value) -> None:
    """Set the attribute: by a property, by `__setattr__`, or plainly."""
    storing.object_set_attribute(tx, x, name, value)


@do.delete_attribute.rule(Object)
def delete_attribute(tx: Tracer, x: Object, name: str) -> None:
    """Delete the attribute."""
    storing.object_set_attribute(tx, x, name, None)


@do.call.rule(Object)
def call(tx: Tracer, x: Object, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call `__call__`."""
    return calling.call_object(tx, x, args, keywords)


@do.call_method.rule(Object)
def call_method(tx: Tracer, x: Object, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method that the class has from a base class written in C."""
    found = tx.classes.find(x.cls, name)
    raw = found[0] if found else None
    # a class may give a method of its base another name: `__setattr__ = dict.__setitem__`
    own = raw.__name__ if isinstance(raw, (types.WrapperDescriptorType, types.MethodDescriptorType)) else name
    return do.call_native(tx, x, raw, own, args, keywords)


@do.call_native.rule(Object)
def call_native(tx: Tracer, x: Object, raw: Any, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call the descriptor `raw` of a base class written in C."""
    home = getattr(raw, "__objclass__", None)
    if x.base is not None and home is not None and issubclass(x.base.type(), home) and home is not object:
        if x.existing and name not in _READING:
            stored = name == "__setitem__" and home is x.base.type()
            if not isinstance(x.base, (Dict, List)) or (issubclass(x.cls, _ONLY_STORED_TO) and not stored):
                raise Break("tracer.mutation", f"changing {x.describe()} isn't modelled")
            tx.effects.changed(x)
        hook = tx.classes.find(x.cls, "__missing__") if issubclass(home, dict) else None
        if name == "__getitem__" and hook is not None and len(args) == 1 and not do.contains(tx, x.base, args[0]):
            return special.special(tx, x, "__missing__", args)
        if x.cls is not home and _asks_back(tx, x, home, name, args, keywords):
            raise Break("tracer.call", f"{home.__name__}.{name} of {x.describe()} asks the subclass")
        answer = do.call_method(tx, x.base, name, args, keywords)
        return x if answer is x.base and name in _IN_PLACE else answer
    found = storing.object_slot(tx, x, raw, name, args, keywords)
    if found is None and x.foreign is not None:
        raise Break(x.foreign.code, f"{name!r} of {x.foreign.what} is called")
    if found is None and issubclass(type(x.value), types.GeneratorType):
        raise Break("tracer.iterator", f"{name!r} of a generator that was made outside of the frame is called")
    return do.call_method.default(tx, x, name, args, keywords) if found is None else found


def _asks_back(tx: Tracer, x: Object, home: Any, name: str, args: Sequence[Value], keywords: Keywords) -> bool:
    """Tell whether a method of a built-in class makes another of the subclass, or uses what that overrides."""
    if home is dict and name in ("__or__", "__ror__", "copy"):
        return not subclasses.plain_mapping(tx.classes, x)
    if not issubclass(home, (collections.OrderedDict, collections.defaultdict)):
        return False
    if name in ("__or__", "__ror__", "__copy__", "copy"):
        return True
    own = any(tx.classes.asks_python(x, each) for each in _USED_BY_ORDERED)
    return own and (name in ("pop", "popitem", "setdefault") or (name in _FILLING and bool(args or keywords)))


@do.truth.rule(Object)
def truth(tx: Tracer, x: Object) -> bool:
    """Ask `__bool__`, then `__len__`."""
    return asking.object_truth(tx, x)


@do.length.rule(Object)
def length(tx: Tracer, x: Object) -> int:
    """Ask `__len__`."""
    return iteration.size_from(tx, special.special(tx, x, "__len__", []))


@do.get_item.rule(Object)
def get_item(tx: Tracer, x: Object, key: Value) -> Value:
    """Ask `__getitem__`."""
    return special.special(tx, x, "__getitem__", [key])


@do.set_item.rule(Object)
def set_item(tx: Tracer, x: Object, key: Value, value: Value) -> None:
    """Ask `__setitem__`."""
    special.special(tx, x, "__setitem__", [key, value])


@do.delete_item.rule(Object)
def delete_item(tx: Tracer, x: Object, key: Value) -> None:
    """Ask `__delitem__`."""
    special.special(tx, x, "__delitem__", [key])


@do.contains.rule(Object)
def contains(tx: Tracer, x: Object, item: Value) -> bool:
    """Ask `__contains__`, else iterate."""
    return asking.object_contains(tx, x, item)


@do.iterate.rule(Object)
def iterate(tx: Tracer, x: Object) -> Value:
    """Ask `__iter__`, else index from 0 on."""
    return asking.object_iterate(tx, x)


@do.advance.rule(Object)
def advance(tx: Tracer, x: Object) -> Value | None:
    """Ask `__next__`."""
    return asking.object_advance(tx, x)


@do.unary.rule(Object)
def unary(tx: Tracer, x: Object, op: str) -> Value:
    """Ask the special method."""
    return special.special(tx, x, {"-": "__neg__", "+": "__pos__", "~": "__invert__"}[op], [])


@codegen.reconstruct.rule(Object)
def reconstruct(out: Builder, x: Object) -> None:
    """Make the object without its constructor, then set what it holds."""
    if x.value is not None:
        out.constant(x.value)
        return
    _push_new(out, x)


@codegen.emit_effects.rule(Object)
def emit_effects(out: Builder, x: Object) -> None:
    """Set the attributes that were written."""
    if x.value is not None:
        out.write_attributes(x, x.written)


def _push_new(out: Builder, x: Object) -> None:
    """Push an instance made without its constructor, with its attributes."""
    cls = x.cls
    args = x.base.items if isinstance(x.base, Tuple) else []
    out.call(
        lambda: out.emit("LOAD_CONST", native_method(cls, "__new__")),
        [lambda: out.constant(cls), *[partial(out.load, arg) for arg in args]],
    )
    out.remember(x)
    if issubclass(cls, BaseException):
        loads: list[Loader] = [partial(out.load, arg) for arg in args]
        out.call_unbound(native_method(cls, "__init__"), x, loads)
    if isinstance(x.base, Dict):
        for key, item in dict_store.entries(out.tx, x.base).values():
            parts = [partial(out.load, key), partial(out.load, item)]
            out.call_unbound(x.base.cls.__setitem__, x, parts)
    elif isinstance(x.base, List):
        items = x.base.items
        out.call_unbound(list.extend, x, [lambda: out.build_list(items)])
    elif isinstance(x.base, SetValue):
        sets.replay(out, x.base.recipe, lambda: out.load(x), past_overrides=True)
    out.write_attributes(x, x.written)
