"""Calls of functions, of callables written in C, of classes and of instances."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import operator
import reprlib
import types
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_ir.guards import IdentityGuard
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Whole
from intarsia_pyeval.callables.polyfills import polyfill
from intarsia_pyeval.semantics import class_making, exception_groups, folding, inlining, iteration
from intarsia_pyeval.semantics.storing import check_no_arguments
from intarsia_pyeval.stores import cell_store, function_store
from intarsia_pyeval.trust import INLINED_LIBRARIES, is_installed, is_standard_library, is_trusted
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const, is_none
from intarsia_pyeval.values.functions import Function
from intarsia_pyeval.values.made import MadeClass
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.objects import Builtin, ClassValue, Object
from intarsia_pyeval.values.sequences import List, Tuple
from intarsia_pyeval.values.sets import SetValue

if TYPE_CHECKING:
    from intarsia_pyeval.state.live import Live
    from intarsia_pyeval.tracer import Tracer

__all__ = [
    "call_builtin",
    "call_class",
    "call_function",
    "call_getter",
    "call_object",
    "call_unbound",
    "initialise",
    "instantiate",
    "new_instance",
]


_WEAK = (weakref.ref, weakref.ProxyType)
_STATISTICS = frozenset({"cache_info", "cache_clear"})
#: What keeps the text of an object from going round in circles: it asks for identities, and for the thread.
_REPRS = frozenset(
    maker(lambda _: "").__code__
    for maker in (getattr(dataclasses, "_recursive_repr", reprlib.recursive_repr()), reprlib.recursive_repr())
)
_DISPATCH = functools.singledispatch(lambda _: None).dispatch.__code__


def call_function(tx: Tracer, function: Function, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call an existing Python function."""
    answer = tx.extension.call_function(tx, function, args, keywords)
    if answer is not None:
        function.guard_identity(tx.guards)
        return answer
    if function.code is _DISPATCH:
        return _dispatched(tx, function, *args)
    if function.code in _REPRS and len(args) == 1 and not keywords:
        return _represented(tx, function, *args)
    stand_in = tx.callables.stand_ins.get(function.value) or tx.callables.rules.get(function.value)
    if stand_in is not None:
        return stand_in(tx, args, keywords)
    root = (function.value.__module__ or "").partition(".")[0]
    if is_standard_library(root) and root not in INLINED_LIBRARIES:
        raise Break("tracer.call", f"{function.describe()} of the standard library isn't evaluated")
    if root == "weakref" and tx.effects.may_have_ended_any():
        raise Whole("tracer.lifetime", f"{function.describe()} is called, of an object that may have ended before")
    function.guard_code(tx.guards)
    return inlining.inline(tx, function, args, keywords)


def _dispatched(tx: Tracer, function: Function, cls: Value) -> Value:
    """Choose the implementation for a class as `functools.singledispatch` does, without its weak cache."""
    cells = dict(zip(function.code.co_freevars, function_store.cells(tx, function), strict=True))
    registry = cell_store.content_of(tx, cells["registry"], "registry", free=True)
    real = registry.real if isinstance(registry, Dict) else None
    if real is None or any(hasattr(each, "__abstractmethods__") for each in real):
        raise Break("tracer.call", f"{function.describe()} of singledispatch knows abstract classes")
    return polyfill(tx, "registered_for", [registry, cls])


def _represented(tx: Tracer, function: Function, owner: Value) -> Value:
    """Return the text of an object, or what stands for it inside of its own."""
    function.guard_code(tx.guards)
    cells = dict(zip(function.code.co_freevars, function_store.cells(tx, function), strict=True))
    body = cell_store.content_of(tx, cells["user_function"], "user_function", free=True)
    if any(frame.code is getattr(body, "code", None) and owner in frame.locals.values() for frame in tx.frames.stack):
        filled = cells.get("fillvalue")
        return Const("...") if filled is None else cell_store.content_of(tx, filled, "fillvalue", free=True)
    return do.call(tx, body, [owner], {})


# -- binding -------------------------------------------------------------------------------------------------


# -- built-in callables --------------------------------------------------------------------------------------


def call_builtin(tx: Tracer, function: Builtin, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a callable written in C."""
    raw = function.value
    answer = tx.extension.call(tx, raw, args, keywords)
    if answer is not None:
        return answer
    handler = tx.callables.rules.get(raw)
    if handler is not None:
        return handler(tx, args, keywords)
    stand_in = tx.callables.stand_ins.get(raw)
    if stand_in is not None:
        return stand_in(tx, args, keywords)
    if type(raw) is _LRU_WRAPPER:
        return _call_cached(tx, function, args, keywords)
    owner = getattr(raw, "__objclass__", None)
    if owner is not None and args and isinstance(raw, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return call_unbound(tx, raw, owner, args, keywords)
    if raw in tx.callables.pure:
        return folding.call_pure(tx, raw, args, keywords)
    bound_to = getattr(raw, "__self__", None)
    if bound_to is not None and not isinstance(bound_to, (types.ModuleType, type)):
        return do.call_method(tx, tx.live.wrap(bound_to, None), raw.__name__, args, keywords)
    raise Break("tracer.call", f"the built-in {function.describe()} isn't modelled")


def _call_cached(tx: Tracer, function: Builtin, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a cached function for real, where that can't be told from what eager does: the cache is filled once.

    That is so when the cache has the answer, and when the body, evaluated first, changes nothing. Functions of
    installed libraries are called without looking, as long as all arguments are atoms, or objects that the cache
    knows by identity, as the logger of a warning that is given once.
    """
    raw = function.value
    if not is_installed(raw) and any(not _STATISTICS.isdisjoint(frame.code.co_names) for frame in tx.frames.stack):
        raise Break("tracer.call", f"the cached {function.describe()} is called where statistics of a cache are read")
    given = [value for value in (*args, *keywords.values()) if not isinstance(value, (Const, ClassValue))]
    if given and is_installed(raw) and all(_is_known_by_identity(value) for value in given):
        for value in given:
            if value.source is not None:
                tx.guards.add(IdentityGuard, value.source, value.identity())
    elif given:
        body = tx.live.wrap(raw.__wrapped__, function.source and tx.sources.attribute(function.source, "__wrapped__"))
        before = tx.effects.changes
        result = do.call(tx, body, args, keywords)
        if tx.effects.changes != before or not isinstance(result, Const):
            raise Break("tracer.call", f"the cached {function.describe()} does more than compute a constant")
        return result
    filled = not args and not keywords and raw.cache_info().currsize > 0
    if not filled and not is_installed(raw):
        before = tx.effects.changes
        do.call(tx, tx.live.wrap(raw.__wrapped__, None), args, keywords)
        if tx.effects.changes != before:
            raise Break("tracer.call", f"the cached {function.describe()} has effects")
    try:
        real = raw(*map(_given_object, args), **{k: _given_object(v) for k, v in keywords.items()})
    except Exception as error:  # at the break it raises again
        raise Break("tracer.exception", f"{raw.__qualname__} raises {type(error).__name__}") from None
    return tx.live.wrap(real, None)


def _is_known_by_identity(value: Value) -> bool:
    """Tell whether a value is an existing object that hashes by identity, and was left as it is."""
    if not isinstance(value, Object) or not value.existing or value.written:
        return False
    hashes: Any = type(value.value).__hash__
    return hashes is object.__hash__


def _given_object(value: Value) -> Any:
    """Return the object that a cached function is called with."""
    return value.value if isinstance(value, Object) else value.as_python()


def call_unbound(tx: Tracer, raw: Any, owner: Any, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `Class.method(instance, ...)`."""
    first = args[0]
    if not issubclass(first.type(), owner):
        raise Break("tracer.exception", f"{owner.__name__}.{raw.__name__} is called with {first.describe()}")
    if isinstance(first, ClassValue) and raw.__name__ == "__call__":
        return instantiate(tx, first, args[1:], keywords)
    if isinstance(first, Object):
        return do.call_native(tx, first, raw, raw.__name__, args[1:], keywords)
    return do.call_method(tx, first, raw.__name__, args[1:], keywords)


# -- instances -----------------------------------------------------------------------------------------------


def call_class(tx: Tracer, cls: ClassValue, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `cls(*args, **keywords)`."""
    raw = cls.value
    answer = tx.extension.call(tx, raw, args, keywords)
    if answer is not None:
        return answer
    handler = tx.callables.rules.get(raw)
    if handler is not None:
        return handler(tx, args, keywords)
    stand_in = tx.callables.stand_ins.get(raw)
    if stand_in is not None:
        return stand_in(tx, args, keywords)
    if raw in tx.callables.pure:
        return folding.call_pure(tx, raw, args, keywords)
    if isinstance(raw, enum.EnumMeta):
        if len(args) > 1 and not raw.__members__ and is_trusted(raw.__module__):
            return class_making.made_by(tx, raw, args, keywords, {"module": tx.frames.top().module_name()})
        return _enum_member(tx.live, cls, args, keywords)
    maker = tx.classes.find(type(raw), "__call__")
    if maker is not None and maker[0] is not type.__call__:
        if isinstance(maker[0], types.FunctionType):
            return do.call(tx, tx.live.wrap(maker[0], None), [cls, *args], keywords)
        if maker[0] is dict:
            return tx.callables.rules[dict](tx, args, keywords)  # a TypedDict
        raise Break("tracer.call", f"the metaclass of {cls.describe()} makes its instances")
    return instantiate(tx, cls, args, keywords)


def _enum_member(live: Live, cls: ClassValue, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model the look-up of an enumeration member by value."""
    if len(args) != 1 or keywords:
        raise Break("tracer.call", f"{cls.describe()} is called with {len(args)} arguments")
    value = args[0].as_python() if not isinstance(args[0], Object) else args[0].identity()
    for member in cls.value:
        if member is value or member.value == value:
            return live.wrap(member, None)
    combined = _combined_flags(cls.value, value)
    if combined is not None:
        return live.wrap(combined, None)
    raise Break("tracer.call", f"{value!r} isn't a value of {cls.describe()}")


def _combined_flags(cls: Any, value: Any) -> enum.Flag | None:
    """Return several members of an `enum.Flag` as one: making it keeps it in the class, as eager's call does."""
    if not issubclass(cls, enum.Flag) or type(value) is not int or cls._missing_.__func__ is not _MISSING_FLAG:
        return None
    all_bits = functools.reduce(operator.or_, (member.value for member in cls), 0)
    return cls(value) if 0 <= value <= all_bits and not value & ~all_bits else None


_MISSING_FLAG: Any = enum.Flag._missing_.__func__  # type: ignore[attr-defined]


def instantiate(tx: Tracer, cls: ClassValue, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model `type.__call__`: `__new__`, then `__init__`."""
    raw = cls.value
    maker = tx.classes.find(raw, "__new__")
    assert maker is not None
    function = maker[0].__func__ if isinstance(maker[0], staticmethod) else maker[0]
    if isinstance(function, types.FunctionType):
        model = (
            tx.live.class_function(cls, raw, "__new__", "__func__")
            if isinstance(maker[0], staticmethod)
            else tx.live.class_function(cls, raw, "__new__")
        )
        instance = do.call(tx, model, [cls, *args], keywords)
    else:
        tx.classes.rely_on_passing_over(cls, raw, maker[1], "__new__")
        instance = new_instance(tx, cls, function, args, keywords)
    if not issubclass(instance.type(), raw):
        return instance
    initialise(tx, cls, instance, args, keywords)
    return instance


def new_instance(tx: Tracer, cls: ClassValue, maker: Any, args: Sequence[Value], keywords: Keywords) -> Value:
    """Model a `__new__` written in C."""
    raw = cls.value
    base = getattr(maker, "__self__", None)
    if base in _WEAK and any(value.identity() is None for value in args if not isinstance(value, Const)):
        raise Whole("tracer.lifetime", f"{cls.describe()} is made of an object that may end before the frame")
    if getattr(raw, "__abstractmethods__", None):
        if isinstance(cls, MadeClass):
            folding.real(tx, object.__new__, raw)
        raise Break("tracer.exception", f"{cls.describe()} is abstract")
    if tx.classes.find(raw, "__del__") is not None:
        raise Whole("tracer.lifetime", f"{cls.describe()} has a __del__, which runs when CPython lets go of the object")
    if issubclass(raw, BaseExceptionGroup):
        return exception_groups.make_group(tx, raw, args)
    if issubclass(raw, BaseException):
        return Object(raw, base=Tuple(args), birth=tx.steps.now)
    if base is object:
        if args or keywords:
            check_no_arguments(tx.classes, raw, "__new__", "__init__")
        return Object(raw, birth=tx.steps.now)
    if base is tuple and hasattr(raw, "_fields"):
        return Tuple(iteration.unpack(tx, args[0]) if args else [], raw)
    if base is dict and not issubclass(raw, collections.defaultdict):
        kind = collections.OrderedDict if issubclass(raw, collections.OrderedDict) else dict
        return Object(raw, base=Dict(cls=kind), birth=tx.steps.now)
    if base is list:
        return Object(raw, base=List(), birth=tx.steps.now)
    if base is set:
        return Object(raw, base=SetValue(), birth=tx.steps.now)
    raise Break("tracer.call", f"making an instance of {cls.describe()} isn't modelled")


def initialise(tx: Tracer, cls: ClassValue, instance: Value, args: Sequence[Value], keywords: Keywords) -> None:
    """Run the `__init__` of what was made by calling `cls`; nothing is run where that is `object`'s.

    Raises:
        Break: It is neither a Python function nor one of C's that is modelled.
    """
    definition = tx.classes.find(instance.type(), "__init__")
    assert definition is not None
    if isinstance(definition[0], types.FunctionType):
        owner = cls if instance.type() is cls.value else tx.live.class_value(instance.type())
        answer = do.call(tx, tx.live.class_function(owner, instance.type(), "__init__"), [instance, *args], keywords)
        if not is_none(answer):
            tx.raising.error(TypeError, f"__init__() should return None, not '{answer.type().__name__}'")
        return
    tx.classes.rely_on_passing_over(cls, instance.type(), definition[1], "__init__")
    if definition[0] is object.__init__:
        if args or keywords:
            check_no_arguments(tx.classes, instance.type(), "__init__", "__new__")
    elif isinstance(definition[0], types.WrapperDescriptorType):
        if isinstance(instance, Object):
            do.call_native(tx, instance, definition[0], "__init__", args, keywords)
    else:
        raise Break("tracer.call", f"__init__ of {cls.describe()} is a {type(definition[0]).__name__}")


def call_object(tx: Tracer, callee: Object, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call an instance."""
    answer = tx.extension.call_object(tx, callee, args, keywords)
    if answer is not None:
        return answer
    method = tx.classes.find(callee.cls, "__call__")
    if method is None:
        raise Break("tracer.exception", f"{callee.describe()} isn't callable")
    if isinstance(method[0], types.FunctionType):
        return do.call(tx, tx.live.class_function(callee, callee.cls, "__call__"), [callee, *args], keywords)
    if issubclass(type(callee.value), weakref.ref) and not args and not keywords:
        return _call_reference(tx, callee)
    if issubclass(type(callee.value), (operator.itemgetter, operator.attrgetter, operator.methodcaller)):
        return call_getter(tx, callee.value, args)
    answer = tx.extension.call_marked(tx, callee, args, keywords)
    if answer is None:
        raise Break("tracer.call", f"calling {callee.describe()} isn't modelled")
    return answer


def _call_reference(tx: Tracer, callee: Object) -> Value:
    """Call a weak reference: what it refers to is found by calling it again."""
    referent = callee.value()
    if referent is not None:
        tx.effects.check_alive(referent)
    if referent is not None and tx.live.known(referent) is None:
        if type(callee.value) is not weakref.ref or callee.source is None:
            raise Break("tracer.call", "a weak reference to something unknown is called")
        return tx.live.wrap(referent, tx.sources.referent(callee.source))
    if callee.source is not None:
        tx.guards.add(IdentityGuard, callee.source, callee.value)
    return tx.live.wrap(referent, None)


def call_getter(tx: Tracer, getter: Any, args: Sequence[Value]) -> Value:
    """Call an itemgetter or attrgetter."""
    made_by, parts = getter.__reduce__()[:2]
    if isinstance(getter, operator.methodcaller) and len(args) == 1:
        given = {} if made_by is type(getter) else made_by.keywords
        keywords = {k: tx.live.from_python(v) for k, v in given.items()}
        name, *rest = (*made_by.args, *parts) if made_by is not type(getter) else parts
        return do.call(tx, do.get_attribute(tx, args[0], name), [tx.live.from_python(part) for part in rest], keywords)
    if isinstance(getter, operator.itemgetter) and len(args) == 1:
        parts_read = [do.get_item(tx, args[0], tx.live.from_python(part)) for part in parts]
    elif isinstance(getter, operator.attrgetter) and len(args) == 1:
        parts_read = [
            functools.reduce(lambda value, name: do.get_attribute(tx, value, name), part.split("."), args[0])
            for part in parts
        ]
    else:
        raise Break("tracer.call", f"calling a {type(getter).__name__} isn't modelled")
    return parts_read[0] if len(parts_read) == 1 else Tuple(parts_read)


_LRU_WRAPPER = type(functools.lru_cache(lambda: None))
