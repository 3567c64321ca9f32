"""Stable text names of Python functions and constants that graphs refer to, and back.

Only objects below a closed list of roots have such a name. Text is read without importing anything and without calling
anything: a name outside the roots must be given by the caller.
"""

from __future__ import annotations

import functools
import math
import operator
import sys
import types
from typing import Any

import torch

__all__ = ["name_of", "object_named", "own_name"]

_ROOTS = ("torch", "operator", "math", "builtins")


def name_of(value: Any) -> str | None:
    """Return the name under which `object_named` finds `value` again, or None.

    Example:
        >>> name_of(torch.relu), name_of(operator.getitem), name_of(torch.channels_last)
        ('torch.relu', 'operator.getitem', 'torch.channels_last')
    """
    path = _index().get(id(value))
    if path is not None:
        return path
    name = own_name(value)
    if name is None or name.partition(".")[0] not in _ROOTS:
        return None
    try:
        return name if object_named(name) is value else None
    except LookupError:
        return None


def own_name(value: Any) -> str | None:
    """Return `module.qualified_name` of a function, class or enum member, as the object says; None otherwise."""
    if hasattr(type(value), "__members__"):
        return f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return f"{module}.{qualname}" if isinstance(module, str) and isinstance(qualname, str) else None


def object_named(name: str) -> Any:
    """Return what `name` refers to below the known roots.

    Raises:
        LookupError: There is no such thing, or it lies outside the roots.
    """
    first, *rest = name.split(".")
    if first not in _ROOTS:
        raise LookupError(name)
    value: Any = sys.modules[first]
    for part in rest:
        # modules are read through their dictionary: the lazy attributes of torch would import
        space = vars(value) if isinstance(value, types.ModuleType) else None
        member = space.get(part, _MISSING) if space is not None else getattr(value, part, _MISSING)
        if member is _MISSING:
            raise LookupError(name)
        value = member
    return value


_MISSING = object()


@functools.cache
def _index() -> dict[int, str]:
    """Map the identity of everything public in the usual places to its shortest usual name; first place wins."""
    places: list[tuple[str, Any]] = [
        ("operator", operator),
        ("math", math),
        ("torch", torch),
        ("torch.nn.functional", torch.nn.functional),
        ("torch._C._nn", torch._C._nn),
        ("torch.linalg", torch.linalg),
        ("torch.fft", torch.fft),
        ("torch.special", torch.special),
        ("torch._C", torch._C),
        ("torch.amp.autocast_mode", torch.amp.autocast_mode),
        ("torch.Tensor", torch.Tensor),
        ("builtins", sys.modules["builtins"]),
    ]
    index: dict[int, str] = {}
    for prefix, space in places:
        for name in dir(space):
            value = vars(space).get(name) if isinstance(space, types.ModuleType) else getattr(space, name, None)
            # small integers and strings are shared objects: identity says nothing about them
            if isinstance(value, _NAMEABLE) and not name.startswith("__"):
                index.setdefault(id(value), f"{prefix}.{name}")
    return index


_NAMEABLE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    type,
    torch.dtype,
    torch.layout,
    torch.memory_format,
    type(operator.add),
)
