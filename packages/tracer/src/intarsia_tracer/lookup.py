"""Attribute lookup on models, following CPython's rules without running user code behind the evaluator's back."""

from __future__ import annotations

import enum
import functools
import threading
import types
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from intarsia_ir.records import GuardKind, Source
from intarsia_tracer.breaks import Break, Raised
from intarsia_tracer.trust import STABLE, is_trusted
from intarsia_tracer.values.base import Value
from intarsia_tracer.values.constants import Const
from intarsia_tracer.values.functions import BoundBuiltin, BoundMethod, Function, Globals
from intarsia_tracer.values.mappings import Dict
from intarsia_tracer.values.objects import ClassValue, InstanceDict, ModuleValue, Object, Super, Traceback
from intarsia_tracer.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_tracer.tracer import Tracer

__all__ = [
    "bound_to_instance",
    "check_no_arguments",
    "class_attribute",
    "class_attribute_for",
    "class_function",
    "class_item",
    "class_iterate",
    "class_source",
    "exception_attribute",
    "find_in_class",
    "function_attribute",
    "guard_not_in_instance",
    "hash_is_safe",
    "instance_attribute",
    "instance_dict",
    "module_attribute",
    "module_globals",
    "object_attribute",
    "object_hash_key",
    "object_set_attribute",
    "object_slot",
    "owner_written",
    "plain_attribute",
    "plain_set_attribute",
    "real_dict",
    "super_attribute",
    "write_attribute",
]

_C_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.BuiltinFunctionType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
)
_C_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_SAFE_HASHES = frozenset(
    {object.__hash__, type.__hash__, str.__hash__, int.__hash__, float.__hash__, enum.Enum.__hash__, tuple.__hash__}
)
_CLASS_FACTS = frozenset(
    {"__name__", "__qualname__", "__module__", "__doc__", "__mro__", "__bases__", "__base__", "__basicsize__",
     "__flags__", "__itemsize__", "__abstractmethods__", "__text_signature__", "__dictoffset__"}
)  # fmt: skip
_EXCEPTION_STATE = frozenset({"__cause__", "__context__", "__suppress_context__", "__traceback__"})


# -- classes -------------------------------------------------------------------------------------------------


def find_in_class(tx: Tracer, cls: Any, name: str) -> tuple[Any, int] | None:
    """Return what the class or a base defines under `name`, and the position of the base in the MRO."""
    key = (cls, name)
    if key in tx.class_lookups:
        return tx.class_lookups[key]
    found = None
    for index, base in enumerate(cls.__mro__):
        names = base.__dict__
        if name in names:
            found = names[name], index
            break
    tx.class_lookups[key] = found
    return found


def class_source(tx: Tracer, owner: Value, cls: Any) -> Source | None:
    """Return where the class of `owner` is found."""
    if isinstance(owner, ClassValue):
        return owner.source
    if owner.source is not None:
        return tx.sources.type_of(owner.source)
    return tx.reference_sources.get(id(cls))


def class_function(tx: Tracer, owner: Value, cls: Any, name: str, part: str = "") -> Value:
    """Return the function that a class defines, or a part of its property, with a source to guard it by."""
    key = (cls, name, part)
    known = tx.class_functions.get(key)
    if known is not None:
        return known
    found = tx.find_in_class(cls, name)
    assert found is not None
    raw, index = found
    value = getattr(raw, part) if part else raw
    base = None if is_trusted(getattr(value, "__module__", None)) else tx.class_source(owner, cls)
    source = None
    if base is not None and not part and isinstance(raw, types.FunctionType):
        source = tx.sources.attribute(base, name)
    elif base is not None:
        order = tx.sources.attribute(base, "__mro__")
        names = tx.sources.attribute(tx.sources.item(order, index), "__dict__")
        source = tx.sources.item(names, name)
        source = tx.sources.attribute(source, part) if part else source
    made = tx.wrap(value, source)
    tx.class_functions[key] = made
    return made


def class_attribute(tx: Tracer, owner: ClassValue, name: str) -> Value:
    """Model an attribute of a class."""
    cls = owner.value
    if name == "__class__":
        return tx.wrap(type(cls), None)
    if name in _CLASS_FACTS:
        return tx.wrap(tx.real(getattr, cls, name), None)
    if name == "__dict__":
        return tx.wrap(cls.__dict__, _attribute_source(tx, owner, name))
    if isinstance(cls, enum.EnumMeta) and name in cls.__members__:
        return tx.wrap(cls.__members__[name], _attribute_source(tx, owner, name))
    if name in owner_written(tx, owner):
        return owner_written(tx, owner)[name]
    found = tx.find_in_class(cls, name)
    if found is not None:
        return _bound_to_class(tx, owner, cls, name, found[0])
    return _metaclass_attribute(tx, owner, name)


def _bound_to_class(tx: Tracer, owner: ClassValue, cls: Any, name: str, raw: Any) -> Value:
    """Bind what was found in the class to the class."""
    if isinstance(raw, types.FunctionType):
        return tx.class_function(owner, cls, name)
    if isinstance(raw, staticmethod):
        return tx.class_function(owner, cls, name, "__func__")
    if isinstance(raw, classmethod):
        return BoundMethod(tx.class_function(owner, cls, name, "__func__"), owner)
    if isinstance(raw, _C_DESCRIPTORS) or type(raw) in _PASSIVE:
        return tx.wrap(tx.real(getattr, cls, name), None)
    getter = tx.find_in_class(type(raw), "__get__")
    if getter is None:
        return tx.wrap(raw, _attribute_source(tx, owner, name))
    if isinstance(getter[0], types.FunctionType):
        descriptor = tx.wrap(raw, None)
        return tx.call(tx.class_function(descriptor, type(raw), "__get__"), [descriptor, Const(None), owner], {})
    raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is a {type(raw).__name__}")


def _metaclass_attribute(tx: Tracer, owner: ClassValue, name: str) -> Value:
    """Look in the metaclass."""
    cls = owner.value
    found = tx.find_in_class(type(cls), name)
    if found is not None and isinstance(found[0], types.FunctionType):
        return BoundMethod(tx.wrap(found[0], None), owner)
    if found is not None and isinstance(found[0], _C_DESCRIPTORS):
        return BoundBuiltin(owner, name) if name in ("mro", "__subclasses__") else tx.wrap(getattr(cls, name), None)
    if found is not None or hasattr(type(cls), "__getattr__"):
        raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is looked up by its metaclass")
    if owner.source is not None:
        tx.guards.add(GuardKind.HAS_ATTRIBUTE, owner.source, (name, False))
    tx.raise_error(AttributeError, f"type object {cls.__name__!r} has no attribute {name!r}")


def class_attribute_for(tx: Tracer, owner: Value, cls: Any, name: str) -> Value:
    """Model an attribute that an instance without own state finds in its class."""
    found = tx.find_in_class(cls, name)
    if name == "__class__":
        return tx.wrap(cls, None)
    if found is None:
        tx.raise_error(AttributeError, f"{cls.__name__!r} object has no attribute {name!r}")
    return tx.bound_to_instance(owner, cls, name, found[0])


def class_item(tx: Tracer, owner: ClassValue, key: Value) -> Value:
    """Model `cls[key]`."""
    cls = owner.value
    if isinstance(cls, enum.EnumMeta):
        return tx.wrap(tx.real(cls.__getitem__, key.as_python()), None)
    found = tx.find_in_class(cls, "__class_getitem__")
    if found is not None and is_trusted(cls.__module__):
        return tx.wrap(tx.real(lambda: cls[tx.index(key)]), None)
    raise Break("tracer.operator", f"subscripting {owner.describe()} isn't modelled")


def class_iterate(tx: Tracer, owner: ClassValue) -> Value:
    """Iterate over an enumeration."""
    if isinstance(owner.value, enum.EnumMeta):
        members: list[Any] = list(owner.value)
        return tx.iterator_over(Tuple([tx.wrap(member, None) for member in members]))
    raise Break("tracer.iterator", f"iterating over {owner.describe()} isn't modelled")


# -- instances -----------------------------------------------------------------------------------------------


def object_attribute(tx: Tracer, owner: Object, name: str) -> Value:
    """Model an attribute of an instance, `__getattribute__` and `__getattr__` included."""
    found = tx.extension.attribute(tx, owner, name)
    if found is not None:
        return found
    getter = tx.find_in_class(owner.cls, "__getattribute__")
    if getter is None or not isinstance(getter[0], types.FunctionType):
        return tx.plain_attribute(owner, name)
    function = tx.class_function(owner, owner.cls, "__getattribute__")
    try:
        return tx.call(function, [owner, Const(name)], {})
    except Raised as raised:
        fallback = tx.find_in_class(owner.cls, "__getattr__")
        if fallback is None or not tx.is_exception(raised.value, AttributeError):
            raise
        return tx.call(tx.class_function(owner, owner.cls, "__getattr__"), [owner, Const(name)], {})


def plain_attribute(tx: Tracer, owner: Object, name: str, fallback: bool = True) -> Value:
    """Model `object.__getattribute__`, then `__getattr__`."""
    cls = owner.cls
    if name == "__class__" and (tx.find_in_class(cls, name) or (None,))[0] is vars(object)["__class__"]:
        return tx.wrap(cls, tx.class_source(owner, cls))
    if name == "__dict__" and cls.__dictoffset__ != 0:
        return InstanceDict(owner)
    if isinstance(owner.value, enum.Enum) and name in ("name", "value", "_name_", "_value_"):
        return tx.wrap(tx.real(getattr, owner.value, name), None)
    found = tx.find_in_class(cls, name)
    raw = found[0] if found else None
    if found is not None and _is_data_descriptor(raw):
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
    hook = tx.find_in_class(cls, "__getattr__") if fallback else None
    if hook is not None:
        if not isinstance(hook[0], types.FunctionType):
            raise Break("tracer.attribute", f"{owner.describe()} has a __getattr__ that isn't a function")
        tx.guard_not_in_instance(owner, name)
        return tx.call(tx.class_function(owner, cls, "__getattr__"), [owner, Const(name)], {})
    if owner.source is not None and fallback:
        tx.guards.add(GuardKind.HAS_ATTRIBUTE, owner.source, (name, False))
    tx.raise_error(AttributeError, f"{cls.__name__!r} object has no attribute {name!r}")


def bound_to_instance(tx: Tracer, owner: Value, cls: Any, name: str, raw: Any) -> Value:
    """Bind what was found in the class, and isn't a data descriptor, to the instance."""
    if isinstance(raw, types.FunctionType):
        tx.guard_not_in_instance(owner, name)
        return BoundMethod(tx.class_function(owner, cls, name), owner)
    if isinstance(raw, staticmethod):
        tx.guard_not_in_instance(owner, name)
        return tx.class_function(owner, cls, name, "__func__")
    if isinstance(raw, classmethod):
        tx.guard_not_in_instance(owner, name)
        return BoundMethod(tx.class_function(owner, cls, name, "__func__"), tx.wrap(cls, tx.class_source(owner, cls)))
    if isinstance(raw, property):
        return tx.call(tx.class_function(owner, cls, name, "fget"), [owner], {})
    if isinstance(raw, functools.cached_property):
        value = tx.call(tx.class_function(owner, cls, name, "func"), [owner], {})
        tx.write_attribute(cast(Object, owner), name, value)
        return value
    if isinstance(raw, _C_METHODS):
        return BoundBuiltin(owner, name, raw)
    if isinstance(raw, functools.partialmethod) or type(raw) is functools.partial:
        raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is a {type(raw).__name__}")
    getter = tx.find_in_class(type(raw), "__get__")
    if getter is None or isinstance(raw, type):
        return tx.wrap(raw, _attribute_source(tx, owner, name))
    if isinstance(getter[0], types.FunctionType):
        descriptor = tx.wrap(raw, None)
        function = tx.class_function(descriptor, type(raw), "__get__")
        return tx.call(function, [descriptor, owner, tx.wrap(cls, None)], {})
    raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is a {type(raw).__name__}")


def _from_data_descriptor(tx: Tracer, owner: Object, name: str, raw: Any) -> Value:
    """Read a property, a slot, or another descriptor that has `__set__`."""
    if isinstance(raw, property):
        if raw.fget is None:
            raise Break("tracer.exception", f"property {name!r} of {owner.describe()} can't be read")
        return tx.call(tx.class_function(owner, owner.cls, name, "fget"), [owner], {})
    if issubclass(owner.cls, BaseException) and hasattr(raw, "__objclass__") and not raw.__objclass__.__flags__ & _HEAP:
        return tx.exception_attribute(owner, name)
    if isinstance(raw, types.MemberDescriptorType):
        return _slot(tx, owner, name, raw)
    getter = tx.find_in_class(type(raw), "__get__")
    if getter is not None and isinstance(getter[0], types.FunctionType):
        descriptor = tx.wrap(raw, None)
        function = tx.class_function(descriptor, type(raw), "__get__")
        return tx.call(function, [descriptor, owner, tx.wrap(owner.cls, None)], {})
    raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is a {type(raw).__name__}")


def _slot(tx: Tracer, owner: Object, name: str, raw: Any) -> Value:
    """Read a slot."""
    found = owner.written.get(name) if name in owner.written else owner.read.get(name)
    if found is not None:
        return found
    if name in owner.written or not owner.existing:
        tx.raise_error(AttributeError, f"{owner.cls.__name__!r} object has no attribute {name!r}")
    value = tx.real(raw.__get__, owner.value, owner.cls)
    source = None if owner.source is None else tx.sources.attribute(owner.source, name)
    model = owner.read[name] = tx.wrap(value, source)
    return model


def exception_attribute(tx: Tracer, owner: Object, name: str) -> Value:
    """Read an attribute that exceptions have in C."""
    if name == "args" and owner.base is not None:
        return owner.base
    if name == "value" and issubclass(owner.cls, StopIteration) and isinstance(owner.base, Tuple):
        return owner.base.items[0] if owner.base.items else Const(None)
    if name in owner.written:
        return owner.written[name] or Const(None)
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
        getter = tx.find_in_class(owner.cls, "__getattribute__")
        plain = getter is None or not isinstance(getter[0], types.FunctionType)
        names = None if plain else tx.sources.attribute(owner.source, "__dict__")
        source = tx.sources.attribute(owner.source, name) if names is None else tx.sources.item(names, name)
    model = owner.read[name] = tx.wrap(own[name], source)
    return model


def instance_dict(tx: Tracer, owner: Object) -> Dict:
    """Return all entries of the instance's own dict as a copy."""
    names: dict[str, None] = {}
    if owner.existing:
        own = real_dict(owner.value) or {}
        names = dict.fromkeys(own)
        if owner.source is not None:
            tx.guards.add(GuardKind.DICT_KEYS, tx.sources.attribute(owner.source, "__dict__"), tuple(own))
    names.update(dict.fromkeys(owner.written))
    entries: dict[Hashable, tuple[Value, Value]] = {}
    for name in names:
        value = tx.instance_attribute(owner, name)
        if value is not None:
            entries[name] = (Const(name), value)
    return Dict(entries)


def guard_not_in_instance(tx: Tracer, owner: Value, name: str) -> None:
    """Rely on the instance not shadowing what its class defines."""
    if not isinstance(owner, Object) or owner.source is None or owner.cls.__dictoffset__ == 0:
        return
    if is_trusted(owner.cls.__module__) and name != "forward":
        return
    tx.guards.add(GuardKind.ABSENT, tx.sources.attribute(owner.source, "__dict__"), name)


def _attribute_source(tx: Tracer, owner: Value, name: str) -> Source | None:
    """Return `owner.name` as a source, or through the class of an object made while tracing."""
    if owner.source is not None:
        return tx.sources.attribute(owner.source, name)
    if isinstance(owner, Object):
        base = tx.reference_sources.get(id(owner.cls))
        return None if base is None else tx.sources.attribute(base, name)
    return None


# -- setting -------------------------------------------------------------------------------------------------


def object_set_attribute(tx: Tracer, owner: Object, name: str, value: Value | None) -> None:
    """Model setting (or, with None, deleting) an attribute of an instance."""
    if tx.extension.set_attribute(tx, owner, name, value):
        return
    special = "__delattr__" if value is None else "__setattr__"
    found = tx.find_in_class(owner.cls, special)
    if found is not None and isinstance(found[0], types.FunctionType):
        rest = [] if value is None else [value]
        tx.call(tx.class_function(owner, owner.cls, special), [owner, Const(name), *rest], {})
        return
    tx.plain_set_attribute(owner, name, value)


def plain_set_attribute(tx: Tracer, owner: Object, name: str, value: Value | None) -> None:
    """Model `object.__setattr__` and `object.__delattr__`."""
    found = tx.find_in_class(owner.cls, name)
    raw = found[0] if found else None
    if found is None or not _is_data_descriptor(raw):
        if owner.cls.__dictoffset__ == 0:
            tx.raise_error(AttributeError, f"{owner.cls.__name__!r} object has no attribute {name!r}")
        tx.write_attribute(owner, name, value)
    elif isinstance(raw, property):
        part = "fdel" if value is None else "fset"
        if getattr(raw, part) is None:
            raise Break("tracer.exception", f"property {name!r} of {owner.describe()} can't be set")
        function = tx.class_function(owner, owner.cls, name, part)
        tx.call(function, [owner] if value is None else [owner, value], {})
    elif isinstance(raw, types.MemberDescriptorType):
        tx.write_attribute(owner, name, value)
    elif issubclass(owner.cls, BaseException) and name in _EXCEPTION_STATE and not owner.existing:
        plain = isinstance(value, (Object, Traceback)) or (
            isinstance(value, Const) and value.value in (None, True, False)
        )
        if not plain:
            raise Break("tracer.exception", f"{name} of an exception is set to something else")
        tx.changes += 1
        owner.written[name] = value
    else:
        _set_by_descriptor(tx, owner, name, raw, value)


def _set_by_descriptor(tx: Tracer, owner: Object, name: str, raw: Any, value: Value | None) -> None:
    """Call `__set__` or `__delete__` of a user's descriptor."""
    special = "__delete__" if value is None else "__set__"
    found = tx.find_in_class(type(raw), special)
    if found is None or not isinstance(found[0], types.FunctionType):
        raise Break("tracer.mutation", f"setting {name!r} of {owner.describe()} isn't modelled")
    descriptor = tx.wrap(raw, None)
    rest = [] if value is None else [value]
    tx.call(tx.class_function(descriptor, type(raw), special), [descriptor, owner, *rest], {})


def write_attribute(tx: Tracer, owner: Object, name: str, value: Value | None) -> None:
    """Set an entry of the instance's own dict (or a slot), to be stored after the graph."""
    if value is None:
        known = owner.written.get(name) if name in owner.written else tx.instance_attribute(owner, name)
        if known is None and not (owner.existing and hasattr(owner.value, name)):
            tx.raise_error(AttributeError, name)
    tx.changed(owner)
    if value is None and not (owner.existing and _really_has(owner.value, name)):
        owner.written.pop(name, None)
    else:
        owner.written[name] = value


def object_slot(
    tx: Tracer, owner: Object, raw: Any, name: str, args: Sequence[Value], keywords: Mapping[str, Value]
) -> Value | None:
    """Model a method written in C that an instance has from `object`, or of a known object; None for any other."""
    if owner.cls in LOCKS:
        return use_lock(tx, owner, name)
    home = getattr(raw, "__objclass__", None)
    if home in (object, BaseException, None) or (name == "__init__" and issubclass(owner.cls, BaseException)):
        return _slot_of_object(tx, owner, raw, name, args, keywords)
    if isinstance(owner.value, enum.Enum):
        return tx.call_pure(raw, [owner, *args], dict(keywords))
    return None


def home_is_object(raw: Any) -> bool:
    """Tell whether a method written in C is one of `object` itself."""
    return getattr(raw, "__objclass__", None) is object


def check_no_arguments(tx: Tracer, cls: Any, mine: str, other: str) -> None:
    """Break where `object` refuses arguments: if its `mine` is overridden, or its `other` isn't."""
    own, others = tx.find_in_class(cls, mine), tx.find_in_class(cls, other)
    plain = own is not None and own[0] is vars(object)[mine]
    if not plain or (others is not None and others[0] is vars(object)[other]):
        raise Break("tracer.exception", f"class {cls.__qualname__} takes no arguments")


def _slot_of_object(
    tx: Tracer, owner: Object, raw: Any, name: str, args: Sequence[Value], keywords: Mapping[str, Value]
) -> Value | None:
    """Model a method of `object` or BaseException."""
    if name == "__init__":
        if home_is_object(raw) and (args or keywords):
            tx.check_no_arguments(owner.cls, "__init__", "__new__")
        if issubclass(owner.cls, BaseException):
            if keywords:
                raise Break("tracer.call", f"{owner.describe()} is made with keywords")
            tx.changes += 1
            owner.base = Tuple(args)
        return Const(None)
    if name == "__init_subclass__":
        return Const(None)
    if name == "__setattr__":
        tx.plain_set_attribute(owner, str(args[0].as_python()), args[1])
        return Const(None)
    if name == "__delattr__":
        tx.plain_set_attribute(owner, str(args[0].as_python()), None)
        return Const(None)
    if name == "__getattribute__":
        return tx.plain_attribute(owner, str(args[0].as_python()), fallback=False)
    if name in ("__eq__", "__ne__"):
        return Const(name == "__eq__") if tx.same(owner, args[0]) else Const(NotImplemented)
    if name in ("__str__", "__repr__") and issubclass(owner.cls, BaseException):
        return tx.exception_text(owner, name, raw)
    return tx.object_text(owner, "__repr__") if name == "__str__" else None


def use_lock(tx: Tracer, owner: Object, name: str) -> Value | None:
    """Take a lock that nobody holds, or release one that was taken while tracing; anything else isn't modelled.

    Effects are carried out later, in one go, so a lock taken and released again needs no code.
    """
    if name in ("__enter__", "acquire") and owner not in tx.locks and "unlocked" in repr(owner.value):
        tx.changes += 1
        tx.locks[owner] = None
        return Const(True)
    if name in ("__exit__", "release") and owner in tx.locks:
        tx.changes += 1
        del tx.locks[owner]
        return Const(None)
    raise Break("tracer.call", f"method {name!r} of {owner.describe()} isn't modelled in this state")


# -- functions, modules, super -------------------------------------------------------------------------------


def function_attribute(tx: Tracer, owner: Function, name: str) -> Value:
    """Read an attribute of an existing function."""
    value = owner.value
    if name == "__globals__":
        return owner.global_names(tx)
    if not hasattr(value, name):
        if owner.source is not None and not owner.trusted():
            tx.guards.add(GuardKind.HAS_ATTRIBUTE, owner.source, (name, False))
        tx.raise_error(AttributeError, f"'function' object has no attribute {name!r}")
    if name in ("__call__", "__get__"):
        return BoundBuiltin(owner, name)
    source = owner.source_of(name, tx)
    if name == "__dict__" and source is None and owner.source is not None:
        source = tx.sources.attribute(owner.source, name)
    return tx.wrap(getattr(value, name), source)


def module_globals(tx: Tracer, owner: ModuleValue) -> Globals:
    """Return the namespace of a module."""
    source = None
    if owner.source is not None and not is_trusted(owner.value.__name__):
        source = tx.sources.attribute(owner.source, "__dict__")
    return tx.globals_of(owner.value.__dict__, source)


def module_attribute(tx: Tracer, owner: ModuleValue, name: str) -> Value:
    """Read a global of a module. Functions and classes of trusted modules aren't guarded."""
    module = owner.value
    pending = tx.known.get(id(module.__dict__))
    if isinstance(pending, Globals) and not pending.frame:
        found = pending.find(tx, name)
        if found is not None:
            return found
    if name not in module.__dict__:
        return _lazy_module_attribute(tx, owner, name)
    value = module.__dict__[name]
    if is_trusted(module.__name__) and isinstance(value, STABLE):
        return tx.wrap(value, None)
    source = None if owner.source is None else tx.sources.attribute(owner.source, name)
    return tx.wrap(value, source)


def _lazy_module_attribute(tx: Tracer, owner: ModuleValue, name: str) -> Value:
    """Read what a module computes: submodules that are loaded, or its `__getattr__`."""
    module = owner.value
    if type(module) is types.ModuleType and "__getattr__" not in module.__dict__ and not hasattr(module, name):
        if owner.source is not None and not is_trusted(module.__name__):
            tx.guards.add(GuardKind.HAS_ATTRIBUTE, owner.source, (name, False))
        tx.raise_error(AttributeError, f"module {module.__name__!r} has no attribute {name!r}")
    hook = module.__dict__.get("__getattr__")
    if isinstance(hook, types.FunctionType) and not is_trusted(module.__name__):
        return tx.call(tx.wrap(hook, None), [Const(name)], {})
    if is_trusted(module.__name__) and hasattr(module, name):
        return tx.wrap(getattr(module, name), None)
    if hasattr(types.ModuleType, name):
        return tx.wrap(getattr(module, name), None)
    raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is computed by the module")


def super_attribute(tx: Tracer, owner: Super, name: str) -> Value:
    """Look an attribute up in the classes after `owner.after`."""
    bound = owner.owner
    of_class = isinstance(bound, ClassValue) and issubclass(bound.value, owner.after)
    cls = bound.value if of_class and isinstance(bound, ClassValue) else bound.type()
    order: Sequence[Any] = cls.__mro__
    if owner.after not in order:
        raise Break("tracer.exception", f"super({owner.after.__name__}, ...) is called with {bound.describe()}")
    for base in order[order.index(owner.after) + 1 :]:
        if name in base.__dict__:
            return _bound_by_super(tx, owner, bound, cls, base, name, of_class)
    if name == "__class__":
        return tx.wrap(super, None)
    tx.raise_error(AttributeError, f"'super' object has no attribute {name!r}")


def _bound_by_super(tx: Tracer, owner: Super, bound: Value, cls: Any, base: Any, name: str, of_class: bool) -> Value:
    """Bind what `super()` found in `base`."""
    raw = base.__dict__[name]
    model = _base_class(tx, bound, cls, base)
    if isinstance(raw, types.FunctionType):
        function = tx.class_function(model, base, name)
        return function if of_class else BoundMethod(function, bound)
    if isinstance(raw, staticmethod):
        return (
            tx.class_function(model, base, name, "__func__")
            if isinstance(raw.__func__, types.FunctionType)
            else tx.wrap(raw.__func__, None)
        )
    if isinstance(raw, classmethod):
        first = bound if of_class else tx.wrap(cls, tx.class_source(bound, cls))
        return BoundMethod(tx.class_function(model, base, name, "__func__"), first)
    if isinstance(raw, property):
        return tx.call(tx.class_function(model, base, name, "fget"), [bound], {})
    if isinstance(raw, _C_DESCRIPTORS):
        if isinstance(raw, types.ClassMethodDescriptorType):
            return BoundBuiltin(bound if of_class else tx.wrap(cls, tx.class_source(bound, cls)), name, raw)
        return tx.wrap(raw, None) if of_class or name == "__new__" else BoundBuiltin(bound, name, raw)
    if tx.find_in_class(type(raw), "__get__") is None:
        return tx.wrap(raw, None if model.source is None else tx.sources.attribute(model.source, name))
    raise Break("tracer.attribute", f"super().{name} is a {type(raw).__name__}")


def _base_class(tx: Tracer, bound: Value, cls: Any, base: Any) -> ClassValue:
    """Return the model of a base class of an object's class."""
    source = tx.class_source(bound, cls)
    if source is not None:
        source = tx.sources.item(tx.sources.attribute(source, "__mro__"), cls.__mro__.index(base))
    return ClassValue(base, source)


# -- hashing -------------------------------------------------------------------------------------------------


def hash_is_safe(tx: Tracer, cls: Any) -> bool:
    """Tell whether hashing and comparing objects of a class runs no user code."""
    return cls.__hash__ in _SAFE_HASHES or tx.extension.is_atom(cls)


def object_hash_key(tx: Tracer, owner: Object) -> Hashable:
    """Return what stands for an instance as a key."""
    if owner.cls.__hash__ is object.__hash__ and owner.cls.__eq__ is object.__eq__:
        key: Hashable = owner.value if owner.existing else owner
        return key
    if isinstance(owner.value, enum.Enum) and owner.cls.__hash__ in _SAFE_HASHES:
        return owner.value
    raise Break("tracer.hashing", f"{owner.describe()} is used as a key")


def owner_written(tx: Tracer, owner: ClassValue) -> dict[str, Value]:
    """Return attributes of a class that traced code set. Setting them breaks today, so there are none."""
    return {}


def real_dict(value: Any) -> dict[str, Any] | None:
    """Return the instance dict of an object, without running its `__getattribute__`."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def _really_has(value: Any, name: str) -> bool:
    """Tell whether a real object has an attribute of its own, in its dict or a slot."""
    own = real_dict(value)
    if own is not None and name in own:
        return True
    slot = next((vars(cls)[name] for cls in type(value).__mro__ if name in vars(cls)), None)
    return isinstance(slot, types.MemberDescriptorType) and hasattr(value, name)


def _is_data_descriptor(raw: Any) -> bool:
    """Tell whether a class attribute takes precedence over the instance dict."""
    kind = type(raw)
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")


LOCKS = frozenset({type(threading.Lock()), type(threading.RLock())})
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: set for classes written in Python
_PASSIVE = frozenset({property, types.MemberDescriptorType, types.GetSetDescriptorType, functools.cached_property})
