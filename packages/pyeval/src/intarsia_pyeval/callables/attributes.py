"""Built-in functions about attributes, classes and the frame."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_ir.guards import IdentityGuard
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.semantics import class_making, folding, iteration, special
from intarsia_pyeval.stores import cell_store, dict_store, stand_in_store
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import NULL, Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const, boolean
from intarsia_pyeval.values.functions import BoundMethod, Function, Partial, PythonFunction
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import Builtin, ClassValue, Super
from intarsia_pyeval.values.sequences import Tuple
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]


def _type(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if len(args) == 3:
        return _made_class(tx, args, keywords)
    (value,) = arity("type", args, keywords, 1)
    cls = value.type()
    if value.source is not None:
        tx.classes.note(cls, tx.sources.type_of(value.source))
    tx.classes.rely_on_identity(cls)
    return tx.live.class_value(cls)


def _made_class(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `type(name, bases, namespace)`."""
    name, bases, names = args
    if not isinstance(bases, Tuple) or not isinstance(names, Dict):
        raise Break("tracer.call", f"a class is made of {bases.describe()} and {names.describe()}")
    module = Const("__module__")
    namespace = Dict(dict_store.entries(tx, names))
    home = tx.frames.top().module_name()
    if home is not None and dict_store.find(tx, namespace, "__module__") is None:
        dict_store.store(tx, namespace, "__module__", module, Const(home))
    return class_making.class_of(tx, type, str(name.as_python()), iteration.unpack(tx, bases), namespace, keywords)


def _super(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if keywords or len(args) not in (0, 2):
        raise Break("tracer.call", f"super is called with {len(args)} arguments")
    if args:
        cls, owner = args
    else:
        frame = tx.frames.top()
        if "__class__" not in frame.cells or not frame.code.co_varnames:
            raise Break("tracer.exception", "super() is called outside of a method")
        cls = cell_store.content_of(tx, frame.cells["__class__"], "__class__", free=True)
        first = frame.code.co_varnames[0]
        instance = frame.read(first)
        if instance is None and first in frame.cells:
            instance = cell_store.content_of(tx, frame.cells[first], first, free=False)
        if instance is None:
            raise Break("tracer.exception", "super(): arg[0] deleted")
        owner = instance
    if not isinstance(cls, ClassValue):
        raise Break("tracer.exception", f"super is called with {cls.describe()}")
    of_class = isinstance(owner, ClassValue) and issubclass(owner.value, cls.value)
    if not of_class and cls.value not in owner.type().__mro__:
        raise Break("tracer.exception", f"super is called with {owner.describe()}")
    return Super(cls.value, owner)


def _name(value: Value) -> str:
    """Return an attribute name."""
    value = value.settled()
    if isinstance(value, Const) and isinstance(value.value, str):
        return value.value
    raise Break("tracer.exception", f"an attribute name is {value.describe()}")


def _getattr(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, name, *default = arity("getattr", args, keywords, 2, 3)
    if not default:
        return do.get_attribute(tx, owner, _name(name))
    try:
        return do.get_attribute(tx, owner, _name(name))
    except Raised as raised:
        if not raised.is_a(AttributeError):
            raise
        return default[0]


def _hasattr(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, name = arity("hasattr", args, keywords, 2)
    return boolean(special.has_attribute(tx, owner, _name(name)))


def _setattr(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, name, value = arity("setattr", args, keywords, 3)
    do.set_attribute(tx, owner, _name(name), value)
    return NONE


def _delattr(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, name = arity("delattr", args, keywords, 2)
    do.delete_attribute(tx, owner, _name(name))
    return NONE


def _callable(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("callable", args, keywords, 1)
    if isinstance(value, (PythonFunction, BoundMethod, BoundBuiltin, Builtin, ClassValue, Partial)):
        return boolean(True)
    return boolean(tx.classes.find(value.type(), "__call__") is not None)


def _vars(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if not args and not keywords:
        return _locals(tx, args, keywords)
    (value,) = arity("vars", args, keywords, 1)
    return do.get_attribute(tx, value, "__dict__")


def _locals(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Return the variables of the frame in a dict; before 3.13 a frame has but one such dict, brought up to date."""
    arity("locals", args, keywords, 0)
    frame = tx.frames.top()
    code = frame.code
    if not code.co_flags & inspect.CO_NEWLOCALS:
        raise Break("tracer.call", "locals() is called in the body of a class")
    variables = frame.gave_locals or Dict()
    for name in dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)):
        cell = frame.cells.get(name)
        value = frame.read(name) if cell is None else cell_store.peek(tx, cell, name)
        if value is not None and value is not NULL:
            dict_store.store(tx, variables, name, Const(name), value)
        elif dict_store.find(tx, variables, name) is not None:
            dict_store.remove(tx, variables, name, Const(name))
    if sys.version_info < (3, 13):
        frame.gave_locals = variables
    return variables


def _dir(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if args or keywords:
        raise Break("tracer.call", "dir() of an object isn't modelled")
    names = iteration.list_of(tx, _locals(tx, (), {}))
    do.call_method(tx, names, "sort", [], {})
    return names


def _signature(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Ask for the signature of an existing function while tracing: its code is guarded."""
    (value,) = arity("signature", args, keywords, 1)
    function = value.function if isinstance(value, BoundMethod) else value
    if not isinstance(function, Function):
        raise Break("tracer.call", f"the signature of {value.describe()} is asked for")
    function.guard_code(tx.guards)
    real = function.value if function is value else types.MethodType(function.value, object())
    return tx.live.wrap(folding.real(tx, inspect.signature, real), None)


def _id(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("id", args, keywords, 1)
    real = value.identity()
    if real is None or stand_in_store.is_made(tx, real):
        raise Break("tracer.identity", f"the id of {value.describe()} is asked for")
    if value.source is not None:
        tx.guards.add(IdentityGuard, value.source, real)
    return Const(id(real))


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    callable: _callable,
    delattr: _delattr,
    dir: _dir,
    getattr: _getattr,
    hasattr: _hasattr,
    id: _id,
    inspect.signature: _signature,
    locals: _locals,
    setattr: _setattr,
    super: _super,
    type: _type,
    vars: _vars,
}
