"""What an instance itself holds, in its dict and its slots."""

from __future__ import annotations

import threading
import types
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from intarsia_ir.guards import AbsentGuard, DictKeysGuard, HasAttributeGuard
from intarsia_ir.records import Source
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.descriptors import is_data_descriptor, is_plain_lookup
from intarsia_pyeval.trust import is_trusted
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import Object

if TYPE_CHECKING:
    from intarsia_pyeval.sources import Sources
    from intarsia_pyeval.tracer import Tracer

__all__ = [
    "guard_absent",
    "guard_not_in_instance",
    "has_dict",
    "instance_attribute",
    "instance_dict",
    "own_dict_source",
    "own_source",
    "real_dict",
    "really_has",
    "write_attribute",
]


def instance_attribute(tx: Tracer, owner: Object, name: str) -> Value | None:
    """Return an entry of the instance's own dict, or None."""
    if name in owner.written:
        return owner.written[name]
    value = owner.read.get(name)
    if value is not None or not owner.existing:
        return value
    entries = real_dict(owner.value)
    if entries is None or name not in entries:
        return None
    source = None
    if owner.source is not None:
        source = own_source(tx, owner, name)
    model = owner.read[name] = tx.live.wrap(entries[name], source)
    return model


def own_source(tx: Tracer, owner: Object, name: str) -> Source:
    """Return where an entry of the instance's own dict is found: by its name, unless its class says what that is."""
    assert owner.source is not None
    definition = tx.classes.find(owner.cls, name)
    if is_plain_lookup(owner.cls) and (definition is None or not is_data_descriptor(definition[0])):
        return tx.sources.attribute(owner.source, name)
    return tx.sources.item(own_dict_source(tx.sources, owner), name)


def instance_dict(tx: Tracer, owner: Object) -> Dict:
    """Return all entries of the instance's own dict as a copy."""
    names: dict[str, None] = {}
    if owner.existing:
        attributes = real_dict(owner.value) or {}
        names = dict.fromkeys(attributes)
        if owner.source is not None:
            tx.guards.add(DictKeysGuard, own_dict_source(tx.sources, owner), tuple(attributes))
    names.update(dict.fromkeys(owner.written))
    entries: dict[Hashable, tuple[Value, Value]] = {}
    for name in names:
        value = instance_attribute(tx, owner, name)
        if value is not None:
            entries[name] = (Const(name), value)
    return Dict(entries)


def guard_not_in_instance(tx: Tracer, owner: Value, name: str) -> None:
    """Rely on the instance not shadowing what its class defines; for most libraries, taken for granted."""
    if not isinstance(owner, Object):
        return
    if not is_trusted(owner.cls.__module__) or tx.extension.may_be_shadowed(owner.cls, name):
        guard_absent(tx, owner, name)


def guard_absent(tx: Tracer, owner: Value, name: str) -> None:
    """Rely on the instance's own dict having no such entry."""
    if not isinstance(owner, Object) or owner.source is None or not has_dict(owner.cls):
        return
    if name in owner.written:  # deleted before, whatever was there at the start
        return
    tx.guards.add(AbsentGuard, own_dict_source(tx.sources, owner), name)


def own_dict_source(sources: Sources, owner: Object) -> Source:
    """Return where the instance's own dict is found, past any `__getattribute__` of its class: that was evaluated."""
    assert owner.source is not None
    if is_plain_lookup(owner.cls):
        return sources.attribute(owner.source, "__dict__")
    if issubclass(owner.cls, threading.local):
        raise Break("tracer.attribute", f"{owner.describe()} is of one thread, and has a __getattribute__ of its own")
    return sources.plain_attribute(owner.source, "__dict__")


def has_dict(cls: Any) -> bool:
    """Tell whether instances of a class have a dict of their own; that of a `threading.local` is its thread's."""
    return cls.__dictoffset__ != 0 or issubclass(cls, threading.local)


def real_dict(value: Any) -> dict[str, Any] | None:
    """Return the instance dict of an object, without running its `__getattribute__`."""
    if issubclass(type(value), threading.local):
        return _thread_dict(value)
    try:
        entries = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return entries if isinstance(entries, dict) else None


def _thread_dict(value: threading.local) -> dict[str, Any]:
    """Return what an object holds for this thread: the first look makes it, by `__init__`, as the program's would."""
    try:
        entries: dict[str, Any] = threading.local.__getattribute__(value, "__dict__")
    except Exception as error:
        raise Break(
            "tracer.attribute", f"the first use of a {type(value).__name__} in a thread raises {error!r}"
        ) from None
    return entries


def really_has(value: Any, name: str) -> bool:
    """Tell whether a real object has an attribute of its own, in its dict or a slot."""
    entries = real_dict(value)
    if entries is not None and name in entries:
        return True
    slot = next((vars(cls)[name] for cls in type(value).__mro__ if name in vars(cls)), None)
    return isinstance(slot, types.MemberDescriptorType) and hasattr(value, name)


def write_attribute(tx: Tracer, owner: Object, name: str, value: Value | None) -> None:
    """Set an entry of the instance's own dict (or a slot), to be stored after the graph."""
    if value is None:
        before = owner.written.get(name) if name in owner.written else instance_attribute(tx, owner, name)
        # what only the class has, or makes up in `__getattr__`, can't be deleted from an instance
        if before is None and (name in owner.written or not (owner.existing and really_has(owner.value, name))):
            definition = tx.classes.find(owner.cls, name)
            slot = definition is not None and isinstance(definition[0], types.MemberDescriptorType)
            tx.raising.error(
                AttributeError, name if slot else f"{owner.cls.__name__!r} object has no attribute {name!r}"
            )
        if before is None and owner.source is not None:  # a slot, which nothing was read of
            if not is_plain_lookup(owner.cls):
                raise Break("tracer.mutation", f"the slot {name!r} of {owner.describe()} is deleted unread")
            tx.guards.add(HasAttributeGuard, owner.source, name, True)
    elif owner.existing and owner.written.get(name, value) is None:
        raise Break("tracer.mutation", f"attribute {name!r} is set again after it was deleted: it moves to the end")
    if owner.existing and name not in owner.written:
        entries = real_dict(owner.value) or {}
        tx.effects.let_go([entries[name]] if name in entries else [])
    tx.effects.changed(owner)
    if value is None and not (owner.existing and really_has(owner.value, name)):
        owner.written.pop(name, None)
    else:
        owner.written[name] = value
