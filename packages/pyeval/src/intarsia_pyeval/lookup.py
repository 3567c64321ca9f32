"""Attribute lookup on instances, following CPython's rules without running user code behind the evaluator's back."""

from __future__ import annotations

import enum
import functools
import threading
import types
import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, cast

from intarsia_ir.records import GuardKind, Source
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.descriptors import is_data_descriptor, is_plain_lookup
from intarsia_pyeval.trust import is_trusted
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.functions import BoundMethod
from intarsia_pyeval.values.handled import HandledByCaller
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import InstanceDict, Object
from intarsia_pyeval.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer


__all__ = [
    "attribute_source",
    "bound_to_instance",
    "exception_attribute",
    "guard_not_in_instance",
    "has_dict",
    "hash_is_safe",
    "instance_attribute",
    "instance_dict",
    "is_data_descriptor",
    "object_attribute",
    "object_hash_key",
    "own_dict_source",
    "own_source",
    "plain_attribute",
    "real_dict",
    "really_has",
    "special_method",
]


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: set for classes written in Python
_C_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_CACHED = type(functools.lru_cache(lambda: None))
_SAFE_HASHES = frozenset(
    {object.__hash__, type.__hash__, str.__hash__, int.__hash__, float.__hash__, enum.Enum.__hash__, tuple.__hash__}
)  # fmt: skip


def object_attribute(tx: Tracer, owner: Object, name: str) -> Value:
    """Model an attribute of an instance, `__getattribute__` and `__getattr__` included."""
    found = tx.extension.attribute(tx, owner, name)
    if found is not None:
        return found
    getter = tx.classes.find(owner.cls, "__getattribute__")
    if getter is None or not isinstance(getter[0], types.FunctionType):
        return tx.plain_attribute(owner, name)
    function = tx.live.class_function(owner, owner.cls, "__getattribute__")
    try:
        return tx.call(function, [owner, Const(name)], {})
    except Raised as raised:
        fallback = tx.classes.find(owner.cls, "__getattr__")
        if fallback is None or not raised.is_a(AttributeError):
            raise
        return tx.call(tx.live.class_function(owner, owner.cls, "__getattr__"), [owner, Const(name)], {})


def plain_attribute(tx: Tracer, owner: Object, name: str, fallback: bool = True) -> Value:
    """Model `object.__getattribute__`, then `__getattr__`."""
    cls = owner.cls
    if cls in (weakref.ProxyType, weakref.CallableProxyType):
        raise Break("tracer.attribute", f"{name!r} is looked up through a weak proxy")
    if name == "__class__" and (tx.classes.find(cls, name) or (None,))[0] is vars(object)["__class__"]:
        return tx.live.wrap(cls, tx.classes.place_of(owner, cls))
    if name == "__dict__" and has_dict(cls):
        return InstanceDict(owner)
    if issubclass(type(owner.value), enum.Enum) and name in ("name", "value", "_name_", "_value_"):
        return tx.live.wrap(tx.real(getattr, owner.value, name), None)
    found = tx.classes.find(cls, name)
    raw = found[0] if found else None
    if found is not None and is_data_descriptor(raw):
        return _from_data_descriptor(tx, owner, name, raw)
    own = tx.instance_attribute(owner, name)
    if own is not None:
        return own
    if found is not None:
        return tx.bound_to_instance(owner, cls, name, raw)
    return _missing(tx, owner, name, fallback)


def _missing(tx: Tracer, owner: Object, name: str, fallback: bool) -> Value:
    """Ask `__getattr__`, or raise."""
    cls = owner.cls
    hook = tx.classes.find(cls, "__getattr__") if fallback else None
    if hook is not None:
        if not isinstance(hook[0], types.FunctionType):
            raise Break("tracer.attribute", f"{owner.describe()} has a __getattr__ that isn't a function")
        tx.guard_not_in_instance(owner, name)
        try:
            return tx.call(tx.live.class_function(owner, cls, "__getattr__"), [owner, Const(name)], {})
        except Raised as raised:
            if raised.is_a(AttributeError):
                _guard_absent(tx, owner, name)
            raise
    if not fallback:
        _guard_absent(tx, owner, name)
    # of an attribute that was deleted before, the start tells nothing
    if owner.source is not None and fallback and name not in owner.written:
        tx.guards.add(GuardKind.HAS_ATTRIBUTE, owner.source, (name, False))
    tx.raising.error(AttributeError, f"{cls.__name__!r} object has no attribute {name!r}")


def bound_to_instance(tx: Tracer, owner: Value, cls: Any, name: str, raw: Any) -> Value:
    """Bind what was found in the class, and isn't a data descriptor, to the instance."""
    if issubclass(type(raw), (types.FunctionType, _CACHED)):
        tx.guard_not_in_instance(owner, name)
        return BoundMethod(tx.live.class_function(owner, cls, name), owner)
    if issubclass(type(raw), staticmethod):
        tx.guard_not_in_instance(owner, name)
        return tx.live.class_function(owner, cls, name, "__func__")
    if issubclass(type(raw), classmethod):
        tx.guard_not_in_instance(owner, name)
        return BoundMethod(
            tx.live.class_function(owner, cls, name, "__func__"), tx.live.wrap(cls, tx.classes.place_of(owner, cls))
        )
    if issubclass(type(raw), property):
        return tx.call(tx.live.class_function(owner, cls, name, "fget"), [owner], {})
    if issubclass(type(raw), functools.cached_property):
        _guard_absent(tx, owner, name)
        value = tx.call(tx.live.class_function(owner, cls, name, "func"), [owner], {})
        tx.write_attribute(cast(Object, owner), name, value)
        return value
    if issubclass(type(raw), types.ClassMethodDescriptorType):
        return BoundBuiltin(tx.live.wrap(cls, tx.classes.place_of(owner, cls)), name, raw)
    if issubclass(type(raw), _C_METHODS):
        _, index = tx.classes.find(cls, name) or (raw, 0)
        tx.classes.rely_on_passing_over(cls.__mro__[:index], tx.classes.place_of(owner, cls), name)
        return BoundBuiltin(owner, name, raw)
    if issubclass(type(raw), functools.partialmethod) or type(raw) is functools.partial:
        raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is a {type(raw).__name__}")
    getter = tx.classes.find(type(raw), "__get__")
    if getter is None or issubclass(type(raw), type):
        return tx.live.wrap(raw, attribute_source(tx, owner, name))
    if isinstance(getter[0], types.FunctionType):
        _guard_absent(tx, owner, name)
        descriptor = tx.live.wrap(raw, None)
        function = tx.live.class_function(descriptor, type(raw), "__get__")
        return tx.call(function, [descriptor, owner, tx.live.wrap(cls, None)], {})
    raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is a {type(raw).__name__}")


def _from_data_descriptor(tx: Tracer, owner: Object, name: str, raw: Any) -> Value:
    """Read a property, a slot, or another descriptor that has `__set__`."""
    if issubclass(type(raw), property):
        if raw.fget is None:
            raise Break("tracer.exception", f"property {name!r} of {owner.describe()} can't be read")
        return tx.call(tx.live.class_function(owner, owner.cls, name, "fget"), [owner], {})
    if issubclass(owner.cls, BaseException) and hasattr(raw, "__objclass__") and not raw.__objclass__.__flags__ & _HEAP:
        return tx.exception_attribute(owner, name)
    if issubclass(type(raw), types.MemberDescriptorType):
        return _slot(tx, owner, name, raw)
    getter = tx.classes.find(type(raw), "__get__")
    if getter is not None and isinstance(getter[0], types.FunctionType):
        descriptor = tx.live.wrap(raw, None)
        function = tx.live.class_function(descriptor, type(raw), "__get__")
        return tx.call(function, [descriptor, owner, tx.live.wrap(owner.cls, None)], {})
    if owner.foreign is not None:
        raise Break(owner.foreign.code, f"{name!r} of {owner.foreign.what} is read")
    raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is a {type(raw).__name__}")


def _slot(tx: Tracer, owner: Object, name: str, raw: Any) -> Value:
    """Read a slot."""
    found = owner.written.get(name) if name in owner.written else owner.read.get(name)
    if found is not None:
        return found
    if name in owner.written or not owner.existing:
        tx.raising.error(AttributeError, f"{owner.cls.__name__!r} object has no attribute {name!r}")
    plain = is_plain_lookup(owner.cls)
    if owner.source is not None and not _is_filled(raw, owner.value):
        if tx.classes.find(owner.cls, "__getattr__") is not None or not plain:
            raise Break("tracer.attribute", f"the slot {name!r} of {owner.describe()} is empty, and its class is asked")
        tx.guards.add(GuardKind.HAS_ATTRIBUTE, owner.source, (name, False))
    value = tx.real(raw.__get__, owner.value, owner.cls)
    source = None
    if owner.source is not None:
        source = (tx.sources.attribute if plain else tx.sources.plain_attribute)(owner.source, name)
    model = owner.read[name] = tx.live.wrap(value, source)
    return model


def _is_filled(slot: Any, value: Any) -> bool:
    try:
        slot.__get__(value, type(value))
    except AttributeError:
        return False
    return True


def exception_attribute(tx: Tracer, owner: Object, name: str) -> Value:
    """Read an attribute that exceptions have in C."""
    if name == "args" and owner.base is not None:
        return owner.base
    if name == "value" and issubclass(owner.cls, StopIteration) and isinstance(owner.base, Tuple):
        return owner.base.items[0] if owner.base.items else Const(None)
    if name in owner.written:
        found = owner.written[name] or Const(None)
        if not isinstance(found, HandledByCaller):
            return found
        tx.raising.rely_on_calm_caller()
        return Const(None)
    if name in ("__cause__", "__context__") and not owner.existing:
        return Const(None)
    raise Break("tracer.attribute", f"attribute {name!r} of {owner.describe()} isn't modelled")


def instance_attribute(tx: Tracer, owner: Object, name: str) -> Value | None:
    """Return an entry of the instance's own dict, or None."""
    if name in owner.written:
        return owner.written[name]
    found = owner.read.get(name)
    if found is not None or not owner.existing:
        return found
    own = real_dict(owner.value)
    if own is None or name not in own:
        return None
    source = None
    if owner.source is not None:
        source = tx.own_source(owner, name)
    model = owner.read[name] = tx.live.wrap(own[name], source)
    return model


def own_source(tx: Tracer, owner: Object, name: str) -> Source:
    """Return where an entry of the instance's own dict is found: by its name, unless its class says what that is."""
    assert owner.source is not None
    found = tx.classes.find(owner.cls, name)
    if is_plain_lookup(owner.cls) and (found is None or not is_data_descriptor(found[0])):
        return tx.sources.attribute(owner.source, name)
    return tx.sources.item(tx.own_dict_source(owner), name)


def instance_dict(tx: Tracer, owner: Object) -> Dict:
    """Return all entries of the instance's own dict as a copy."""
    names: dict[str, None] = {}
    if owner.existing:
        own = real_dict(owner.value) or {}
        names = dict.fromkeys(own)
        if owner.source is not None:
            tx.guards.add(GuardKind.DICT_KEYS, tx.own_dict_source(owner), tuple(own))
    names.update(dict.fromkeys(owner.written))
    entries: dict[Hashable, tuple[Value, Value]] = {}
    for name in names:
        value = tx.instance_attribute(owner, name)
        if value is not None:
            entries[name] = (Const(name), value)
    return Dict(entries)


def guard_not_in_instance(tx: Tracer, owner: Value, name: str) -> None:
    """Rely on the instance not shadowing what its class defines; of libraries' classes it is taken for granted."""
    if isinstance(owner, Object) and (not is_trusted(owner.cls.__module__) or tx.extension.may_be_shadowed(name)):
        _guard_absent(tx, owner, name)


def _guard_absent(tx: Tracer, owner: Value, name: str) -> None:
    """Rely on the instance's own dict having no such entry."""
    if not isinstance(owner, Object) or owner.source is None or not has_dict(owner.cls):
        return
    if name in owner.written:  # deleted before, whatever was there at the start
        return
    tx.guards.add(GuardKind.ABSENT, tx.own_dict_source(owner), name)


def own_dict_source(tx: Tracer, owner: Object) -> Source:
    """Return where the instance's own dict is found, past any `__getattribute__` of its class: that was evaluated."""
    assert owner.source is not None
    if is_plain_lookup(owner.cls):
        return tx.sources.attribute(owner.source, "__dict__")
    if issubclass(owner.cls, threading.local):
        raise Break("tracer.attribute", f"{owner.describe()} is of one thread, and has a __getattribute__ of its own")
    return tx.sources.plain_attribute(owner.source, "__dict__")


def attribute_source(tx: Tracer, owner: Value, name: str) -> Source | None:
    """Return `owner.name` as a source, or through the class of an object made while tracing."""
    if owner.source is not None and isinstance(owner, Object) and not is_plain_lookup(owner.cls):
        return tx.sources.plain_attribute(owner.source, name)  # its `__getattribute__` was evaluated
    if owner.source is not None:
        return tx.sources.attribute(owner.source, name)
    if isinstance(owner, Object):
        base = tx.classes.place(owner.cls)
        return None if base is None else tx.sources.attribute(base, name)
    return None


def special_method(tx: Tracer, owner: Value, name: str) -> Value:
    """Return a special method bound to its object."""
    if not isinstance(owner, Object):
        return owner.get_attribute(tx, name)
    found = tx.classes.find(owner.cls, name)
    if found is None:
        raise Break("tracer.exception", f"{owner.describe()} has no {name}")
    return tx.bound_to_instance(owner, owner.cls, name, found[0])


# -- hashing -------------------------------------------------------------------------------------------------


def hash_is_safe(tx: Tracer, cls: Any) -> bool:
    """Tell whether hashing and comparing objects of a class runs no user code."""
    return cls.__hash__ in _SAFE_HASHES or tx.extension.is_atom(cls)


def object_hash_key(tx: Tracer, owner: Object) -> Hashable:
    """Return what stands for an instance as a key."""
    if owner.cls.__hash__ is object.__hash__ and owner.cls.__eq__ is object.__eq__:
        tx.identities.note(owner)
        key: Hashable = owner.value if owner.existing else owner
        return key
    if issubclass(type(owner.value), enum.Enum) and owner.cls.__hash__ in _SAFE_HASHES:
        member: Hashable = owner.value
        return member
    raise Break("tracer.hashing", f"{owner.describe()} is used as a key")


def has_dict(cls: Any) -> bool:
    """Tell whether instances of a class have a dict of their own; that of a `threading.local` is its thread's."""
    return cls.__dictoffset__ != 0 or issubclass(cls, threading.local)


def real_dict(value: Any) -> dict[str, Any] | None:
    """Return the instance dict of an object, without running its `__getattribute__`."""
    if issubclass(type(value), threading.local):
        return _thread_dict(value)
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def _thread_dict(value: threading.local) -> dict[str, Any]:
    """Return what an object holds for this thread: the first look makes it, by `__init__`, as the program's would."""
    try:
        found: dict[str, Any] = threading.local.__getattribute__(value, "__dict__")
    except Exception as error:
        raise Break(
            "tracer.attribute", f"the first use of a {type(value).__name__} in a thread raises {error!r}"
        ) from None
    return found


def really_has(value: Any, name: str) -> bool:
    """Tell whether a real object has an attribute of its own, in its dict or a slot."""
    own = real_dict(value)
    if own is not None and name in own:
        return True
    slot = next((vars(cls)[name] for cls in type(value).__mro__ if name in vars(cls)), None)
    return isinstance(slot, types.MemberDescriptorType) and hasattr(value, name)
