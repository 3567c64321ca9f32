"""Functions and classes of the standard library that make classes, or objects of which classes consist."""

from __future__ import annotations

import abc
import builtins
import collections
import dataclasses
import enum
import functools
import sys
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import class_making
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.functions import MadeFunction
from intarsia_pyeval.values.made import Decorator, Made, MadeClass
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]


def _decorator(function: Any) -> BuiltinCall:
    """Return how a decorator of classes is called, with a class or with keywords first."""

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        if not args or isinstance(args[0], Const):
            return Decorator(tx.live.wrap(function, None), keywords)
        if not isinstance(args[0], MadeClass) or len(args) != 1:
            raise Break("tracer.mutation", f"{function.__name__} changes {args[0].describe()}")
        return class_making.decorate(tx, function, args[0], keywords)

    return handler


def _of_functions(maker: Any) -> BuiltinCall:
    """Return how a class is called whose instances hold a function, such as `property`."""

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        return class_making.made_by(tx, maker, args, keywords)

    return handler


def _module(tx: Tracer) -> dict[str, Any]:
    """Return the module that a library's function would find out of the frame that calls it."""
    return {"module": tx.frames.top().module_name()}


def _named_tuple(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return class_making.made_by(tx, collections.namedtuple, args, keywords, _module(tx))


def _typed_named_tuple(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    new_class = class_making.made_by(tx, typing.NamedTuple, args, keywords)
    assert isinstance(new_class, MadeClass)
    class_making.set_on_class(tx, new_class, "__module__", Const(_module(tx)["module"]))
    return new_class


def _make_dataclass(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    told = _module(tx) if sys.version_info >= (3, 12) else {}
    return class_making.made_by(tx, dataclasses.make_dataclass, args, keywords, told)


def _abstract_method(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (function,) = arity("abstractmethod", args, keywords, 1)
    if isinstance(function, Made):
        raise Break("tracer.call", f"abstractmethod marks {function.describe()}")
    if not isinstance(function, MadeFunction):
        raise Break("tracer.mutation", f"abstractmethod marks {function.describe()}")
    function.attributes["__isabstractmethod__"] = Const(True)
    return function


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    abc.abstractmethod: _abstract_method,
    builtins.__build_class__: class_making.build_class,
    classmethod: _of_functions(classmethod),
    collections.namedtuple: _named_tuple,
    dataclasses.dataclass: _decorator(dataclasses.dataclass),
    dataclasses.field: _of_functions(dataclasses.field),
    dataclasses.make_dataclass: _make_dataclass,
    enum.auto: _of_functions(enum.auto),
    enum.unique: _decorator(enum.unique),
    functools.cached_property: _of_functions(functools.cached_property),
    functools.total_ordering: _decorator(functools.total_ordering),
    property: _of_functions(property),
    staticmethod: _of_functions(staticmethod),
    typing.NamedTuple: _typed_named_tuple,
    typing.final: _decorator(typing.final),
    typing.runtime_checkable: _decorator(typing.runtime_checkable),
}
