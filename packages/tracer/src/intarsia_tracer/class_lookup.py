"""Attribute lookup on classes, `super()`, functions and modules."""

from __future__ import annotations

import abc
import enum
import functools
import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_ir.records import GuardKind, Source
from intarsia_tracer.breaks import Break
from intarsia_tracer.trust import STABLE, is_trusted
from intarsia_tracer.values.base import Value
from intarsia_tracer.values.constants import Const
from intarsia_tracer.values.functions import BoundBuiltin, BoundMethod, Function, Globals
from intarsia_tracer.values.objects import ClassValue, ModuleValue, Super
from intarsia_tracer.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_tracer.tracer import Tracer

from intarsia_tracer.lookup import attribute_source

__all__ = [
    "class_attribute",
    "class_attribute_for",
    "class_function",
    "class_item",
    "class_iterate",
    "class_source",
    "find_in_class",
    "function_attribute",
    "is_subclass",
    "module_attribute",
    "module_globals",
    "rely_on_absence",
    "rely_on_passing_over",
    "super_attribute",
]


_PASSIVE = frozenset({property, types.MemberDescriptorType, types.GetSetDescriptorType, functools.cached_property})
_C_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.BuiltinFunctionType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
)
_CLASS_FACTS = frozenset(
    {"__name__", "__qualname__", "__module__", "__doc__", "__mro__", "__bases__", "__base__", "__basicsize__",
     "__flags__", "__itemsize__", "__abstractmethods__", "__text_signature__", "__dictoffset__"}
)  # fmt: skip
_MAY_BE_SET = frozenset({"__name__", "__qualname__", "__module__", "__doc__", "__mro__", "__bases__", "__base__"})

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


def is_subclass(tx: Tracer, kind: Any, cls: Any) -> bool:
    """Model `issubclass`, and rely on the bases of classes of the user, and on what isn't registered.

    What an abstract class once accepted it accepts for ever. Of two library classes neither changes.
    """
    by_bases = cls in kind.__mro__
    answer = by_bases or issubclass(kind, cls)
    source = tx.reference_sources.get(id(kind))
    libraries = is_trusted(kind.__module__), is_trusted(cls.__module__)
    may_be_registered = isinstance(cls, abc.ABCMeta) and not answer
    lasting = all(libraries) if may_be_registered else any(libraries) or by_bases is not answer
    if source is not None and kind is not cls and not lasting:
        tx.guards.add(GuardKind.SUBCLASS, source, (cls, answer))
    return answer


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
    trusted = is_trusted(getattr(value, "__module__", None))
    base = tx.class_source(owner, cls)
    source = None
    if base is not None and not trusted and not part and issubclass(type(raw), types.FunctionType):
        source = tx.sources.attribute(base, name)
    elif base is not None:
        rely_on_passing_over(tx, cls.__mro__[:index], base, name)
        if not trusted:
            order = tx.sources.attribute(base, "__mro__")
            names = tx.sources.attribute(tx.sources.item(order, index), "__dict__")
            source = tx.sources.item(names, name)
            source = tx.sources.attribute(source, part) if part else source
    made = tx.wrap(value, source)
    tx.class_functions[key] = made
    return made


def rely_on_passing_over(tx: Tracer, classes: Sequence[Any], source: Source | None, name: str) -> None:
    """Rely on the first bases of the class that `source` finds, itself among them, defining no such name."""
    for index, passed in enumerate(classes):
        if source is not None and not is_trusted(passed.__module__):
            order = tx.sources.attribute(source, "__mro__")
            tx.guards.add(GuardKind.ABSENT, tx.sources.attribute(tx.sources.item(order, index), "__dict__"), name)


def class_attribute(tx: Tracer, owner: ClassValue, name: str) -> Value:
    """Model an attribute of a class."""
    cls = owner.value
    if name == "__class__":
        return tx.wrap(type(cls), None)
    if name in _CLASS_FACTS:
        known = is_trusted(cls.__module__) or name not in _MAY_BE_SET
        return tx.wrap(tx.real(getattr, cls, name), None if known else attribute_source(tx, owner, name))
    if name == "__dict__":
        return tx.wrap(cls.__dict__, attribute_source(tx, owner, name))
    if isinstance(cls, enum.EnumMeta) and name in cls.__members__:
        return tx.wrap(cls.__members__[name], attribute_source(tx, owner, name))
    found = tx.find_in_class(cls, name)
    if found is not None:
        return _bound_to_class(tx, owner, cls, name, found[0])
    return _metaclass_attribute(tx, owner, name)


def _bound_to_class(tx: Tracer, owner: ClassValue, cls: Any, name: str, raw: Any) -> Value:
    """Bind what was found in the class to the class."""
    if issubclass(type(raw), types.FunctionType):
        return tx.class_function(owner, cls, name)
    if issubclass(type(raw), staticmethod):
        return tx.class_function(owner, cls, name, "__func__")
    if issubclass(type(raw), classmethod):
        return BoundMethod(tx.class_function(owner, cls, name, "__func__"), owner)
    if issubclass(type(raw), _C_DESCRIPTORS) or type(raw) in _PASSIVE:
        value = tx.real(getattr, cls, name)
        if tx.extension.class_method(value) is None:
            return tx.wrap(value, None)
        _, index = tx.find_in_class(cls, name) or (raw, 0)
        rely_on_passing_over(tx, cls.__mro__[:index], owner.source, name)
        return BoundBuiltin(owner, name, raw)
    getter = tx.find_in_class(type(raw), "__get__")
    if getter is None:
        return tx.wrap(raw, attribute_source(tx, owner, name))
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
        rely_on_absence(tx, owner, cls, name)
        tx.raise_error(AttributeError, f"{cls.__name__!r} object has no attribute {name!r}")
    return tx.bound_to_instance(owner, cls, name, found[0])


def rely_on_absence(tx: Tracer, owner: Value, cls: Any, name: str) -> None:
    """Rely on a container, of which own attributes aren't modelled, having no such attribute."""
    real = getattr(owner, "real", None)
    if real is None or cls.__dictoffset__ == 0:
        return
    if hasattr(real, name):
        raise Break("tracer.attribute", f"{owner.describe()} has an attribute {name!r} of its own")
    if owner.source is not None:
        tx.guards.add(GuardKind.HAS_ATTRIBUTE, owner.source, (name, False))


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
    return tx.wrap(value, _source_in_module(tx, owner, name))


def _source_in_module(tx: Tracer, owner: ModuleValue, name: str) -> Source | None:
    """Return where a variable of a module is found, also of one that was reached through modules of torch."""
    source, module = owner.source, owner.value.__name__
    if source is None and is_trusted(module) and sys.modules.get(module) is owner.value:
        source = tx.sources.module(module)
    return None if source is None else tx.sources.attribute(source, name)


def _lazy_module_attribute(tx: Tracer, owner: ModuleValue, name: str) -> Value:
    """Read what a module computes: submodules that are loaded, or its `__getattr__`."""
    module = owner.value
    if type(module) is types.ModuleType and "__getattr__" not in module.__dict__ and not hasattr(module, name):
        if owner.source is not None:
            tx.guards.add(GuardKind.HAS_ATTRIBUTE, owner.source, (name, False))
        tx.raise_error(AttributeError, f"module {module.__name__!r} has no attribute {name!r}")
    hook = module.__dict__.get("__getattr__")
    if isinstance(hook, types.FunctionType) and not is_trusted(module.__name__):
        source = None
        if owner.source is not None:
            names = tx.sources.attribute(owner.source, "__dict__")
            tx.guards.add(GuardKind.ABSENT, names, name)
            source = tx.sources.item(names, "__getattr__")
        return tx.call(tx.wrap(hook, source), [Const(name)], {})
    if is_trusted(module.__name__) and hasattr(module, name):
        value = getattr(module, name)
        return tx.wrap(value, None if isinstance(value, STABLE) else _source_in_module(tx, owner, name))
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
        _guard_passed_over(tx, _base_class(tx, bound, cls, base), name)
    if name == "__class__":
        return tx.wrap(super, None)
    tx.raise_error(AttributeError, f"'super' object has no attribute {name!r}")


def _guard_passed_over(tx: Tracer, base: ClassValue, name: str) -> None:
    """Rely on a class that `super()` passes over defining no such name."""
    if base.source is not None and not is_trusted(base.value.__module__):
        tx.guards.add(GuardKind.ABSENT, tx.sources.attribute(base.source, "__dict__"), name)


def _bound_by_super(tx: Tracer, owner: Super, bound: Value, cls: Any, base: Any, name: str, of_class: bool) -> Value:
    """Bind what `super()` found in `base`."""
    raw = base.__dict__[name]
    model = _base_class(tx, bound, cls, base)
    if issubclass(type(raw), types.FunctionType):
        function = tx.class_function(model, base, name)
        return function if of_class else BoundMethod(function, bound)
    if issubclass(type(raw), staticmethod):
        return (
            tx.class_function(model, base, name, "__func__")
            if isinstance(raw.__func__, types.FunctionType)
            else tx.wrap(raw.__func__, None)
        )
    if issubclass(type(raw), classmethod):
        first = bound if of_class else tx.wrap(cls, tx.class_source(bound, cls))
        return BoundMethod(tx.class_function(model, base, name, "__func__"), first)
    if issubclass(type(raw), property):
        return tx.call(tx.class_function(model, base, name, "fget"), [bound], {})
    if issubclass(type(raw), _C_DESCRIPTORS):
        if issubclass(type(raw), types.ClassMethodDescriptorType):
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
