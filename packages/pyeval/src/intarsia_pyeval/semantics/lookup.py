"""Attribute lookup on instances, following CPython's rules without running user code behind the evaluator's back."""

from __future__ import annotations

import enum
import functools
import types
import weakref
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, cast

from intarsia_ir.guards import HasAttributeGuard
from intarsia_ir.records import Source
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.descriptors import is_data_descriptor, is_plain_lookup
from intarsia_pyeval.semantics import folding
from intarsia_pyeval.stores import instance_store
from intarsia_pyeval.trust import is_trusted
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.functions import BoundMethod
from intarsia_pyeval.values.handled import HandledByCaller
from intarsia_pyeval.values.made import MadeClass
from intarsia_pyeval.values.objects import InstanceDict, Object
from intarsia_pyeval.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_pyeval.state.identities import Identities
    from intarsia_pyeval.state.raising import Raising
    from intarsia_pyeval.tracer import Extension, Tracer

__all__ = [
    "attribute_source",
    "bound_to_instance",
    "call_python",
    "check_class_method",
    "class_descriptor",
    "exception_attribute",
    "hash_is_safe",
    "is_native",
    "object_attribute",
    "object_hash_key",
    "plain_attribute",
]


_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: set for classes written in Python
_C_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_CACHED = type(functools.lru_cache(lambda: None))
_SAFE_HASHES = frozenset(
    {object.__hash__, type.__hash__, str.__hash__, int.__hash__, float.__hash__, enum.Enum.__hash__, tuple.__hash__}
)  # fmt: skip


def object_attribute(tx: Tracer, owner: Object, name: str) -> Value:
    """Model an attribute of an instance, `__getattribute__` and `__getattr__` included."""
    answer = tx.extension.attribute(tx, owner, name)
    if answer is not None:
        return answer
    getter = tx.classes.find(owner.cls, "__getattribute__")
    if getter is None or is_native(getter[0], "__getattribute__"):
        return plain_attribute(tx, owner, name)
    try:
        return _ask(tx, owner, "__getattribute__", getter[0], name)
    except Raised as raised:
        fallback = tx.classes.find(owner.cls, "__getattr__")
        if fallback is None or not raised.is_a(AttributeError):
            raise
        return _ask(tx, owner, "__getattr__", fallback[0], name)


def plain_attribute(tx: Tracer, owner: Object, name: str, fallback: bool = True) -> Value:
    """Model `object.__getattribute__`, then `__getattr__`."""
    cls = owner.cls
    if cls in (weakref.ProxyType, weakref.CallableProxyType):
        raise Break("tracer.attribute", f"{name!r} is looked up through a weak proxy")
    if name == "__class__" and (tx.classes.find(cls, name) or (None,))[0] is vars(object)["__class__"]:
        tx.classes.rely_on_identity(cls)
        return tx.live.wrap(cls, tx.classes.place_of(owner, cls))
    if name == "__dict__" and instance_store.has_dict(cls):
        return InstanceDict(owner)
    if issubclass(type(owner.value), enum.Enum) and name in ("name", "value", "_name_", "_value_"):
        return tx.live.wrap(folding.real(tx, getattr, owner.value, name), _place_in_member(tx, owner, name))
    definition = tx.classes.find(cls, name)
    raw = definition[0] if definition else None
    if definition is not None and is_data_descriptor(raw):
        return _from_data_descriptor(tx, owner, name, raw)
    entry = instance_store.instance_attribute(tx, owner, name)
    if entry is not None:
        return entry
    if definition is not None:
        return bound_to_instance(tx, owner, cls, name, raw)
    return _missing(tx, owner, name, fallback)


def _place_in_member(tx: Tracer, owner: Object, name: str) -> Source | None:
    """Return where the value of an enumeration's member is found: it may be set, though in no library's."""
    entries = instance_store.real_dict(owner.value) or {}
    if owner.source is None or is_trusted(owner.cls.__module__) or name not in ("value", "_value_"):
        return None
    same = "_value_" in entries and folding.real(tx, getattr, owner.value, name) is entries["_value_"]
    return instance_store.own_source(tx, owner, "_value_") if same else None


def _missing(tx: Tracer, owner: Object, name: str, fallback: bool) -> Value:
    """Ask `__getattr__`, or raise."""
    cls = owner.cls
    hook = tx.classes.find(cls, "__getattr__") if fallback else None
    if hook is not None:
        instance_store.guard_not_in_instance(tx, owner, name)
        try:
            return _ask(tx, owner, "__getattr__", hook[0], name)
        except Raised as raised:
            if raised.is_a(AttributeError):
                instance_store.guard_absent(tx, owner, name)
            raise
    if not fallback:
        instance_store.guard_absent(tx, owner, name)
    # of an attribute that was deleted before, the start tells nothing
    if owner.source is not None and fallback and name not in owner.written:
        tx.guards.add(HasAttributeGuard, owner.source, name, False)
    tx.raising.error(AttributeError, f"{cls.__name__!r} object has no attribute {name!r}")


def is_native(raw: Any, special: str) -> bool:
    """Tell whether a class has the special method of a base written in C, under its own name."""
    return isinstance(raw, types.WrapperDescriptorType) and raw.__name__ == special


def _ask(tx: Tracer, owner: Object, special: str, raw: Any, name: str) -> Value:
    """Call what a class has for `__getattr__` or one like it: a function, or a method of a base written in C."""
    if isinstance(raw, types.FunctionType):
        return do.call(tx, tx.live.class_function(owner, owner.cls, special), [owner, Const(name)], {})
    if isinstance(raw, (types.WrapperDescriptorType, types.MethodDescriptorType)):
        return do.call_method(tx, owner, special, [Const(name)], {})
    raise Break("tracer.attribute", f"{owner.describe()} has a {special} that isn't a function")


def check_class_method(raw: Any, name: str) -> None:
    """Refuse a class method of what binds in a way of its own, such as of another class method or a property.

    Raises:
        Break: It is one.
    """
    wrapped = raw.__func__
    if not isinstance(wrapped, (types.FunctionType, _CACHED)) and hasattr(type(wrapped), "__get__"):
        raise Break("tracer.attribute", f"{name!r} is a class method of a {type(wrapped).__name__}")


def bound_to_instance(tx: Tracer, owner: Value, cls: Any, name: str, raw: Any) -> Value:
    """Bind what was found in the class, and isn't a data descriptor, to the instance."""
    if issubclass(type(raw), (types.FunctionType, _CACHED)):
        instance_store.guard_not_in_instance(tx, owner, name)
        return BoundMethod(tx.live.class_function(owner, cls, name), owner)
    if issubclass(type(raw), staticmethod):
        instance_store.guard_not_in_instance(tx, owner, name)
        return tx.live.class_function(owner, cls, name, "__func__")
    if issubclass(type(raw), classmethod):
        instance_store.guard_not_in_instance(tx, owner, name)
        check_class_method(raw, name)
        return BoundMethod(
            tx.live.class_function(owner, cls, name, "__func__"), tx.live.wrap(cls, tx.classes.place_of(owner, cls))
        )
    if issubclass(type(raw), property):
        return do.call(tx, tx.live.class_function(owner, cls, name, "fget"), [owner], {})
    if issubclass(type(raw), functools.cached_property):
        instance_store.guard_absent(tx, owner, name)
        value = do.call(tx, tx.live.class_function(owner, cls, name, "func"), [owner], {})
        instance_store.write_attribute(tx, cast(Object, owner), name, value)
        return value
    if issubclass(type(raw), types.ClassMethodDescriptorType):
        return BoundBuiltin(tx.live.wrap(cls, tx.classes.place_of(owner, cls)), name, raw)
    if issubclass(type(raw), _C_METHODS):
        _, index = tx.classes.find(cls, name) or (raw, 0)
        tx.classes.rely_on_passing_over(owner, cls, index, name)
        return BoundBuiltin(owner, raw.__name__, raw)
    if issubclass(type(raw), functools.partialmethod) or type(raw) is functools.partial:
        raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is a {type(raw).__name__}")
    getter = tx.classes.find(type(raw), "__get__")
    if getter is None or issubclass(type(raw), type):
        return tx.live.wrap(raw, attribute_source(tx, owner, name))
    if isinstance(getter[0], types.FunctionType):
        instance_store.guard_absent(tx, owner, name)
        descriptor = class_descriptor(tx, owner, cls, name, raw)
        function = tx.live.class_function(descriptor, type(raw), "__get__")
        return do.call(tx, function, [descriptor, owner, tx.live.wrap(cls, None)], {})
    raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is a {type(raw).__name__}")


def _from_data_descriptor(tx: Tracer, owner: Object, name: str, raw: Any) -> Value:
    """Read a property, a slot, or another descriptor that has `__set__`."""
    if issubclass(type(raw), property):
        if raw.fget is None:
            raise Break("tracer.exception", f"property {name!r} of {owner.describe()} can't be read")
        return do.call(tx, tx.live.class_function(owner, owner.cls, name, "fget"), [owner], {})
    if issubclass(owner.cls, BaseException) and hasattr(raw, "__objclass__") and not raw.__objclass__.__flags__ & _HEAP:
        return exception_attribute(tx.raising, owner, name)
    if issubclass(type(raw), types.MemberDescriptorType):
        return _slot(tx, owner, name, raw)
    getter = tx.classes.find(type(raw), "__get__")
    if getter is not None and isinstance(getter[0], types.FunctionType):
        descriptor = class_descriptor(tx, owner, owner.cls, name, raw)
        function = tx.live.class_function(descriptor, type(raw), "__get__")
        return do.call(tx, function, [descriptor, owner, tx.live.wrap(owner.cls, None)], {})
    if owner.foreign is not None:
        raise Break(owner.foreign.code, f"{name!r} of {owner.foreign.what} is read")
    raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is a {type(raw).__name__}")


def class_descriptor(tx: Tracer, owner: Value, cls: Any, name: str, raw: Any) -> Value:
    """Model a descriptor of a class, whose own state may change: it is found in the class that defines it."""
    _, index = tx.classes.find(cls, name) or (raw, 0)
    tx.classes.rely_on_passing_over(owner, cls, index, name)
    home = None if is_trusted(cls.__mro__[index].__module__) else tx.classes.place_in_order(owner, cls, index)
    source = None if home is None else tx.sources.item(tx.sources.attribute(home, "__dict__"), name)
    return tx.live.wrap(raw, source)


def _slot(tx: Tracer, owner: Object, name: str, raw: Any) -> Value:
    """Read a slot."""
    content = owner.written.get(name) if name in owner.written else owner.read.get(name)
    if content is not None:
        return content
    if name in owner.written or not owner.existing:
        tx.raising.error(AttributeError, f"{owner.cls.__name__!r} object has no attribute {name!r}")
    plain = is_plain_lookup(owner.cls)
    if owner.source is not None and not _is_filled(raw, owner.value):
        if tx.classes.find(owner.cls, "__getattr__") is not None or not plain:
            raise Break("tracer.attribute", f"the slot {name!r} of {owner.describe()} is empty, and its class is asked")
        tx.guards.add(HasAttributeGuard, owner.source, name, False)
    value = folding.real(tx, raw.__get__, owner.value, owner.cls)
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


def exception_attribute(raising: Raising, owner: Object, name: str) -> Value:
    """Read an attribute that exceptions have in C."""
    if name == "args" and owner.base is not None:
        return owner.base
    created_here = not owner.existing and isinstance(owner.base, Tuple)
    if name == "value" and created_here and issubclass(owner.cls, StopIteration):
        assert isinstance(owner.base, Tuple)
        return owner.base.items[0] if owner.base.items else Const(None)
    if name == "message" and "exceptions" in owner.read and isinstance(owner.base, Tuple):
        return owner.base.items[0]
    if name == "exceptions" and name in owner.read:
        return owner.read[name]
    if name in owner.written:
        attribute = owner.written[name] or Const(None)
        if not isinstance(attribute, HandledByCaller):
            return attribute
        raising.rely_on_calm_caller()
        return Const(None)
    if name in ("__cause__", "__context__") and not owner.existing:
        return Const(None)
    raise Break("tracer.attribute", f"attribute {name!r} of {owner.describe()} isn't modelled")


def attribute_source(tx: Tracer, owner: Value, name: str) -> Source | None:
    """Return `owner.name` as a source, or through the class of an object made while tracing."""
    if owner.source is not None and isinstance(owner, Object) and not is_plain_lookup(owner.cls):
        return tx.sources.plain_attribute(owner.source, name)  # its `__getattribute__` was evaluated
    if owner.source is not None:
        return tx.sources.attribute(owner.source, name)
    if not isinstance(owner, (Object, MadeClass)):
        return None
    cls = owner.cls if isinstance(owner, Object) else owner.value
    base = tx.classes.place(cls)
    return tx.sources.attribute(base, name) if base is not None else _inherited_source(tx, owner, cls, name)


def _inherited_source(tx: Tracer, owner: Value, cls: Any, name: str) -> Source | None:
    """Return where an attribute of a class that was made while tracing is found in one of its bases."""
    definition = tx.classes.find(cls, name)
    if definition is None:
        return None
    tx.classes.rely_on_passing_over(owner, cls, definition[1], name)
    home = tx.classes.place_in_order(owner, cls, definition[1])
    return None if home is None else tx.sources.attribute(home, name)


def call_python(tx: Tracer, owner: Value, name: str, args: Sequence[Value]) -> Value:
    """Call a special method that the class defines in Python."""
    return do.call(tx, tx.live.class_function(owner, owner.type(), name), [owner, *args], {})


# -- hashing -------------------------------------------------------------------------------------------------


def hash_is_safe(extension: Extension, cls: Any) -> bool:
    """Tell whether hashing and comparing objects of a class runs no user code."""
    return cls.__hash__ in _SAFE_HASHES or extension.is_atom(cls)


def object_hash_key(identities: Identities, owner: Object) -> Hashable | None:
    """Return what stands for an instance as a key; None where its class has a hash of its own."""
    if owner.cls.__hash__ is object.__hash__ and owner.cls.__eq__ is object.__eq__:
        identities.note(owner)
        key: Hashable = owner.value if owner.existing else owner
        return key
    if issubclass(type(owner.value), enum.Enum) and owner.cls.__hash__ in _SAFE_HASHES:
        member: Hashable = owner.value
        return member
    return None
