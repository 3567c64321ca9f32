"""Making classes: the class statement, `type` of three arguments, and functions of the standard library that make one.

The class that is made while tracing is a stand-in (`values.made`): metaclasses and decorators of the standard library
run on it, which do nothing but look at it and change it. Code of the program's own that would run there breaks.
"""

from __future__ import annotations

import abc
import enum
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.evaluate import EvaluatedFrame
from intarsia_pyeval.semantics import stand_ins
from intarsia_pyeval.stores import cell_store, dict_store, function_store, stand_in_store
from intarsia_pyeval.trust import is_trusted
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.functions import Cell, MadeFunction
from intarsia_pyeval.values.made import Held, Made, MadeClass, Names, Recipe
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import ClassValue
from intarsia_pyeval.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["build_class", "class_of", "decorate", "made_by", "set_on_class"]


#: Metaclasses whose making of a class runs no code of the program's own, but for `__init_subclass__` and the like.
_METACLASSES = frozenset(
    {type, abc.ABCMeta, enum.EnumMeta, type(typing.Protocol)}
    | {type(base) for base in types.resolve_bases((typing.NamedTuple, typing.TypedDict))}
)
#: Methods of enumerations that making one calls.
_CALLED_BY_ENUMS = ("__new__", "__init__", "_generate_next_value_", "_missing_", "__set_name__", "__init_subclass__")


def build_class(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model the class statement: `__build_class__(body, name, *bases, metaclass=..., **others)`."""
    body, name, *given = args
    if not isinstance(body, MadeFunction):
        raise Break("tracer.call", f"the body of a class is {body.describe()}")
    bases = types.resolve_bases([_base(tx, base) for base in given])
    metaclass = keywords.get("metaclass")
    others = {key: value for key, value in keywords.items() if key != "metaclass"}
    meta = _metaclass(tx, bases, metaclass)
    prepared: Any = meta.__prepare__(name.as_python(), tuple(bases))
    names = Names(prepared if meta is enum.EnumMeta else None)
    frame = EvaluatedFrame(
        tx, body.code, {}, function_store.global_names(tx, body), function_store.cells(tx, body), names=names
    )
    tx.frames.check_depth(body.describe())
    tx.frames.spend(10)
    tx.frames.run(frame)
    if len(bases) != len(given) or any(one is not _base(tx, other) for one, other in zip(bases, given)):
        dict_store.store(tx, names, "__orig_bases__", Const("__orig_bases__"), Tuple(given))
    return class_of(tx, meta, name.as_python(), bases, names, others)


def class_of(tx: Tracer, given: Any, name: str, bases: Sequence[Any], names: Dict, keywords: Keywords) -> MadeClass:
    """Make a class of its name, its bases as they are given or resolved, and its namespace."""
    bases = [_base(tx, base) if isinstance(base, Value) else base for base in bases]
    meta = _metaclass(tx, bases, ClassValue(given))
    entries = {str(key): value for key, (_, value) in dict_store.entries(tx, names).items()}
    cell = entries.pop("__classcell__", None)
    assert cell is None or isinstance(cell, Cell)
    real = _namespace(tx, entries, names.prepared if isinstance(names, Names) else None)
    _check_silent(tx, meta, bases, entries, real)
    if cell is not None:
        real["__classcell__"] = types.CellType()
    given = {key: stand_ins.stand_in(tx, value) for key, value in keywords.items()}
    stand_in = _real(f"class {name}", lambda: meta(name, tuple(bases), real, **given))
    annotations = entries.get("__annotations__")
    if annotations is not None and "__annotations__" in vars(stand_in):
        tx.live.adopt(vars(stand_in)["__annotations__"], annotations)
    loads = tuple(tx.live.wrap(base, None) for base in bases)
    prepared = isinstance(names, Names) and names.prepared is not None
    recipe = Recipe(meta, (Const(name), Tuple(loads)), keywords, entries, prepared, cell)
    model = MadeClass(stand_in, recipe)
    _adopt(tx, stand_in, model)
    if cell is not None:
        cell_store.fill(tx.effects, cell, model)
    return model


def made_by(
    tx: Tracer, maker: Any, args: Sequence[Value], keywords: Keywords, told: Mapping[str, Any] | None = None
) -> Value:
    """Model a call of a library's function that makes a class, or an object of functions such as a property.

    Args:
        tx: The capture.
        maker: The function.
        args: By position.
        keywords: By name.
        told: Keywords besides, as the function would find them out of the frame that calls it.
    """
    keywords = {**keywords, **{k: Const(v) for k, v in (told or {}).items() if k not in keywords}}
    real_args = [stand_ins.whole_stand_in(tx, arg) for arg in args]
    real_keywords = {key: stand_ins.whole_stand_in(tx, value) for key, value in keywords.items()}
    name = getattr(maker, "__name__", repr(maker))
    stand_in = _real(name, lambda: maker(*real_args, **real_keywords))
    recipe = Recipe(maker, tuple(args), keywords)
    model = MadeClass(stand_in, recipe) if isinstance(stand_in, type) else Made(stand_in, recipe)
    _adopt(tx, stand_in, model)
    return model


def decorate(tx: Tracer, decorator: Any, cls: MadeClass, keywords: Keywords) -> Value:
    """Call a library's decorator of classes: it changes the class, or makes another of it."""
    given = {key: stand_ins.whole_stand_in(tx, value) for key, value in keywords.items()}
    unhashable = [held for held in map(_default, vars(cls.value).values()) if held is not None]
    if any(held.model.type().__hash__ is None for held in unhashable):
        raise Break("tracer.exception", f"a default of {cls.describe()} is mutable")
    stand_in = _real(decorator.__name__, lambda: decorator(cls.value, **given))
    tx.classes.forget()
    tx.effects.advanced()
    if stand_in is not cls.value:
        model = MadeClass(stand_in, Recipe(decorator, (cls,), keywords))
        _adopt(tx, stand_in, model)
        return model
    cls.changes.append((decorator, keywords))
    stand_in_store.note_parts(tx, cls)
    return cls


def _default(raw: Any) -> Held | None:
    """Return the value of the traced code's that a class gives a field."""
    return stand_ins.held_in(getattr(raw, "default", raw))


def _adopt(tx: Tracer, stand_in: Any, model: Made | MadeClass) -> None:
    """Know a stand-in from here on."""
    tx.live.adopt(stand_in, model)
    tx.live.stand_ins.used = True
    if isinstance(model, MadeClass):
        tx.lookups.note_made(stand_in)
        stand_in_store.note_parts(tx, model)


def set_on_class(tx: Tracer, cls: MadeClass, name: str, value: Value) -> None:
    """Set an attribute of a class that was made while tracing."""
    if type(cls.value) is enum.EnumMeta or (name.startswith("__") and name not in _MAY_BE_SET):
        raise Break("tracer.mutation", f"{name!r} of {cls.describe()} is set")
    found = stand_ins.stand_in(tx, value)
    _real(f"setting {name!r}", lambda: type.__setattr__(cls.value, name, found))
    tx.classes.forget()
    tx.effects.advanced()
    cls.changes.append((name, value))


_MAY_BE_SET = frozenset({"__module__", "__qualname__", "__name__", "__doc__"})


def _real(what: str, function: Callable[[], Any]) -> Any:
    """Run what makes a class; where it raises, the program itself runs it, and raises."""
    try:
        return function()
    except Break:
        raise
    except Exception as error:
        raise Break("tracer.exception", f"{what} raises {type(error).__name__}: {error}") from None


def _base(tx: Tracer, base: Value) -> Any:
    """Return a base as it is given: a class, or a generic alias or function of `typing` that stands for some."""
    real = base.value if isinstance(base, (ClassValue, MadeClass)) else base.identity()
    accepted = isinstance(real, type) or is_trusted(getattr(type(real), "__module__", None))
    if real is None or not accepted or (not is_trusted(getattr(real, "__module__", "")) and not isinstance(real, type)):
        raise Break("tracer.call", f"{base.describe()} is the base of a class")
    return real


def _metaclass(tx: Tracer, bases: Sequence[Any], given: Value | None) -> Any:
    """Return the metaclass, the most derived of all."""
    if given is not None and not isinstance(given, ClassValue):
        raise Break("tracer.call", f"a class is made by {given.describe()}")
    chosen: Any = given.value if given is not None else type
    for meta in (type(base) for base in bases):
        chosen = meta if issubclass(meta, chosen) else chosen
        if not issubclass(chosen, meta):
            raise Break("tracer.exception", "the metaclasses of a class's bases don't go together")
    if chosen not in _METACLASSES:
        raise Break("tracer.call", f"a class is made whose metaclass {chosen.__qualname__} may run code")
    return chosen


def _namespace(tx: Tracer, entries: Mapping[str, Value], prepared: Any) -> Any:
    """Return the real namespace."""
    if prepared is not None:
        return prepared  # filled as the body ran
    real: dict[str, Any] = {}
    for name, value in entries.items():
        whole = name in ("__annotations__", "__match_args__", "__orig_bases__", "__slots__")
        real[name] = stand_ins.whole_stand_in(tx, value) if whole else stand_ins.stand_in(tx, value)
    return real


def _check_silent(
    tx: Tracer, meta: Any, bases: Sequence[Any], entries: Mapping[str, Value], names: Mapping[str, Any]
) -> None:
    """See that making the class runs no code of the program's.

    Raises:
        Break: It does.
    """
    order = [cls for base in bases for cls in base.__mro__]
    hook = next((cls for cls in order if "__init_subclass__" in vars(cls)), object)
    if not is_trusted(hook.__module__) or isinstance(tx.live.known(hook), MadeClass):
        raise Break("tracer.call", f"a class is made, which calls __init_subclass__ of {hook.__qualname__}")
    for name, value in names.items():
        told = next((cls for cls in type(value).__mro__ if "__set_name__" in vars(cls)), object)
        if not is_trusted(told.__module__):
            raise Break("tracer.call", f"a class is made, which tells {name!r} its name by a __set_name__")
    if issubclass(meta, enum.EnumMeta):
        _check_enum(order, entries, names)


def _check_enum(order: Sequence[Any], entries: Mapping[str, Value], names: Mapping[str, Any]) -> None:
    """See that an enumeration has known values, and no functions of the program's that making it calls."""
    for name in _CALLED_BY_ENUMS:
        homes = [vars(cls)[name] for cls in order if name in vars(cls) and not is_trusted(cls.__module__)]
        if name in entries or homes:
            raise Break("tracer.call", f"an enumeration is made, which calls its {name}")
    if any(stand_ins.held_in(value) is not None for value in names.values()):
        raise Break("tracer.call", "an enumeration is made of values that aren't known")
