"""Real objects in the place of values, of which a class is made while tracing."""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.stores import dict_store, function_store
from intarsia_pyeval.values.base import NotConstantError, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.functions import Function, MadeFunction, PythonFunction
from intarsia_pyeval.values.made import Held, Made, MadeClass
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import Builtin, ClassValue, ModuleValue, Object
from intarsia_pyeval.values.sequences import List, Tuple

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["held_in", "stand_in", "whole_stand_in"]


_BINDING = ("__get__", "__set__", "__delete__", "__set_name__")


def stand_in(tx: Tracer, value: Value) -> Any:
    """Return a real object for a value of a class body; asked for the model of that object, `tx.live` gives the value.

    Raises:
        Break: It is a descriptor of the program's own that no object exists for.
    """
    if isinstance(value, Const):
        return value.value
    if isinstance(value, (Made, MadeClass, Builtin, ClassValue, ModuleValue)):
        return value.value
    if isinstance(value, PythonFunction):
        return _function(tx, value)
    if isinstance(value, Object) and _is_lasting(value.value):
        return value.value
    if isinstance(value, Tuple) and value.cls is tuple:
        items = tuple(stand_in(tx, item) for item in value.items)
        if not any(isinstance(item, Held) for item in items):
            return items
    elif any(hasattr(value.type(), name) for name in _BINDING) and isinstance(value, Object):
        raise Break("tracer.call", f"{value.describe()}, which binds in a way of its own, is kept by a class made here")
    return _kept(tx, value, Held(value))


def _is_lasting(real: Any) -> bool:
    """Tell whether an existing object is known by its identity: a member of an enumeration, or what `typing` made."""
    return isinstance(real, (enum.Enum, types.GenericAlias, types.UnionType)) or type(real).__module__ == "typing"


def whole_stand_in(tx: Tracer, value: Value) -> Any:
    """Return a real object for an argument of what makes a class: lists and dicts hold what stands for their items."""
    if isinstance(value, List) and value.type() is list:
        return [whole_stand_in(tx, item) for item in value.items]
    if isinstance(value, Tuple) and value.cls is tuple:
        return tuple(whole_stand_in(tx, item) for item in value.items)
    if isinstance(value, Dict) and value.cls is dict:
        return {k.as_python(): whole_stand_in(tx, v) for k, v in dict_store.entries(tx, value).values()}
    return stand_in(tx, value)


def held_in(stand_in: Any) -> Held | None:
    """Return the first value that nothing stands for, in a stand-in or in what it holds."""
    if isinstance(stand_in, Held):
        return stand_in
    if isinstance(stand_in, dict):
        stand_in = list(stand_in.values())
    inside = map(held_in, stand_in) if isinstance(stand_in, (list, tuple)) else ()
    return next((held for held in inside if held is not None), None)


def _kept(tx: Tracer, value: Value, stand_in: Any) -> Any:
    """Return a new stand-in, known from here on."""
    tx.live.adopt(stand_in, value)
    tx.live.stand_ins.used = True
    return stand_in


def _function(tx: Tracer, value: PythonFunction) -> Any:
    """Return a function that is never called: what is asked of it is its signature, and what it is marked with."""
    function = tx.live.stand_ins.functions.get(value)
    if function is not None:
        return function
    cells = tuple(types.CellType() for _ in value.code.co_freevars)
    names = function_store.global_names(tx, value).real
    made = types.FunctionType(value.code, names, closure=cells)
    tx.live.stand_ins.functions[value] = made
    _kept(tx, value, made)
    if isinstance(value, Function):
        _copy_existing(made, value.value)
        return made
    made.__defaults__ = tuple(stand_in(tx, item) for item in function_store.positional_defaults(tx, value)) or None
    assert isinstance(value, MadeFunction)
    if value.keyword_defaults is not None:
        defaults = dict_store.entries(tx, value.keyword_defaults).values()
        made.__kwdefaults__ = {key.as_python(): stand_in(tx, item) for key, item in defaults}
    _annotate(tx, made, value)
    for name, item in value.attributes.items():
        if name != "__annotations__":
            setattr(made, name, stand_in(tx, item))
    return made


def _copy_existing(stand_in: types.FunctionType, real: types.FunctionType) -> None:
    """Give the stand-in of an existing function what is read of it."""
    stand_in.__defaults__, stand_in.__kwdefaults__ = real.__defaults__, real.__kwdefaults__
    stand_in.__name__, stand_in.__qualname__, stand_in.__module__ = real.__name__, real.__qualname__, real.__module__
    stand_in.__doc__, stand_in.__annotations__ = real.__doc__, dict(real.__annotations__)
    stand_in.__dict__.update(real.__dict__)


def _annotate(tx: Tracer, stand_in: types.FunctionType, value: MadeFunction) -> None:
    """Give the stand-in the annotations, which the text of its signature shows."""
    given = value.attributes.get("__annotations__") or value.annotations
    if given is None:
        return
    try:
        annotations = whole_stand_in(tx, given)
    except NotConstantError:
        return
    stand_in.__annotations__ = (
        annotations if isinstance(annotations, dict) else dict(zip(annotations[::2], annotations[1::2], strict=True))
    )
