"""Attribute lookup on classes, `super()`, functions and modules."""

from __future__ import annotations

import enum
import functools
import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_ir.guards import AbsentGuard, HasAttributeGuard
from intarsia_ir.records import Source
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.descriptors import is_data_descriptor
from intarsia_pyeval.semantics import folding, iteration, lookup, operators
from intarsia_pyeval.semantics.lookup import attribute_source
from intarsia_pyeval.stores import dict_store, function_store
from intarsia_pyeval.trust import STABLE, is_trusted
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.functions import BoundMethod, Function, Globals
from intarsia_pyeval.values.made import MadeClass
from intarsia_pyeval.values.objects import ClassValue, ModuleValue, Object, Super
from intarsia_pyeval.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_pyeval.sources import Guards, Sources
    from intarsia_pyeval.state.classes import Classes
    from intarsia_pyeval.tracer import Tracer

__all__ = [
    "class_attribute",
    "class_attribute_for",
    "class_item",
    "class_iterate",
    "function_attribute",
    "module_attribute",
    "module_globals",
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


def class_attribute(tx: Tracer, owner: ClassValue, name: str) -> Value:
    """Model an attribute of a class."""
    cls = owner.value
    if name == "__class__":
        return tx.live.wrap(type(cls), None)
    if name in _CLASS_FACTS:
        if isinstance(owner, MadeClass):
            return tx.live.from_python(folding.real(tx, getattr, cls, name))
        fixed = is_trusted(cls.__module__) or name not in _MAY_BE_SET
        return tx.live.wrap(folding.real(tx, getattr, cls, name), None if fixed else attribute_source(tx, owner, name))
    if name == "__dict__":
        return tx.live.wrap(cls.__dict__, attribute_source(tx, owner, name))
    if _comes_first(tx.classes, type(cls), name):
        return _metaclass_attribute(tx, owner, name)
    if isinstance(cls, enum.EnumMeta) and name in cls.__members__:
        return tx.live.wrap(cls.__members__[name], attribute_source(tx, owner, name))
    definition = tx.classes.find(cls, name)
    if definition is not None:
        return _bound_to_class(tx, owner, cls, name, definition[0])
    return _metaclass_attribute(tx, owner, name)


def _comes_first(classes: Classes, metaclass: Any, name: str) -> bool:
    """Tell whether a descriptor that a metaclass of the program's own has goes before what the class holds."""
    definition = None if metaclass in (type, enum.EnumMeta) else classes.find(metaclass, name)
    if definition is None or metaclass.__mro__[definition[1]] in (type, object, enum.EnumMeta):
        return False
    return is_data_descriptor(definition[0])


def _bound_to_class(tx: Tracer, owner: ClassValue, cls: Any, name: str, raw: Any) -> Value:
    """Bind what was found in the class to the class."""
    if issubclass(type(raw), types.FunctionType):
        return tx.live.class_function(owner, cls, name)
    if issubclass(type(raw), staticmethod):
        return tx.live.class_function(owner, cls, name, "__func__")
    if issubclass(type(raw), classmethod):
        lookup.check_class_method(raw, name)
        return BoundMethod(tx.live.class_function(owner, cls, name, "__func__"), owner)
    if issubclass(type(raw), _C_DESCRIPTORS) or type(raw) in _PASSIVE:
        value = folding.real(tx, getattr, cls, name)
        if tx.extension.class_method(value) is None:
            return tx.live.wrap(value, None)
        _, index = tx.classes.find(cls, name) or (raw, 0)
        tx.classes.rely_on_passing_over(owner, cls, index, name)
        return BoundBuiltin(owner, name, raw)
    getter = tx.classes.find(type(raw), "__get__")
    if getter is None:
        return tx.live.wrap(raw, attribute_source(tx, owner, name))
    if isinstance(getter[0], types.FunctionType):
        descriptor = lookup.class_descriptor(tx, owner, cls, name, raw)
        return do.call(
            tx, tx.live.class_function(descriptor, type(raw), "__get__"), [descriptor, Const(None), owner], {}
        )
    raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is a {type(raw).__name__}")


def _metaclass_attribute(tx: Tracer, owner: ClassValue, name: str) -> Value:
    """Look in the metaclass."""
    cls = owner.value
    definition = tx.classes.find(type(cls), name)
    if definition is not None and isinstance(definition[0], types.FunctionType):
        return BoundMethod(tx.live.class_function(_metaclass(tx, owner), type(cls), name), owner)
    if (
        definition is not None
        and type(definition[0]) is property
        and isinstance(definition[0].fget, types.FunctionType)
    ):
        return do.call(tx, tx.live.class_function(_metaclass(tx, owner), type(cls), name, "fget"), [owner], {})
    if definition is not None and isinstance(definition[0], _C_DESCRIPTORS):
        return (
            BoundBuiltin(owner, name) if name in ("mro", "__subclasses__") else tx.live.wrap(getattr(cls, name), None)
        )
    if definition is not None or hasattr(type(cls), "__getattr__"):
        raise Break("tracer.attribute", f"{name!r} of {owner.describe()} is looked up by its metaclass")
    if owner.source is not None:
        tx.guards.add(HasAttributeGuard, owner.source, name, False)
    tx.raising.error(AttributeError, f"type object {cls.__name__!r} has no attribute {name!r}")


def _metaclass(tx: Tracer, owner: ClassValue) -> ClassValue:
    """Return the model of the class of a class, which is found where that one is."""
    meta = type(owner.value)
    if owner.source is not None:
        tx.classes.note(meta, tx.sources.type_of(owner.source))
    return tx.live.class_value(meta)


def class_attribute_for(tx: Tracer, owner: Value, cls: Any, name: str) -> Value:
    """Model an attribute that an instance without own state finds in its class."""
    definition = tx.classes.find(cls, name)
    if name == "__class__":
        return tx.live.wrap(cls, None)
    if definition is None:
        tx.classes.rely_on_absence(owner, cls, name)
        tx.raising.error(AttributeError, f"{cls.__name__!r} object has no attribute {name!r}")
    return lookup.bound_to_instance(tx, owner, cls, name, definition[0])


def class_item(tx: Tracer, owner: ClassValue, key: Value) -> Value:
    """Model `cls[key]`."""
    cls = owner.value
    if isinstance(cls, enum.EnumMeta):
        return tx.live.wrap(folding.real(tx, cls.__getitem__, key.as_python()), None)
    definition = tx.classes.find(cls, "__class_getitem__")
    if definition is not None and is_trusted(cls.__module__):
        return tx.live.wrap(folding.real(tx, lambda: cls[_type_argument(tx, key)]), None)
    raise Break("tracer.operator", f"subscripting {owner.describe()} isn't modelled")


def _type_argument(tx: Tracer, key: Value) -> Any:
    """Return what a generic class is subscripted with."""
    if isinstance(key, Tuple):
        return tuple(_type_argument(tx, item) for item in key.items)
    argument = key.identity()
    if isinstance(key, Object) and argument is not None and type(argument).__module__ == "typing":
        return argument
    return operators.index(tx, key)


def class_iterate(tx: Tracer, owner: ClassValue) -> Value:
    """Iterate over an enumeration."""
    if isinstance(owner.value, enum.EnumMeta):
        members: list[Any] = list(owner.value)
        return iteration.iterator_over(tx, Tuple([tx.live.wrap(member, None) for member in members]))
    raise Break("tracer.iterator", f"iterating over {owner.describe()} isn't modelled")


# -- functions, modules, super -------------------------------------------------------------------------------


def function_attribute(tx: Tracer, owner: Function, name: str) -> Value:
    """Read an attribute of an existing function."""
    value = owner.value
    if name == "__globals__":
        return function_store.global_names(tx, owner)
    if not hasattr(value, name):
        if owner.source is not None and not owner.trusted():
            tx.guards.add(HasAttributeGuard, owner.source, name, False)
        tx.raising.error(AttributeError, f"'function' object has no attribute {name!r}")
    if name in ("__call__", "__get__"):
        return BoundBuiltin(owner, name)
    source = owner.source_of(name, tx.sources)
    if name == "__dict__" and source is None and owner.source is not None:
        source = tx.sources.attribute(owner.source, name)
    return tx.live.wrap(getattr(value, name), source)


def module_globals(tx: Tracer, owner: ModuleValue) -> Globals:
    """Return the namespace of a module."""
    source = None
    if owner.source is not None and not is_trusted(owner.value.__name__):
        source = tx.sources.attribute(owner.source, "__dict__")
    return tx.live.namespace(owner.value.__dict__, source)


def module_attribute(tx: Tracer, owner: ModuleValue, name: str) -> Value:
    """Read a global of a module. Functions and classes of trusted modules aren't guarded."""
    module = owner.value
    pending = tx.live.known(module.__dict__)
    if isinstance(pending, Globals) and not pending.frame:
        pending_value = dict_store.find(tx, pending, name)
        if pending_value is not None:
            return pending_value
    if name not in module.__dict__:
        return _lazy_module_attribute(tx, owner, name)
    value = module.__dict__[name]
    if is_trusted(module.__name__) and isinstance(value, STABLE):
        tx.lookups.note_global(module.__dict__, name, value)
        return tx.live.wrap(value, None)
    return tx.live.wrap(value, _source_in_module(tx.sources, owner, name))


def _source_in_module(sources: Sources, owner: ModuleValue, name: str) -> Source | None:
    """Return where a variable of a module is found, also of one that was reached through trusted modules."""
    source, module = owner.source, owner.value.__name__
    if source is None and is_trusted(module) and sys.modules.get(module) is owner.value:
        source = sources.module(module)
    return None if source is None else sources.attribute(source, name)


def _lazy_module_attribute(tx: Tracer, owner: ModuleValue, name: str) -> Value:
    """Read what a module computes: submodules that are loaded, or its `__getattr__`."""
    module = owner.value
    if type(module) is types.ModuleType and "__getattr__" not in module.__dict__ and not hasattr(module, name):
        if owner.source is not None:
            tx.guards.add(HasAttributeGuard, owner.source, name, False)
        tx.raising.error(AttributeError, f"module {module.__name__!r} has no attribute {name!r}")
    hook = module.__dict__.get("__getattr__")
    if isinstance(hook, types.FunctionType) and not is_trusted(module.__name__):
        source = None
        if owner.source is not None:
            names = tx.sources.attribute(owner.source, "__dict__")
            tx.guards.add(AbsentGuard, names, name)
            source = tx.sources.item(names, "__getattr__")
        return do.call(tx, tx.live.wrap(hook, source), [Const(name)], {})
    if is_trusted(module.__name__) and hasattr(module, name):
        value = getattr(module, name)
        return tx.live.wrap(value, None if isinstance(value, STABLE) else _source_in_module(tx.sources, owner, name))
    if hasattr(types.ModuleType, name):
        return tx.live.wrap(getattr(module, name), None)
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
        _guard_passed_over(tx.sources, tx.guards, _base_class(tx, bound, cls, base), name)
    if name == "__class__":
        return tx.live.wrap(super, None)
    tx.raising.error(AttributeError, f"'super' object has no attribute {name!r}")


def _guard_passed_over(sources: Sources, guards: Guards, base: ClassValue, name: str) -> None:
    """Rely on a class that `super()` passes over defining no such name."""
    if base.source is not None and not is_trusted(base.value.__module__):
        guards.add(AbsentGuard, sources.attribute(base.source, "__dict__"), name)


def _bound_by_super(tx: Tracer, owner: Super, bound: Value, cls: Any, base: Any, name: str, of_class: bool) -> Value:
    """Bind what `super()` found in `base`."""
    raw = base.__dict__[name]
    model = _base_class(tx, bound, cls, base)
    if issubclass(type(raw), types.FunctionType):
        function = tx.live.class_function(model, base, name)
        return function if of_class else BoundMethod(function, bound)
    if issubclass(type(raw), staticmethod):
        return (
            tx.live.class_function(model, base, name, "__func__")
            if isinstance(raw.__func__, types.FunctionType)
            else tx.live.wrap(raw.__func__, None)
        )
    if issubclass(type(raw), classmethod):
        lookup.check_class_method(raw, name)
        first = bound if of_class else tx.live.wrap(cls, tx.classes.place_of(bound, cls))
        return BoundMethod(tx.live.class_function(model, base, name, "__func__"), first)
    if issubclass(type(raw), property):
        return do.call(tx, tx.live.class_function(model, base, name, "fget"), [bound], {})
    if issubclass(type(raw), _C_DESCRIPTORS):
        if issubclass(type(raw), types.ClassMethodDescriptorType):
            return BoundBuiltin(bound if of_class else tx.live.wrap(cls, tx.classes.place_of(bound, cls)), name, raw)
        return tx.live.wrap(raw, None) if of_class or name == "__new__" else BoundBuiltin(bound, name, raw)
    if tx.classes.find(type(raw), "__get__") is None:
        return tx.live.wrap(raw, None if model.source is None else tx.sources.attribute(model.source, name))
    raise Break("tracer.attribute", f"super().{name} is a {type(raw).__name__}")


def _base_class(tx: Tracer, bound: Value, cls: Any, base: Any) -> ClassValue:
    """Return the model of a base class of an object's class."""
    model = tx.live.known(base)
    if isinstance(model, MadeClass):
        return model
    return ClassValue(base, tx.classes.place_in_order(bound, cls, cls.__mro__.index(base)))
