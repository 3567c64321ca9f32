"""Looking into values without running code of the user, so that a guard changes nothing.

What only the user's code could tell (a property, `__getattr__`, a default factory, `__missing__`, `__len__`) is
refused: a guard that asks for it doesn't hold. Code of torch and of the standard library counts as ours.
"""

from __future__ import annotations

import collections
import ctypes
import enum
import functools
import gc
import sys
import types
import weakref
from typing import Any

import torch

from intarsia_guards.held import DEAD

__all__ = [
    "NOTHING",
    "RefusedError",
    "array_tensor",
    "attribute",
    "code_of",
    "contents",
    "definition",
    "dict_item",
    "has_attribute",
    "is_shown_by_us",
    "is_tensor",
    "item",
    "keys",
    "lacks",
    "length",
    "plain_attribute",
    "referent",
]


class RefusedError(LookupError):
    """Only code of the user could tell."""


_MRO = type.__dict__["__mro__"].__get__
_SPACE = type.__dict__["__dict__"].__get__
NOTHING = object()
"""What a class is said to define under a name that neither it nor a base defines."""
_TYPE_NAMES = (
    *("bool", "float16", "float32", "float64", "complex64", "complex128"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
_OF_MODULES = frozenset(dir(types.ModuleType))
_HARMLESS = (
    types.FunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinFunctionType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    staticmethod,
)
_IN_C = (types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType)


def attribute(value: Any, name: str) -> Any:
    """Return `value.name`.

    Raises:
        AttributeError: There is none.
        RefusedError: The class of the user would be asked.

    Example:
        >>> attribute(3 + 4j, "imag"), attribute(int, "__name__")
        (4.0, 'int')
    """
    cls = type(value)
    if cls is types.ModuleType and name in (space := value.__dict__) and name not in _OF_MODULES:
        return space[name]
    if cls is types.FunctionType:
        return getattr(value, name)
    getter = definition(cls, "__getattribute__")
    if _is_proxy(cls) or not _is_ours(getter):
        raise RefusedError(f"the class of the user says what {name!r} is")
    if issubclass(cls, type):
        return _class_attribute(value, cls, name)
    raw = definition(cls, name)
    if not _is_read_by_us(raw):
        # without `__set__` it comes after what the instance has itself
        if type(raw) is property or any(definition(type(raw), n) is not NOTHING for n in ("__set__", "__delete__")):
            raise RefusedError(f"a descriptor of the user says what {name!r} is")
        return _own_item(value, name)
    try:
        if issubclass(cls, types.ModuleType):
            return object.__getattribute__(value, name)
        return getter(value, name)
    except AttributeError:
        return _from_hook(value, cls, name)


def has_attribute(value: Any, name: str) -> bool:
    """Return whether `value` has an attribute.

    Raises:
        RefusedError: The class of the user would be asked.
    """
    try:
        attribute(value, name)
    except AttributeError:
        return False
    return True


def plain_attribute(value: Any, name: str) -> Any:
    """Return what `object` finds under `name` in an instance, past the look-up that the class itself defines.

    Raises:
        AttributeError: There is none.
        RefusedError: A descriptor of the user would be asked.
    """
    if not _is_read_by_us(definition(type(value), name)):
        raise RefusedError(f"a descriptor of the user says what {name!r} is")
    return object.__getattribute__(value, name)


def item(value: Any, key: Any) -> Any:
    """Return `value[key]`, of a dict what is in it.

    Raises:
        LookupError: There is none.
        RefusedError: The class of the user would be asked.
    """
    cls = type(value)
    if cls is types.MappingProxyType:
        return item(gc.get_referents(value)[0], key)
    if not isinstance(definition(cls, "__getitem__"), _IN_C):
        raise RefusedError(f"{cls.__qualname__} says what its items are")
    return dict_item(value, key) if issubclass(cls, dict) else value[key]


def dict_item(value: Any, key: Any) -> Any:
    """Return an entry of a dict, past what its class makes of look-ups.

    Raises:
        KeyError: There is none, or it is no dict.
    """
    entry = dict.get(value, key, NOTHING) if issubclass(type(value), dict) else NOTHING
    if entry is NOTHING:
        raise KeyError(key)
    return entry


def referent(value: Any) -> Any:
    """Return what a weak reference refers to.

    Raises:
        RefusedError: It is no plain weak reference.
    """
    if type(value) is not weakref.ref:
        raise RefusedError("no weak reference")
    return value()


def array_tensor(value: Any) -> torch.Tensor:
    """Return the tensor on the memory of an array of numpy.

    Raises:
        RefusedError: It is no plain array that can be written, or its type isn't what numpy calls by its own name.
        TypeError: There is no such tensor.
        ValueError: As before: torch has no negative strides.
    """
    cls = type(value)
    if cls.__module__ != "numpy" or cls.__name__ != "ndarray" or not value.flags.writeable:
        raise RefusedError("no array that can be written")
    if id(value.dtype) not in _named_types():
        raise RefusedError("no type of an array that its name stands for")
    return torch.from_numpy(value)


def contents(value: torch.Tensor) -> bytes:
    """Return the bytes of a contiguous tensor in memory, which begins its storage; none where that is too small."""
    if value.untyped_storage().nbytes() < value.nbytes or not value.nbytes:
        return b""
    return ctypes.string_at(value.data_ptr(), value.nbytes)


@functools.cache
def _named_types() -> frozenset[int]:
    """Return the identities of the types that numpy's names stand for: neither swapped ones nor C's other ones."""
    numpy = sys.modules["numpy"]
    return frozenset(id(numpy.dtype(name)) for name in _TYPE_NAMES)


def length(value: Any) -> int:
    """Return `len(value)`.

    Raises:
        RefusedError: The class of the user would be asked.
    """
    if not isinstance(definition(type(value), "__len__"), _IN_C):
        raise RefusedError(f"{type(value).__qualname__} says how long it is")
    return len(value)


def keys(value: Any) -> tuple[Any, ...]:
    """Return the keys of a dict, or the elements of a set, in order.

    Raises:
        RefusedError: It is neither.
    """
    cls = type(value)
    if cls is types.MappingProxyType:
        return keys(gc.get_referents(value)[0])
    if issubclass(cls, collections.OrderedDict):
        return tuple(collections.OrderedDict.keys(value))
    for kind in (dict, set, frozenset):
        if issubclass(cls, kind):
            return tuple(kind.__iter__(value))
    raise RefusedError(f"{cls.__qualname__} says what is in it")


def lacks(value: Any, key: Any) -> bool:
    """Return whether a dict lacks a key, or anything else an attribute.

    Raises:
        RefusedError: The class of the user would be asked.
    """
    cls = type(value)
    if cls is types.MappingProxyType:
        return lacks(gc.get_referents(value)[0], key)
    return not dict.__contains__(value, key) if issubclass(cls, dict) else not has_attribute(value, key)


def code_of(value: Any) -> Any:
    """Return the code of a function or bound method, None of anything else."""
    while type(value) is types.MethodType:
        value = value.__func__
    return value.__code__ if type(value) is types.FunctionType else None


def is_tensor(value: Any) -> bool:
    """Return whether something is a tensor by its class, whatever it says its class is."""
    return torch.Tensor in _MRO(type(value))


def is_shown_by_us(value: Any) -> bool:
    """Return whether `repr(value)` runs no code of the user, as far as that is cheap to tell.

    Example:
        >>> is_shown_by_us({"a": [1, 2.5]}), is_shown_by_us([object])
        (True, True)
    """
    return _is_shown(value, 4)


def _is_shown(value: Any, depth: int) -> bool:
    kind = type(value)
    if kind in (list, tuple, set, frozenset) and len(value) <= _SHORT:
        return depth > 0 and all(_is_shown(element, depth - 1) for element in value)
    if kind is dict and len(value) <= _SHORT:
        return depth > 0 and all(_is_shown(part, depth - 1) for entry in value.items() for part in entry)
    return kind in _SHOWN or definition(kind, "__repr__") is object.__repr__


_SHORT = 100
_SHOWN = frozenset(
    (bool, int, float, complex, str, bytes, type, type(None), type(Ellipsis), types.FunctionType, types.CodeType)
    + (types.BuiltinFunctionType, torch.dtype, torch.device, torch.Size, type(DEAD))
)


def definition(cls: type, name: str) -> Any:
    """Return what a class or a base defines, as it is there; `NOTHING` when none does."""
    for parent in _MRO(cls):
        definition = _SPACE(parent).get(name, NOTHING)
        if definition is not NOTHING:
            return definition
    return NOTHING


# ---- attributes ------------------------------------------------------------------------------------------------


def _own_item(value: Any, name: str) -> Any:
    """What an instance has in its dictionary, where a descriptor of its class comes second."""
    try:
        space = (
            object.__getattribute__(value, "__dict__") if _is_read_by_us(definition(type(value), "__dict__")) else {}
        )
    except AttributeError:
        space = {}
    if name not in space:
        raise RefusedError(f"a descriptor of the user says what {name!r} is")
    return space[name]


def _class_attribute(cls: Any, meta: type, name: str) -> Any:
    """What a class has under a name."""
    if issubclass(meta, enum.EnumMeta):
        members = _SPACE(cls).get("_member_map_", {})
        if name in members:
            return members[name]
    if not _is_read_by_us(definition(meta, name)) or not _is_read_by_us(definition(cls, name)):
        raise RefusedError(f"a descriptor of the user says what {name!r} is")
    try:
        return type.__getattribute__(cls, name)
    except AttributeError:
        return _from_hook(cls, meta, name)


def _from_hook(value: Any, cls: type, name: str) -> Any:
    """What is said of a name that look-up didn't find."""
    arguments: tuple[Any, ...] = (value, name)
    hook = definition(cls, "__getattr__")
    if hook is NOTHING and issubclass(cls, types.ModuleType):
        hook, arguments = object.__getattribute__(value, "__dict__").get("__getattr__", NOTHING), (name,)
    if hook is NOTHING:
        raise AttributeError(name)
    if not _is_ours(hook):
        raise RefusedError(f"__getattr__ of the user says what {name!r} is")
    return hook(*arguments)


def _is_read_by_us(raw: Any) -> bool:
    """Whether reading what a class defines runs no code of the user."""
    kind = type(raw)
    if raw is NOTHING or kind in _HARMLESS:
        return True
    if kind is property:
        return _is_ours(raw.fget)
    if kind is torch.backends.ContextProp:  # type: ignore[attr-defined]
        return _is_ours(raw.getter)
    getter = definition(kind, "__get__")
    return getter is NOTHING or (isinstance(getter, _IN_C) and not issubclass(kind, (property, classmethod)))


def _is_ours(function: Any) -> bool:
    """Whether a function is written in C, or belongs to torch or to the standard library."""
    if type(function) is types.FunctionType:
        return _is_trusted(function.__module__)
    return isinstance(function, _IN_C)


@functools.lru_cache(maxsize=1024)
def _is_trusted(module: object) -> bool:
    root = module.partition(".")[0] if isinstance(module, str) else ""
    return root == "torch" or (root in sys.stdlib_module_names and root != "__main__")


def _is_proxy(cls: type) -> bool:
    """Whether look-ups are handed on to another object."""
    return cls in (weakref.ProxyType, weakref.CallableProxyType, super)
