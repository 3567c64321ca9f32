"""Built-in functions that give atoms: number classes, `bool`, `str`, `repr`, `format`, `hash`."""

from __future__ import annotations

import builtins
import operator
import sys
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding, formatting, operators, special
from intarsia_pyeval.semantics.opening import opened
from intarsia_pyeval.semantics.special import special_method
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value, defines
from intarsia_pyeval.values.constants import Const, boolean
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.state.raising import Raising
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]


def _atom(cls: Any) -> BuiltinCall:
    """Return the constructor of an atom: run on constants, else ask a special method."""
    method = {int: "__int__", float: "__float__", complex: "__complex__", bytes: "__bytes__"}.get(cls)

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        value = args[0] if args else None
        if method is None or value is None or len(args) != 1 or keywords:
            return folding.call_pure(tx, cls, args, keywords)
        if isinstance(value, Object) and tx.classes.find(value.cls, method) is not None:
            return _checked_atom(cls, value, special.special(tx, value, method, []))
        if isinstance(value, Object) and tx.classes.asks_python(value, "__index__") and cls is not bytes:
            return folding.call_pure(tx, cls, [Const(operators.index(tx, value))], {})
        converted = do.convert(tx, value, cls)
        if converted is not None:
            return converted
        return folding.call_pure(tx, cls, args, keywords)

    return handler


def _checked_atom(cls: Any, value: Value, answer: Value) -> Value:
    """Return what `__int__` or one like it answers, if it is of the class; anything else is left to CPython."""
    if answer.type() is not cls:
        raise Break("tracer.exception", f"{value.describe()} becomes a {cls.__name__} by {answer.describe()}")
    return answer


def _bool(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("bool", args, keywords, 0, 1)
    return do.as_bool(tx, args[0]) if args else boolean(False)


def _truth(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return _bool(tx, arity("truth", args, keywords, 1), {})


def _str(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if len(args) == 1 and not keywords:
        return formatting.call_str(tx, args[0])
    return folding.call_pure(tx, str, args, keywords)


def _repr(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("repr", args, keywords, 1)
    return formatting.call_repr(tx, value)


def _format(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    value, *spec = arity("format", args, keywords, 1, 2)
    if spec and not issubclass(spec[0].type(), str):
        raise Break("tracer.exception", f"format is called with {spec[0].describe()}")
    return formatting.format_value(tx, value, 0, spec[0] if spec else None)


def _hash(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("hash", args, keywords, 1)
    if isinstance(value, Object) and tx.classes.find(value.cls, "__hash__") is not None:
        definition = tx.classes.find(value.cls, "__hash__")
        if definition is not None and isinstance(definition[0], types.FunctionType):
            return _checked_hash(tx.raising, special.special(tx, value, "__hash__", []).settled())
    return formatting.call_hash(tx, value)


def _checked_hash(raising: Raising, answer: Value) -> Value:
    """Return the hash that CPython makes of what a user's `__hash__` answers."""
    if not issubclass(answer.type(), int):
        raising.error(TypeError, "__hash__ method should return an integer")
    number = int(answer.as_python())
    fits = -sys.maxsize - 1 <= number <= sys.maxsize
    return Const((-2 if number == -1 else number) if fits else hash(number))


def _special(name: str) -> BuiltinCall:
    """Return a function that asks one special method unless all is constant."""
    real: Callable[..., Any] = getattr(builtins, name.strip("_"))

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        if args and not isinstance(args[0], Const) and not keywords:
            number = opened(tx.guards, real, args)
            if number is not None:
                return number
            if not defines(args[0].type(), name) or len(args) > (2 if name == "__round__" else 1):
                raise Break("tracer.exception", f"{real.__name__} is called with {args[0].describe()}")
            return do.call(tx, special_method(tx, args[0], name), args[1:], {})
        return folding.call_pure(tx, real, args, keywords)

    return handler


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    abs: _special("__abs__"),
    bool: _bool,
    bytes: _atom(bytes),
    complex: _atom(complex),
    float: _atom(float),
    format: _format,
    hash: _hash,
    int: _atom(int),
    operator.truth: _truth,
    repr: _repr,
    round: _special("__round__"),
    str: _str,
}
