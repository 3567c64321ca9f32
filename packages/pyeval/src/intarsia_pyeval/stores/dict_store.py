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
def item_source(tx: Tracer, x: Dict, key: Hashable) -> Source | None:
    """Return where a later call finds the value of `key`."""
    if x.source is None:
        return None
    if is_evaluated(key):
        held = [real for real, _ in plain_items(x.real) if real == key]
        if not held:
            return None
        (key,) = held
    own = x.real is None or type(x.real).__getitem__ in _PLAIN_LOOKUPS
    return tx.sources.item(x.source, key) if own else tx.sources.dict_item(x.source, key)


def find(tx: Tracer, x: Dict, key: Hashable) -> Value | None:
    """Return the value of `key`, or None when there is none."""
    _check_current(tx, x)
    found = x.entry(key)
    if found is not None or x.complete:
        return found[1] if found else None
    logged = x.log.get(key)
    if logged is not None:  # deleted: a stored key would be known
        return None
    real = x.real
    assert real is not None
    if x.cls is not dict:
        entries(tx, x)
        return find(tx, x, key)
    check_keys(tx, x)
    value: Any = dict.get(real, key, _MISSING)
    if value is _MISSING:
        guard_absent(tx, x, key)
        return None
    model = tx.live.wrap(value, item_source(tx, x, key))
    x.known[key] = (tx.live.key_value(key), model)
    return model


def _check_current(tx: Tracer, x: Dict) -> None:
    """Break if what a read-only view shows was changed meanwhile: the view has a model of its own."""
    if x.cls is types.MappingProxyType and x.real is not None:
        shown = tx.live.known(gc.get_referents(x.real)[0])
        if shown is not None and shown in tx.effects.dirty:
            raise Break("tracer.mutation", "a mappingproxy is read after its dict was changed")


@operation
def guard_absent(tx: Tracer, x: Dict, key: Hashable) -> None:
    """Rely on `key` being missing from the existing dict."""
    if is_evaluated(key):
        entries(tx, x)
    elif x.source is not None:
        tx.identities.missing_key(x.source, key)


def check_keys(tx: Tracer, x: Dict) -> None:
    """Break if looking something up in the existing dict may run user code: hashes or equalities of its keys."""
    if not x.checked:
        assert x.real is not None
        with tx.identities.unnoted():
            for key, _ in plain_items(x.real):
                if type(key) not in ATOMS:
                    tx.live.key(key)
        x.checked = True


def entries(tx: Tracer, x: Dict) -> dict[Hashable, tuple[Value, Value]]:
    """Return all entries in order; relies on the keys of an existing dict."""
    _check_current(tx, x)
    if x.complete:
        return x.known
    assert x.real is not None
    real = plain_items(x.real)
    if x.source is not None:
        tx.guards.add(DictKeysGuard, x.source, tuple(key for key, _ in real))
    known, whole = x.known, {}
    check_keys(tx, x)
    for key, value in real:
        deleted_first, _, stored = x.log.get(key, (False, NONE, NONE))
        if deleted_first or stored is None:
            continue
        whole[key] = known.get(key) or (tx.live.key_value(key), tx.live.wrap(value, item_source(tx, x, key)))
    for key, (_, model, stored) in x.log.items():
        if stored is not None:
            whole[key] = (model, stored)
    x.known, x.complete = whole, True
    return whole


def store(tx: Tracer, x: Dict, hashed: Hashable, key: Value, value: Value) -> None:
    """Store under a key whose hash key is known."""
    x.check_writable()
    if x.real is not None and is_evaluated(hashed):
        check_keys(tx, x)
    _check_dropped(tx.effects, x, hashed)
    tx.effects.changed(x)
    old = x.entry(hashed)
    x.known[hashed] = (old[0] if old else key, value)
    if x.real is not None:
        logged = x.log.get(hashed)
        if logged is not None and logged[2] is None:
            del x.log[hashed]  # it was deleted: the key comes back at the end
        x.log[hashed] = (logged is not None and logged[0], key, value)


def _check_dropped(effects: Effects, x: Dict, hashed: Hashable) -> None:
    """Leave the frame to CPython if the value that goes runs code of the user when it ends."""
    if x.real is None:
        return
    old = None if compared(x.log.__contains__, hashed) else compared(dict.get, x.real, hashed)
    effects.let_go([] if old is None else [old])


def remove(tx: Tracer, x: Dict, hashed: Hashable, key: Value) -> Value | None:
    """Delete a key whose hash key is known; return its value, or None when there was none."""
    found = find(tx, x, hashed)
    if found is None:
        return None
    x.check_writable()
    _check_dropped(tx.effects, x, hashed)
    tx.effects.changed(x)
    x.deletions += 1
    del x.known[hashed]
    if x.real is not None:  # it may hold the key or not: nobody looked, where the program stored it before
        x.log.pop(hashed, None)
        x.log[hashed] = (True, key, None)
    return found


def plain_items(real: Any) -> list[tuple[Any, Any]]:
    """Return the entries of a real dict in order, past what a subclass overrides; no key is hashed or compared."""
    if issubclass(type(real), types.MappingProxyType):
        return list(real.items())
    items = collections.OrderedDict.items if issubclass(type(real), collections.OrderedDict) else dict.items
    return list(items(real))
