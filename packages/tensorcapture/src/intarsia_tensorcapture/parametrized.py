"""Layers whose weights `torch.nn.utils.parametrize` computes: it makes a class for each, all alike but for identity.

Such a class has a layer's as its base, a property for each weight, and a few functions of torch's. A capture relies on
that, not on which class it is, so that layers of one kind share it.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import parametrize

from intarsia_ir.guards import CodeGuard, ConstantGuard, IdentityGuard, LengthGuard

if TYPE_CHECKING:
    from intarsia_ir.records import Source
    from intarsia_pyeval.tracer import Tracer

__all__ = ["rely_on_parametrized"]

_PLAIN = ("__module__", "__doc__")


def rely_on_parametrized(tx: Tracer, cls: Any, source: Source) -> bool:
    """Rely on how the class of a layer is made, instead of on which one it is; tell whether that can be done.

    Args:
        cls: The class of an object.
        source: Where the object is found.
    """
    functions = _functions_of(cls)
    if functions is None:
        return False
    place = tx.sources.type_of(source)
    names = tx.sources.attribute(place, "__dict__")
    tx.guards.add(IdentityGuard, tx.sources.item(tx.sources.attribute(place, "__bases__"), 0), cls.__bases__[0])
    tx.guards.add(LengthGuard, tx.sources.attribute(place, "__bases__"), 1)
    tx.guards.add(LengthGuard, names, len(vars(cls)))
    tx.guards.add(ConstantGuard, tx.sources.item(names, "__module__"), parametrize.__name__)
    tx.guards.add(ConstantGuard, tx.sources.item(names, "__doc__"), None)
    for name, (function, is_getter) in functions.items():
        found = tx.sources.item(names, name)
        tx.guards.add(CodeGuard, tx.sources.attribute(found, "fget") if is_getter else found, function.__code__)
    return True


def _functions_of(cls: Any) -> dict[str, tuple[FunctionType, bool]] | None:
    """Return what such a class has besides the base's, and whether it is a property; None for other classes."""
    if vars(cls).get("__module__") != parametrize.__name__ or not issubclass(cls, torch.nn.Module):
        return None
    if len(cls.__bases__) != 1 or not all(name in vars(cls) for name in _PLAIN) or vars(cls)["__doc__"] is not None:
        return None
    functions = {}
    for name, value in vars(cls).items():
        if name in _PLAIN:
            continue
        function = value.fget if type(value) is property else value
        if type(function) is not FunctionType or function.__module__ != parametrize.__name__:
            return None
        functions[name] = function, type(value) is property
    return functions
