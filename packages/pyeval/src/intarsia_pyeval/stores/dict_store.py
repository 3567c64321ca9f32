"""The entries of dicts. Of an existing one only those that are asked for are modelled, unless order or size matters."""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from intarsia_ir.guards import DictKeysGuard
from intarsia_ir.records import Source
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.operation import operation
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import ATOMS, NONE
from intarsia_pyeval.values.keys import is_evaluated
from intarsia_pyeval.values.mappings import Dict, compared

if TYPE_CHECKING:
    from intarsia_pyeval.state.effects import Effects
    from intarsia_pyeval.tracer import Tracer

__all__ = ["check_keys", "entries", "find", "guard_absent", "item_source", "plain_items", "remove", "store"]


_MISSING = object()


_PLAIN_LOOKUPS = frozenset(
    {dict.__getitem__, collections.OrderedDict.__getitem__, collections.defaultdict.__getitem__,
     types.MappingProxyType.__getitem__}
)  # fmt: skip


@operation
def item_source(tx: Tracer, mapping: Dict, key: Hashable) -> Source | None:
    """Return where a later call finds the value of `key`."""
    if mapping.source is None:
        return None
    if is_evaluated(key):
        held = [real for real, _ in plain_items(mapping.real) if real == key]
        if not held:
            return None
        (key,) = held
    plain = mapping.real is None or type(mapping.real).__getitem__ in _PLAIN_LOOKUPS
    return tx.sources.item(mapping.source, key) if plain else tx.sources.dict_item(mapping.source, key)


def find(tx: Tracer, mapping: Dict, key: Hashable) -> Value | None:
    """Return the value of `key`, or None when there is none."""
    _check_current(tx, mapping)
    entry = mapping.entry(key)
    if entry is not None or mapping.complete:
        return entry[1] if entry else None
    logged = mapping.log.get(key)
    if logged is not None:  # deleted: a stored key would be known
        return None
    real = mapping.real
    assert real is not None
    if mapping.cls is not dict:
        entries(tx, mapping)
        return find(tx, mapping, key)
    check_keys(tx, mapping)
    value: Any = dict.get(real, key, _MISSING)
    if value is _MISSING:
        guard_absent(tx, mapping, key)
        return None
    model = tx.live.wrap(value, item_source(tx, mapping, key))
    mapping.known[key] = (tx.live.key_value(key), model)
    return model


def _check_current(tx: Tracer, mapping: Dict) -> None:
    """Break if what a read-only view shows was changed meanwhile: the view has a model of its own."""
    if mapping.cls is types.MappingProxyType and mapping.real is not None:
        shown = tx.live.known(gc.get_referents(mapping.real)[0])
        if shown is not None and shown in tx.effects.dirty:
            raise Break("tracer.mutation", "a mappingproxy is read after its dict was changed")


@operation
def guard_absent(tx: Tracer, mapping: Dict, key: Hashable) -> None:
    """Rely on `key` being missing from the existing dict."""
    if is_evaluated(key):
        entries(tx, mapping)
    elif mapping.source is not None:
        tx.identities.missing_key(mapping.source, key)


def check_keys(tx: Tracer, mapping: Dict) -> None:
    """Break if looking something up in the existing dict may run user code: hashes or equalities of its keys."""
    if not mapping.checked:
        assert mapping.real is not None
        with tx.identities.unnoted():
            for key, _ in plain_items(mapping.real):
                if type(key) not in ATOMS:
                    tx.live.key(key)
        mapping.checked = True


def entries(tx: Tracer, mapping: Dict) -> dict[Hashable, tuple[Value, Value]]:
    """Return all entries in order; relies on the keys of an existing dict."""
    _check_current(tx, mapping)
    if mapping.complete:
        return mapping.known
    assert mapping.real is not None
    real = plain_items(mapping.real)
    if mapping.source is not None:
        tx.guards.add(DictKeysGuard, mapping.source, tuple(key for key, _ in real))
    read, whole = mapping.known, {}
    check_keys(tx, mapping)
    for key, value in real:
        deleted_first, _, stored = mapping.log.get(key, (False, NONE, NONE))
        if deleted_first or stored is None:
            continue
        whole[key] = read.get(key) or (tx.live.key_value(key), tx.live.wrap(value, item_source(tx, mapping, key)))
    for key, (_, model, stored) in mapping.log.items():
        if stored is not None:
            whole[key] = (model, stored)
    mapping.known, mapping.complete = whole, True
    return whole


def store(tx: Tracer, mapping: Dict, hashed: Hashable, key: Value, value: Value) -> None:
    """Store under a key whose hash key is known."""
    mapping.check_writable()
    if mapping.real is not None and is_evaluated(hashed):
        check_keys(tx, mapping)
    _check_dropped(tx.effects, mapping, hashed)
    tx.effects.changed(mapping)
    old = mapping.entry(hashed)
    mapping.known[hashed] = (old[0] if old else key, value)
    if mapping.real is not None:
        logged = mapping.log.get(hashed)
        if logged is not None and logged[2] is None:
            del mapping.log[hashed]  # it was deleted: the key comes back at the end
        mapping.log[hashed] = (logged is not None and logged[0], key, value)


def _check_dropped(effects: Effects, mapping: Dict, hashed: Hashable) -> None:
    """Leave the frame to CPython if the value that goes runs code of the user when it ends."""
    if mapping.real is None:
        return
    old = None if compared(mapping.log.__contains__, hashed) else compared(dict.get, mapping.real, hashed)
    effects.let_go([] if old is None else [old])


def remove(tx: Tracer, mapping: Dict, hashed: Hashable, key: Value) -> Value | None:
    """Delete a key whose hash key is known; return its value, or None when there was none."""
    value = find(tx, mapping, hashed)
    if value is None:
        return None
    mapping.check_writable()
    _check_dropped(tx.effects, mapping, hashed)
    tx.effects.changed(mapping)
    mapping.deletions += 1
    del mapping.known[hashed]
    if mapping.real is not None:  # it may hold the key or not: nobody looked, where the program stored it before
        mapping.log.pop(hashed, None)
        mapping.log[hashed] = (True, key, None)
    return value


def plain_items(real: Any) -> list[tuple[Any, Any]]:
    """Return the entries of a real dict in order, past what a subclass overrides; no key is hashed or compared."""
    if issubclass(type(real), types.MappingProxyType):
        return list(real.items())
    items = collections.OrderedDict.items if issubclass(type(real), collections.OrderedDict) else dict.items
    return list(items(real))
