"""Built-in classes of containers, and others that make an object."""

from __future__ import annotations

import collections
import collections.abc
import functools
import operator
import sys
import types
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.callables import attributes
from intarsia_pyeval.kinds import sets
from intarsia_pyeval.kinds.comparing import KeyMaker
from intarsia_pyeval.semantics import calling, folding, iteration
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE
from intarsia_pyeval.values.deques import Deque
from intarsia_pyeval.values.functions import BoundMethod, Partial
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import ClassValue, Object, Traceback
from intarsia_pyeval.values.sequences import List, Slice, Tuple
from intarsia_pyeval.values.sets import SetValue
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]


def _list(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("list", args, keywords, 0, 1)
    return iteration.list_of(tx, args[0]) if args else List()


def _tuple(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("tuple", args, keywords, 0, 1)
    if args and isinstance(args[0], Tuple) and args[0].cls is tuple:
        return args[0]
    return Tuple(iteration.taken(tx, args[0]) if args else ())


def _set(cls: Any) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        arity(cls.__name__, args, keywords, 0, 1)
        if args and isinstance(args[0], SetValue) and args[0].cls is cls is frozenset:
            return args[0]
        return sets.made(tx, cls, args[0]) if args else SetValue(cls=cls)

    return handler


def _dict(cls: Any) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        mapping = Dict(cls=cls)
        do.call_method(tx, mapping, "__init__", args, keywords)
        return mapping

    return handler


def _cmp_to_key(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (function,) = arity("cmp_to_key", args, keywords, 1)
    return KeyMaker(function)


def _exception(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("exception", args, keywords, 0)
    return tx.raising.handled() or NONE


def _exc_info(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("exc_info", args, keywords, 0)
    handled = tx.raising.handled()
    if handled is None:
        return Tuple([NONE, NONE, NONE])
    return Tuple([tx.live.class_value(handled.type()), handled, Traceback()])


def _namespace(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("SimpleNamespace", args, {}, 0)
    namespace = Object(types.SimpleNamespace, birth=tx.steps.now)
    namespace.written.update(keywords)
    return namespace


def _method(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    function, owner = arity("method", args, keywords, 2)
    return BoundMethod(function, owner)


def _deque(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    deque = Deque()
    do.call_method(tx, deque, "__init__", args, keywords)
    return deque


def _getter(cls: Any) -> BuiltinCall:
    """Return the constructor of an object that fetches attributes or items: it is made while tracing."""

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        named = {k: v.as_python() for k, v in keywords.items()}
        return tx.live.wrap(folding.real(tx, cls, *[a.as_python() for a in args], **named), None)

    return handler


def _slice(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    parts = list(arity("slice", args, keywords, 1, 3))
    return Slice([NONE, parts[0]] if len(parts) == 1 else parts)


def _object(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("object", args, keywords, 0)
    return Object(object, birth=tx.steps.now)


def _object_new(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if not args or not isinstance(args[0], ClassValue):
        raise Break("tracer.call", "__new__ is called without a class")
    cls = args[0]
    maker = tx.classes.find(cls.value, "__new__")
    return calling.new_instance(
        tx, cls, maker[0] if maker and not isinstance(maker[0], staticmethod) else object.__new__, args[1:], keywords
    )


def _new_of(base: Any) -> BuiltinCall:
    """Return `base.__new__` as called by a subclass's own `__new__`."""

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        if not args or not isinstance(args[0], ClassValue):
            raise Break("tracer.call", f"{base.__name__}.__new__ is called without a class")
        return calling.new_instance(tx, args[0], base.__new__, args[1:], keywords)

    return handler


def _partial(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if not args:
        raise Break("tracer.exception", "partial is called without a function")
    function, *rest = args
    if not do.truth(tx, attributes._callable(tx, [function], {})):
        raise Break("tracer.exception", f"partial is called with {function.describe()}")
    if isinstance(function, Partial):
        return Partial(function.function, [*function.args, *rest], {**function.keywords, **keywords})
    return Partial(function, rest, keywords)


def _cast(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return args[1]


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    collections.OrderedDict: _dict(collections.OrderedDict),
    collections.defaultdict: _dict(collections.defaultdict),
    collections.deque: _deque,
    dict: _dict(dict),
    frozenset: _set(frozenset),
    functools.cmp_to_key: _cmp_to_key,
    functools.partial: _partial,
    list: _list,
    object: _object,
    object.__new__: _object_new,
    operator.attrgetter: _getter(operator.attrgetter),
    operator.itemgetter: _getter(operator.itemgetter),
    operator.methodcaller: _getter(operator.methodcaller),
    set: _set(set),
    slice: _slice,
    sys.exc_info: _exc_info,
    sys.exception: _exception,
    tuple: _tuple,
    tuple.__new__: _new_of(tuple),
    dict.__new__: _new_of(dict),
    list.__new__: _new_of(list),
    set.__new__: _new_of(set),
    BaseException.__new__: _new_of(BaseException),
    types.MethodType: _method,
    types.SimpleNamespace: _namespace,
    typing.cast: _cast,
}
