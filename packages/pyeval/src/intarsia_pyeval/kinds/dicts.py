"""`dict`, OrderedDict, defaultdict and mappingproxy."""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_pyeval.semantics import iteration, methods, operators
from intarsia_pyeval.stores import dict_store
from intarsia_pyeval.values.base import Keywords, Value, defines
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, boolean, is_none
from intarsia_pyeval.values.mappings import Dict, DictView
from intarsia_pyeval.values.sequences import Tuple
from intarsia_pyeval.values.signatures import arity, named

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.state.raising import Raising
    from intarsia_pyeval.tracer import Tracer

__all__ = ["METHODS", "miss"]


@do.truth.rule(Dict)
def truth(tx: Tracer, mapping: Dict) -> bool:
    """Tell whether there are entries."""
    return bool(dict_store.entries(tx, mapping))


@do.length.rule(Dict)
def length(tx: Tracer, mapping: Dict) -> int:
    """Return the number of entries."""
    return len(dict_store.entries(tx, mapping))


@do.contains.rule(Dict)
def contains(tx: Tracer, mapping: Dict, item: Value) -> bool:
    """Look the key up."""
    return dict_store.find(tx, mapping, do.hash_key(tx, item)) is not None


@do.get_item.rule(Dict)
def get_item(tx: Tracer, mapping: Dict, key: Value) -> Value:
    """Look the key up; a defaultdict makes what is missing."""
    value = dict_store.find(tx, mapping, do.hash_key(tx, key))
    if value is not None:
        return value
    if not is_none(mapping.factory):
        default = do.call(tx, mapping.factory, [], {})
        do.set_item(tx, mapping, key, default)
        return default
    tx.raising.throw(KeyError, [key])


@do.iterate.rule(Dict)
def iterate(tx: Tracer, mapping: Dict) -> Value:
    """Iterate over the keys."""
    return iteration.iterator_over(tx, DictView(mapping, "keys"))


@do.get_attribute.rule(Dict)
def get_attribute(tx: Tracer, mapping: Dict, name: str) -> Value:
    """Return a method."""
    if name == "default_factory" and mapping.cls is collections.defaultdict:
        return mapping.factory
    if name == "__class__":
        return tx.live.from_python(mapping.cls)
    if not defines(mapping.cls, name):
        tx.classes.rely_on_absence(mapping, mapping.cls, name)
        tx.raising.error(AttributeError, f"{mapping.cls.__name__!r} object has no attribute {name!r}")
    return BoundBuiltin(mapping, name)


@do.call_method.rule(Dict)
def call_method(tx: Tracer, mapping: Dict, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method."""
    return methods.call(tx, mapping.cls, mapping, name, args, keywords)


@do.compare.rule(Dict)
def compare(tx: Tracer, mapping: Dict, op: str, other: Value) -> Value | None:
    """Compare two dicts without regard to order."""
    if not isinstance(other, Dict) or op not in ("==", "!="):
        return None
    mine, yours = dict_store.entries(tx, mapping), dict_store.entries(tx, other)
    equal = len(mine) == len(yours) and all(
        key in yours and operators.same_or_equal(tx, value, yours[key][1]) for key, (_, value) in list(mine.items())
    )
    if mapping.cls is other.cls is collections.OrderedDict:
        equal = equal and list(mine) == list(yours)
    return boolean(equal is (op == "=="))


@do.set_item.rule(Dict)
def set_item(tx: Tracer, mapping: Dict, key: Value, value: Value) -> None:
    """Store under `key`."""
    dict_store.store(tx, mapping, do.hash_key(tx, key), key, value)


@do.delete_item.rule(Dict)
def delete_item(tx: Tracer, mapping: Dict, key: Value) -> None:
    """Delete `key`."""
    if dict_store.remove(tx, mapping, do.hash_key(tx, key), key) is None:
        tx.raising.throw(KeyError, [key])


def miss(raising: Raising, mapping: Dict, key: Value) -> NoReturn:
    """Raise the KeyError of removal by name: an OrderedDict gives it a tuple for its arguments, None for none."""
    if mapping.cls is not collections.OrderedDict:
        raising.throw(KeyError, [key])
    raising.throw(KeyError, [] if is_none(key) else key.items if isinstance(key, Tuple) else [key])


@do.binary.rule(Dict)
def binary(tx: Tracer, mapping: Dict, op: str, other: Value, swapped: bool) -> Value | None:
    """Merge two dicts."""
    if op != "|" or not isinstance(other, Dict):
        return None
    if types.MappingProxyType in (mapping.cls, other.cls):
        raise Break("tracer.operator", "merging a mappingproxy isn't modelled")
    left, right = (other, mapping) if swapped else (mapping, other)
    merged = Dict(dict_store.entries(tx, left), mapping.cls, factory=mapping.factory)
    for hashed, (key, value) in dict_store.entries(tx, right).items():
        dict_store.store(tx, merged, hashed, key, value)
    return merged


@do.in_place.rule(Dict)
def in_place(tx: Tracer, mapping: Dict, op: str, other: Value) -> Value | None:
    """Model `|=`."""
    if op != "|":
        return None
    _update(tx, mapping, [other], {})
    return mapping


@codegen.reconstruct.rule(Dict)
def reconstruct(out: Builder, mapping: Dict) -> None:
    """Build the dict; empty first when a value may refer back to it."""
    entries = list(mapping.known.values())
    if mapping.cls is dict and all(out.is_leaf(value) for _, value in entries):
        out.build_map(entries)
        return
    _empty(out, mapping)
    out.remember(mapping)
    for key, value in entries:
        out.emit("COPY", 1)
        out.store_item(value, key)


def _empty(out: Builder, mapping: Dict) -> None:
    """Push an empty dict of the class."""
    if mapping.cls is dict:
        out.emit("BUILD_MAP", 0)
    elif mapping.cls is collections.OrderedDict:
        out.call(lambda: out.constant(mapping.cls), [])
    elif mapping.cls is collections.defaultdict:
        out.call(lambda: out.constant(mapping.cls), [lambda: out.load(mapping.factory)])
    else:
        raise Unreconstructable(f"a {mapping.cls.__name__} can't be built by bytecode")


@codegen.emit_effects.rule(Dict)
def emit_effects(out: Builder, mapping: Dict) -> None:
    """Replay deletions and stores; at another call the dict may lack what the program stored and took away."""
    for first, key, value in mapping.log.values():
        if first:
            out.call_unbound(mapping.cls.pop, mapping, [partial(out.load, key), partial(out.load, NONE)])
        if value is None:
            continue
        if mapping.is_plain():
            out.load(mapping)
            out.store_item(value, key)
        else:  # past what a subclass overrides: that was evaluated
            out.call_unbound(mapping.cls.__setitem__, mapping, [partial(out.load, key), partial(out.load, value)])


def _update(tx: Tracer, mapping: Dict, args: list[Value], keywords: Keywords) -> Value:
    arity("update", args, {}, 0, 1)
    for hashed, key, value in iteration.pairs(tx, args[0]) if args else ():
        dict_store.store(tx, mapping, hashed, key, value)
    for name, value in keywords.items():
        dict_store.store(tx, mapping, name, tx.live.from_python(name), value)
    return NONE


def _get(tx: Tracer, mapping: Dict, args: list[Value], keywords: Keywords) -> Value:
    key, *rest = arity("get", args, keywords, 1, 2)
    value = dict_store.find(tx, mapping, do.hash_key(tx, key))
    return value if value is not None else (rest[0] if rest else NONE)


def _view(name: str) -> methods.Rule:
    def method(tx: Tracer, mapping: Dict, args: list[Value], keywords: Keywords) -> Value:
        arity(name, args, keywords, 0)
        return DictView(mapping, name)

    return method


def _pop(tx: Tracer, mapping: Dict, args: list[Value], keywords: Keywords) -> Value:
    if mapping.cls is collections.OrderedDict:
        given = named("pop", args, keywords, ("key", "default"), required=1)
        args, keywords = [given["key"], *[given[name] for name in ("default",) if name in given]], {}
    key, *rest = arity("pop", args, keywords, 1, 2)
    value = dict_store.remove(tx, mapping, do.hash_key(tx, key), key)
    if value is not None:
        return value
    if rest:
        return rest[0]
    miss(tx.raising, mapping, key)


def _popitem(tx: Tracer, mapping: Dict, args: list[Value], keywords: Keywords) -> Value:
    ordered = mapping.cls is collections.OrderedDict
    given = named("popitem", args, keywords, ("last",) if ordered else ())
    last = do.truth(tx, given["last"]) if given else True
    entries = dict_store.entries(tx, mapping)
    if not entries:
        tx.raising.error(KeyError, "dictionary is empty" if ordered else "popitem(): dictionary is empty")
    hashed = next(reversed(entries)) if last else next(iter(entries))
    key, value = entries[hashed]
    dict_store.remove(tx, mapping, hashed, key)
    return Tuple([key, value])


def _setdefault(tx: Tracer, mapping: Dict, args: list[Value], keywords: Keywords) -> Value:
    if mapping.cls is collections.OrderedDict:
        given = named("setdefault", args, keywords, ("key", "default"), required=1)
        args, keywords = [given["key"], *[given[name] for name in ("default",) if name in given]], {}
    key, *rest = arity("setdefault", args, keywords, 1, 2)
    value = dict_store.find(tx, mapping, do.hash_key(tx, key))
    if value is None:
        value = rest[0] if rest else NONE
        do.set_item(tx, mapping, key, value)
    return value


def _init(tx: Tracer, mapping: Dict, args: list[Value], keywords: Keywords) -> Value:
    if mapping.cls is collections.defaultdict and mapping.real is None:
        mapping.factory, args = (args[0], args[1:]) if args else (NONE, args)
        if not is_none(mapping.factory) and tx.classes.find(mapping.factory.type(), "__call__") is None:
            raise Break("tracer.exception", "the first argument of defaultdict must be callable or None")
    elif mapping.cls is collections.defaultdict:
        raise Break("tracer.mutation", "a defaultdict is initialised again")
    return _update(tx, mapping, args, keywords)


def _clear(tx: Tracer, mapping: Dict, args: list[Value], keywords: Keywords) -> Value:
    arity("clear", args, keywords, 0)
    for hashed, (key, _) in list(dict_store.entries(tx, mapping).items()):
        dict_store.remove(tx, mapping, hashed, key)
    return NONE


def _copy(tx: Tracer, mapping: Dict, args: list[Value], keywords: Keywords) -> Value:
    arity("copy", args, keywords, 0)
    return Dict(dict_store.entries(tx, mapping), mapping.cls, factory=mapping.factory)


def _move_to_end(tx: Tracer, mapping: Dict, args: list[Value], keywords: Keywords) -> Value:
    given = named("move_to_end", args, keywords, ("key", "last"), required=1)
    key, last = given["key"], given.get("last")
    found = dict_store.find(tx, mapping, do.hash_key(tx, key))
    if found is None:
        miss(tx.raising, mapping, key)
    moved = [(key, found)]
    if last is not None and not do.truth(tx, last):  # all others go behind it, in their order
        moved_key = do.hash_key(tx, key)
        moved = [entry for hashed, entry in dict_store.entries(tx, mapping).items() if hashed != moved_key]
    for other, value in moved:
        dict_store.remove(tx, mapping, do.hash_key(tx, other), other)
        do.set_item(tx, mapping, other, value)
    return NONE


def _missing(tx: Tracer, mapping: Dict, args: list[Value], keywords: Keywords) -> Value:
    """Make what is missing in a defaultdict."""
    (key,) = arity("__missing__", args, keywords, 1)
    if is_none(mapping.factory):
        tx.raising.throw(KeyError, [key])
    value = do.call(tx, mapping.factory, [], {})
    do.set_item(tx, mapping, key, value)
    return value


def _copy_shown(tx: Tracer, mapping: Dict, args: list[Value], keywords: Keywords) -> Value:
    """Copy what a mappingproxy shows: the copy is of the class of that."""
    arity("copy", args, keywords, 0)
    shown = type(gc.get_referents(mapping.real)[0]) if mapping.real is not None else None
    if shown is not dict:
        raise Break("tracer.call", "a copy of what a mappingproxy shows isn't modelled")
    return Dict(dict_store.entries(tx, mapping))


READING: dict[str, methods.Rule] = {
    "get": _get,
    "items": _view("items"),
    "keys": _view("keys"),
    "values": _view("values"),
}
METHODS: dict[str, methods.Rule] = {
    "__init__": _init,
    "clear": _clear,
    "copy": _copy,
    "pop": _pop,
    "popitem": _popitem,
    "setdefault": _setdefault,
    "update": _update,
}
methods.declare(dict, READING, METHODS, methods.SIZE)
methods.declare(collections.OrderedDict, {"move_to_end": _move_to_end}, methods.PICKLED)
methods.declare(collections.defaultdict, {"__copy__": _copy, "__missing__": _missing}, methods.PICKLED)
methods.declare(types.MappingProxyType, READING, {"copy": _copy_shown})
