"""Binding the arguments of a call to parameters; calls that don't fit raise CPython's own TypeError."""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.stores import function_store
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.functions import PythonFunction
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["NotBoundError", "bind"]


_STARS = (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)


_PLAIN_FLAGS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def bind(tx: Tracer, function: PythonFunction, args: Sequence[Value], keywords: Keywords) -> dict[str, Value]:
    """Return the parameters' values. Calls that don't fit raise CPython's own TypeError."""
    code = function.code
    names, n_positional = code.co_varnames, code.co_argcount
    if not keywords and len(args) == n_positional and not code.co_kwonlyargcount and not code.co_flags & _PLAIN_FLAGS:
        return dict(zip(names, args, strict=False))
    bound = dict(zip(names[:n_positional], args, strict=False))
    try:
        extra = _bind_keywords(function, bound, keywords)
        _bind_rest(function, bound, args[n_positional:], extra)
        _bind_defaults(tx, function, bound)
    except NotBoundError:
        tx.raising.error(TypeError, _message(tx, function, len(args), keywords))
    return bound


class NotBoundError(Exception):
    """The arguments don't fit."""


def _message(tx: Tracer, function: PythonFunction, count: int, keywords: Keywords) -> str:
    """Return what CPython says, by a function with the same parameters that does nothing."""
    code = function.code
    count_all = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[: count_all + sum(bool(code.co_flags & flag) for flag in _STARS)]
    flags = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | (code.co_flags & _PLAIN_FLAGS)
    empty = _nothing.__code__.replace(
        co_argcount=code.co_argcount,
        co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount,
        co_varnames=names,
        co_nlocals=len(names),
        co_flags=flags,
        co_name=code.co_name,
        co_qualname=str(do.get_attribute(tx, function, "__qualname__").as_python()),
    )
    positional = (None,) * len(function_store.positional_defaults(tx, function))
    stub = types.FunctionType(empty, {}, code.co_name, positional)
    stub.__qualname__ = empty.co_qualname
    only = code.co_varnames[code.co_argcount : count_all]
    stub.__kwdefaults__ = {
        name: None for name in only if function_store.keyword_default(tx, function, name) is not None
    }
    try:
        stub(*[None] * count, **dict.fromkeys(keywords))
    except TypeError as error:
        return str(error)
    raise Break("tracer.exception", f"{function.describe()} is called with arguments that don't fit")


def _nothing() -> None:
    """Lend its code."""


def _bind_keywords(function: PythonFunction, bound: Keywords, keywords: Keywords) -> Keywords:
    """Bind keyword arguments to parameters; return those without a parameter."""
    code = function.code
    n_named = code.co_argcount + code.co_kwonlyargcount
    allowed = frozenset(code.co_varnames[code.co_posonlyargcount : n_named])
    extra: Keywords = {}
    for name, value in keywords.items():
        if name not in allowed:
            extra[name] = value
        elif name in bound:
            raise NotBoundError
        else:
            bound[name] = value
    return extra


def _bind_rest(function: PythonFunction, bound: Keywords, rest: Sequence[Value], extra: Keywords) -> None:
    """Bind `*args` and `**kwargs`."""
    code = function.code
    at = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & inspect.CO_VARARGS:
        bound[code.co_varnames[at]] = Tuple(rest)
        at += 1
    elif rest:
        raise NotBoundError
    if code.co_flags & inspect.CO_VARKEYWORDS:
        bound[code.co_varnames[at]] = Dict({name: (Const(name), value) for name, value in extra.items()})
    elif extra:
        raise NotBoundError


def _bind_defaults(tx: Tracer, function: PythonFunction, bound: Keywords) -> None:
    """Fill in defaults."""
    code = function.code
    positional = code.co_varnames[: code.co_argcount]
    missing = [name for name in positional if name not in bound]
    if missing:
        defaults = function_store.positional_defaults(tx, function)
        for name in missing:
            at = positional.index(name) - (len(positional) - len(defaults))
            if at < 0:
                raise NotBoundError
            bound[name] = defaults[at]
    for name in code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]:
        if name not in bound:
            default = function_store.keyword_default(tx, function, name)
            if default is None:
                raise NotBoundError
            bound[name] = default
