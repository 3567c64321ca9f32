"""How what belongs to a class that was made while tracing is made, or found, again."""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Unreconstructable
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import ATOMS, Const
from intarsia_pyeval.values.functions import PythonFunction
from intarsia_pyeval.values.made import Held, Made, MadeClass, Recipe

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["is_made", "made_again", "note_parts"]


def is_made(tx: Tracer, real: Any) -> bool:
    """Tell whether an object stands for one that the traced code makes, or belongs to such a class."""
    if not tx.live.stand_ins.used:
        return False
    if isinstance(tx.live.known(type(real)), MadeClass) or id(real) in tx.live.stand_ins.parts:
        return True
    return isinstance(tx.live.known(real), (Made, MadeClass))


def note_parts(tx: Tracer, cls: MadeClass) -> None:
    """Note what a class holds besides what the traced code put there: its metaclass and decorators made it."""
    for name, value in list(vars(cls.value).items()):
        _note(tx, value, cls, (name,))
        if type(value) is dict:
            for key, item in value.items():
                _note(tx, item, cls, (name, key))


def _note(tx: Tracer, value: Any, cls: MadeClass, path: tuple[Any, ...]) -> None:
    if type(value) in ATOMS or isinstance(value, (type, Held)) or tx.live.known(value) is not None:
        return
    if not isinstance(value, enum.Enum) and _is_own(value, cls.value):
        tx.live.keep(value)
        tx.live.stand_ins.parts.setdefault(id(value), Made(value, Recipe(_part, (cls, *map(Const, path)))))


def _is_own(value: Any, cls: Any) -> bool:
    """Tell whether no base of a class has the same object: it was made for this one."""
    return not any(value is held for base in cls.__mro__[1:] for held in vars(base).values())


def made_again(tx: Tracer, value: Any) -> Value | None:
    """Return the model by which replacement code makes an object that stands for another; None for all others.

    Raises:
        Unreconstructable: It holds one.
    """
    earlier = tx.live.known(value)
    if isinstance(earlier, (Made, MadeClass)):
        return earlier
    if isinstance(earlier, PythonFunction) and earlier.identity() is not value:
        return earlier
    cls = tx.live.known(type(value))
    if isinstance(value, enum.Enum) and isinstance(cls, MadeClass):
        model = tx.live.stand_ins.parts.get(id(value))
        if model is None:
            model = Made(value, Recipe(_member, (cls, tx.live.from_python(value._value_))))
            tx.live.stand_ins.parts[id(value)] = model
        return model
    part = tx.live.stand_ins.parts.get(id(value))
    if part is None and _holds_made(tx, value):
        raise Unreconstructable(f"a {type(value).__name__} that holds a class made by the traced code")
    return part


def _holds_made(tx: Tracer, value: Any) -> bool:
    """Tell whether a container holds what stands for something else."""
    if isinstance(value, (dict, MappingProxyType)):
        value = [*value.keys(), *value.values()]
    if not isinstance(value, (tuple, list, set, frozenset)):
        return False
    return any(isinstance(item, Held) or is_made(tx, item) or _holds_made(tx, item) for item in value)


def _part(cls: Any, name: str, *keys: Any) -> Any:
    """Return what a class holds under a name, or an item of that."""
    member = vars(cls)[name]
    for key in keys:
        member = member[key]
    return member


def _member(cls: Any, value: Any) -> Any:
    """Return a member of an enumeration."""
    return cls(value)
