"""Holding what guards compare with: weakly where the object allows it, since entries must not keep models alive.

A guard set hangs on a code object, out of the garbage collector's sight: a strong reference to a user's object from
there would be a leak for ever. Plain immutable values, and functions and classes of libraries that never go away, are
held as they are; so are lists, dicts and other objects without weak references, because an address may be reused.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

__all__ = ["DEAD", "Held", "hold", "hold_constant", "is_layout"]

DEAD = type("Dead", (), {"__repr__": lambda self: "<an object that no longer exists>"})()
"""What a reference to a freed object gives: it is no object that a program can have."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_PLACEMENTS = "torch.distributed.tensor.placement_types"  # of which each class holds numbers and texts
_SPECS = "torch.distributed.tensor._dtensor_spec"  # how a `DTensor` is laid out: what makes it in a graph holds it too
_LASTING = frozenset(["builtins", "torch", "math", "operator", "_operator", "types"])


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    """A value, or a weak reference to it.

    Args:
        get: Returns the value, or `DEAD`.
        value: The value when it's held as it is, None otherwise.
        reference: The weak reference, or what stands for one: returns the value, or None when it no longer exists. None
            when the value is held as it is.
    """

    get: Callable[[], Any]
    value: Any = None
    reference: Callable[[], Any] | None = None


def hold(value: T) -> Held[T]:
    """Return `value`, held weakly where possible.

    Example:
        >>> hold(3).reference is None, hold(lambda: 0).get()
        (True, <an object that no longer exists>)
    """
    if _stays(value):
        return Held(lambda: value, value)
    try:
        reference: Callable[[], Any] = weakref.ref(value)
    except TypeError:
        return Held(lambda: value, value)
    return _weakly(reference)


def hold_constant(value: Any) -> Held[Any]:
    """Return `value`, made for the guard alone: of a set, which nothing else keeps alive, the elements are held.

    Example:
        >>> hold_constant({1, 2}).get()
        {1, 2}
    """
    if type(value) not in (set, frozenset):
        return hold(value)
    if all(map(_stays, value)):
        return Held(lambda: value, value)
    return _weakly(partial(_all_alive, type(value), tuple(map(hold, value))))


def _weakly(reference: Callable[[], Any]) -> Held[Any]:
    def get() -> Any:
        value = reference()
        return DEAD if value is None else value

    return Held(get, None, reference)


def _all_alive(kind: type, elements: tuple[Held[Any], ...]) -> Any:
    """Return the elements, None when one of them no longer exists."""
    values = [element.get() for element in elements]
    return None if any(value is DEAD for value in values) else kind(values)


def is_layout(value: Any) -> bool:
    """Tell whether a value says how a `DTensor` is laid out: of a class of torch's, which compares by value."""
    return type(value).__module__ in (_PLACEMENTS, _SPECS)


def _stays(value: Any) -> bool:
    """Whether a value may be kept alive without harm."""
    if type(value) in _PLAIN or is_layout(value):
        return True
    if isinstance(value, (type, types.BuiltinFunctionType, types.FunctionType)):
        return str(getattr(value, "__module__", "")).partition(".")[0] in _LASTING
    return False
