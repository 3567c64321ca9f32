"""What the methods of a compiled module's original are bound to: the same state, and a call that is the compiled one.

`generate` of a language model calls `self(...)`. Bound to the original it would compile nothing; bound to the wrapper,
`self.state_dict()` in it would have the wrapper's keys. A stand-in is an instance of a subclass of the original's class
that shares its `__dict__`, so everything that a method reads and writes is the original's.
"""

from __future__ import annotations

import abc
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["bindable", "knows_by_identity", "stand_in"]


class _StandIn:
    """Comes first among the bases: calls go to the compiled module, all else is that of the class of the original."""

    __slots__ = ("_compiled",)
    _compiled: Any

    def __init_subclass__(cls) -> None:
        """Keep what a library does for each class that a user writes, such as to register it, from being done here."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        called = _compiled_by(self)
        if called is None:
            return super().__call__(*args, **kwargs)  # type: ignore[misc]
        return called.call_from_method(*args, **kwargs)

    @property
    def forward(self) -> Callable[..., Any]:
        called = _compiled_by(self)
        if called is None:
            return super().forward  # type: ignore[no-any-return,misc]
        return called.forward_alone  # type: ignore[no-any-return]

    @forward.setter
    def forward(self, value: Callable[..., Any]) -> None:
        vars(self)["forward"] = value

    @property
    def __class__(self) -> Any:
        return type(self).__bases__[1]

    @__class__.setter
    def __class__(self, value: Any) -> None:
        self._compiled._orig_mod.__class__ = value

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._compiled.__reduce_ex__(protocol)


def stand_in(compiled: Any) -> Any:
    """Return an object with the state and the methods of the original of `compiled`, whose call is that of `compiled`.

    Args:
        compiled: A compiled module; its `_orig_mod` is of a class that is `bindable`.
    """
    original, kept = compiled._orig_mod, vars(compiled)
    if kept["_stand_in_class"] is None or kept["_stand_in_class"].__bases__[1] is not type(original):
        cls = type(original)
        kept["_stand_in_class"] = types.new_class(cls.__name__, (_StandIn, cls))
        kept["_stand_in"] = _nothing
    # the compiled module keeps it weakly, so that nothing is in a cycle; bound methods are equal as long as one lives
    stand_in_object = kept["_stand_in"]()
    if stand_in_object is None:
        stand_in_object = object.__new__(kept["_stand_in_class"])
        object.__setattr__(stand_in_object, "__dict__", vars(original))
        object.__setattr__(stand_in_object, "_compiled", compiled)
        kept["_stand_in"] = weakref.ref(stand_in_object)
    return stand_in_object


def bindable(cls: type[torch.nn.Module]) -> bool:
    """Tell whether instances of a class have all their state in `__dict__`, and a subclass has no effect of its own."""
    return type(cls) in (type, abc.ABCMeta) and cls.__basicsize__ == torch.nn.Module.__basicsize__


def knows_by_identity(cls: type[torch.nn.Module], name: str) -> bool:
    """Tell whether an attribute finds state by the module itself, as `fully_shard` adds: a stand-in would have none.

    Args:
        cls: The class of a module.
        name: Of an attribute of the class.
    """
    owner = next((c for c in cls.__mro__ if name in vars(c)), None)
    return owner is not None and owner.__module__.startswith("torch.distributed.")


def _compiled_by(stood_in: _StandIn) -> Any:
    """The compiled module; None for an instance that a method made by `type(self)(...)`."""
    try:
        return object.__getattribute__(stood_in, "_compiled")
    except AttributeError:
        return None


def _nothing() -> None:
    return None
