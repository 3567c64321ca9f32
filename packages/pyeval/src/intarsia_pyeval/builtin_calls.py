"""Calls of built-in functions and classes: a table from the callable to what it does with models."""

from __future__ import annotations

import builtins
import cmath
import collections
import collections.abc
import functools
import inspect
import math
import operator
import sys
import types
import typing
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_ir.records import GuardKind
from intarsia_pyeval.breaks import Break, Raised, Whole
from intarsia_pyeval.instances import CLASS_CALLS
from intarsia_pyeval.lookup import special_method
from intarsia_pyeval.operators import BINARY, COMPARE
from intarsia_pyeval.polyfills import polyfill
from intarsia_pyeval.values.base import NULL, Keywords, Value, defines
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import NONE, Const, boolean
from intarsia_pyeval.values.deques import Deque
from intarsia_pyeval.values.functions import BoundMethod, Function, Partial, PythonFunction
from intarsia_pyeval.values.iterators import Backwards, Enumerate, Filter, Generator, Map, Reversed, Zip
from intarsia_pyeval.values.mappings import Dict, DictView
from intarsia_pyeval.values.numbers import ChangingNumber, opened
from intarsia_pyeval.values.objects import Builtin, ClassValue, Object, Super, Traceback
from intarsia_pyeval.values.sequences import Items, List, Slice, Tuple
from intarsia_pyeval.values.sets import SetValue
from intarsia_pyeval.values.signatures import arity, named

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["BUILTIN_CALLS", "PURE_FUNCTIONS", "BuiltinCall"]

BuiltinCall = Callable[["Tracer", Sequence[Value], Keywords], Value]


def _len(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("len", args, keywords, 1)
    return Const(value.length(tx))


# ---- classes ---------------------------------------------------------------------------------------------------


def _type(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if len(args) != 1 or keywords:
        raise Break("tracer.call", "a class made by the traced code isn't modelled")
    value = args[0]
    cls = value.type()
    if value.source is not None:
        tx.classes.note(cls, tx.sources.type_of(value.source))
    return tx.live.class_value(cls)


def _super(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if keywords or len(args) not in (0, 2):
        raise Break("tracer.call", f"super is called with {len(args)} arguments")
    if args:
        cls, owner = args
    else:
        frame = tx.frames.top()
        if "__class__" not in frame.cells or not frame.code.co_varnames:
            raise Break("tracer.exception", "super() is called outside of a method")
        cls = frame.cells["__class__"].load(tx, "__class__", free=True)
        first = frame.code.co_varnames[0]
        found = frame.read(first)
        if found is None and first in frame.cells:
            found = frame.cells[first].load(tx, first, free=False)
        if found is None:
            raise Break("tracer.exception", "super(): arg[0] deleted")
        owner = found
    if not isinstance(cls, ClassValue):
        raise Break("tracer.exception", f"super is called with {cls.describe()}")
    of_class = isinstance(owner, ClassValue) and issubclass(owner.value, cls.value)
    if not of_class and cls.value not in owner.type().__mro__:
        raise Break("tracer.exception", f"super is called with {owner.describe()}")
    return Super(cls.value, owner)


# ---- attributes ------------------------------------------------------------------------------------------------


def _name(value: Value) -> str:
    """Return an attribute name."""
    if isinstance(value, Const) and isinstance(value.value, str):
        return value.value
    raise Break("tracer.exception", f"an attribute name is {value.describe()}")


def _getattr(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, name, *default = arity("getattr", args, keywords, 2, 3)
    if not default:
        return owner.get_attribute(tx, _name(name))
    try:
        return owner.get_attribute(tx, _name(name))
    except Raised as raised:
        if not raised.is_a(AttributeError):
            raise
        return default[0]


def _hasattr(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, name = arity("hasattr", args, keywords, 2)
    return boolean(tx.has_attribute(owner, _name(name)))


def _setattr(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, name, value = arity("setattr", args, keywords, 3)
    owner.set_attribute(tx, _name(name), value)
    return NONE


def _delattr(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, name = arity("delattr", args, keywords, 2)
    owner.delete_attribute(tx, _name(name))
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
    return value.get_attribute(tx, "__dict__")


def _locals(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Return the variables of the frame in a dict; before 3.13 a frame has but one such dict."""
    arity("locals", args, keywords, 0)
    frame = tx.frames.top()
    if frame.gave_locals:
        raise Break("tracer.call", "locals() is called again in one frame")
    frame.gave_locals = sys.version_info < (3, 13)
    code = frame.code
    found: dict[Hashable, tuple[Value, Value]] = {}
    for name in dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)):
        cell = frame.cells.get(name)
        value = frame.read(name) if cell is None else cell.peek(tx, name)
        if value is not None and value is not NULL:
            found[name] = (Const(name), value)
    return Dict(found)


def _dir(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if args or keywords:
        raise Break("tracer.call", "dir() of an object isn't modelled")
    frame = tx.frames.top()
    given, frame.gave_locals = frame.gave_locals, False
    names = _locals(tx, (), {})
    frame.gave_locals = given
    made = tx.list_of(names)
    made.call_method(tx, "sort", [], {})
    return made


# ---- iteration -------------------------------------------------------------------------------------------------


def _iter(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    value, *sentinel = arity("iter", args, keywords, 1, 2)
    if not sentinel:
        return value.iterate(tx)
    if not tx.truth(_callable(tx, [value], {})):
        raise Break("tracer.exception", f"iter is called with {value.describe()} and an end")
    made = polyfill(tx, "call_until", [value, *sentinel])
    assert isinstance(made, Generator)
    made.cls = type(iter(int, 1))
    return made


def _next(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    iterator, *default = arity("next", args, keywords, 1, 2)
    found = tx.advance(iterator)
    if found is not None:
        return found
    if default:
        return default[0]
    tx.raising.throw(StopIteration, [])


def _enumerate(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    given = named("enumerate", args, keywords, ("iterable", "start"), required=1)
    start = tx.whole_number(given.get("start", Const(0)))
    return Enumerate(given["iterable"].iterate(tx), start, tx.steps.now)


def _zip(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    named("zip", (), keywords, ("strict",))
    strict = "strict" in keywords and tx.truth(keywords["strict"])
    return Zip([arg.iterate(tx) for arg in args], strict, tx.steps.now)


def _map(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    function, first, *rest = arity("map", args, keywords, 2, 99)
    return Map(function, [first.iterate(tx), *[arg.iterate(tx) for arg in rest]], tx.steps.now)


def _filter(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    function, values = arity("filter", args, keywords, 2)
    return Filter(function, values.iterate(tx), tx.steps.now)


def _reversed(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("reversed", args, keywords, 1)
    if isinstance(value, (Deque, Dict, DictView)):
        made = Backwards(DictView(value, "keys") if isinstance(value, Dict) else value, tx.steps.now)
        made.begin(tx)
        return made
    if isinstance(value, Items) and not tx.classes.asks_python(value, "__reversed__"):
        return Reversed(value, value.count() - 1, tx.steps.now)
    if isinstance(value, Const) and isinstance(value.value, (range, str)):
        return (
            tx.iterator_over(Const(value.value[::-1]))
            if isinstance(value.value, range)
            else Reversed(value, len(value.value) - 1, tx.steps.now)
        )
    if isinstance(value, Object) and tx.classes.find(value.cls, "__reversed__") is not None:
        return tx.special(value, "__reversed__", [])
    if isinstance(value, Object) and tx.classes.find(value.cls, "__getitem__") is not None:
        return Reversed(value, value.length(tx) - 1, tx.steps.now)
    raise Break("tracer.iterator", f"reversing {value.describe()} isn't modelled")


def _sorted(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (values,) = arity("sorted", args, {}, 1)
    if isinstance(values, SetValue) and _has_total_order(values, keywords):
        made = List(values.elements.values())
    else:
        made = tx.list_of(values)
    made.call_method(tx, "sort", [], keywords)
    return made


def _has_total_order(values: SetValue, keywords: Keywords) -> bool:
    """Tell whether the order of a set doesn't matter when it is sorted: no two elements are alike."""
    kinds = {type(v.value) if isinstance(v, Const) else None for v in values.elements.values()}
    return "key" not in keywords and kinds in ({str}, {int}, {bytes})


def _sum(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if not 1 <= len(args) <= 2 or set(keywords) - {"start"} or len(args) + len(keywords) > 2:
        raise Break("tracer.exception", f"sum is called with {len(args)} arguments and {sorted(keywords)}")
    total = args[1] if len(args) > 1 else keywords.get("start", Const(0))
    known: list[Value] = []  # added up in one go, as long as nobody can see the difference
    elements = tx.elements(args[0])
    for value in elements:
        if isinstance(total, Const) and isinstance(value, Const):
            known.append(value)
            continue
        if _COMPENSATED and any(isinstance(v, Const) and isinstance(v.value, float) for v in (*known, value)):
            raise Break("tracer.call", "the sum of floats and other values isn't modelled")
        total = tx.binary("+", _sum_of(tx, known, total), value)
        known = []
    return _sum_of(tx, known, total)


def _sum_of(tx: Tracer, values: Sequence[Value], start: Value) -> Value:
    """Return the sum of constants, by CPython's own rule."""
    if not values and not isinstance(start, Const):
        return start
    if isinstance(start, Const):
        return tx.live.from_python(tx.real(sum, [v.as_python() for v in values], start.as_python()))
    return functools.reduce(lambda total, value: tx.binary("+", total, value), values, start)


_COMPENSATED = sum([0.1] * 10) == 1.0  # since 3.12


def _is_inert(tx: Tracer, value: Value) -> bool:
    """Tell whether iterating runs no user code, so that it doesn't matter what is taken when."""
    return isinstance(value, (Const, Dict, DictView, SetValue)) or tx.is_read_whole(value)


def _extreme(name: str) -> BuiltinCall:
    """Return min or max: run on constants, else evaluated."""
    real: Callable[..., Any] = getattr(builtins, name)

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        named(name, (), keywords, ("key", "default"))
        if not args or ("default" in keywords and len(args) > 1):
            raise Break("tracer.exception", f"{name} is called with {len(args)} arguments and {sorted(keywords)}")
        if not keywords and (len(args) > 1 or _is_inert(tx, args[0])):
            values = tx.unpack(args[0]) if len(args) == 1 else args
            if values and all(isinstance(value, Const) for value in values):
                return tx.live.from_python(tx.real(real, [value.as_python() for value in values]))
            if any(isinstance(value, ChangingNumber) and value.type() is float for value in values):
                found = opened(tx.guards, real, values)
                if found is not None:
                    return found
            args = [Tuple(values)] if len(args) == 1 else args
        return polyfill(tx, f"{name}_", args, keywords)

    return handler


# ---- making atoms and containers -------------------------------------------------------------------------------


def _list(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("list", args, keywords, 0, 1)
    return tx.list_of(args[0]) if args else List()


def _tuple(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("tuple", args, keywords, 0, 1)
    if args and isinstance(args[0], Tuple) and args[0].cls is tuple:
        return args[0]
    return Tuple(tx.taken(args[0]) if args else ())


def _set(cls: Any) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        arity(cls.__name__, args, keywords, 0, 1)
        if args and isinstance(args[0], SetValue) and args[0].cls is cls is frozenset:
            return args[0]
        return SetValue.made(tx, cls, args[0]) if args else SetValue(cls=cls)

    return handler


def _dict(cls: Any) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        made = Dict(cls=cls)
        made.call_method(tx, "__init__", args, keywords)
        return made

    return handler


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
    made = Object(types.SimpleNamespace, birth=tx.steps.now)
    made.written.update(keywords)
    return made


def _method(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    function, owner = arity("method", args, keywords, 2)
    return BoundMethod(function, owner)


def _deque(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    made = Deque()
    made.call_method(tx, "__init__", args, keywords)
    return made


def _getter(cls: Any) -> BuiltinCall:
    """Return the constructor of an object that fetches attributes or items: it is made while tracing."""

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        named = {k: v.as_python() for k, v in keywords.items()}
        return tx.live.wrap(tx.real(cls, *[a.as_python() for a in args], **named), None)

    return handler


def _atom(cls: Any) -> BuiltinCall:
    """Return the constructor of an atom: run on constants, else ask a special method."""
    special = {int: "__int__", float: "__float__", complex: "__complex__", bytes: "__bytes__"}.get(cls)

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        value = args[0] if args else None
        if special is None or value is None or len(args) != 1 or keywords:
            return tx.call_pure(cls, args, keywords)
        if isinstance(value, Object) and tx.classes.find(value.cls, special) is not None:
            return _checked_atom(tx, cls, value, tx.special(value, special, []))
        if isinstance(value, Object) and tx.classes.asks_python(value, "__index__") and cls is not bytes:
            return tx.call_pure(cls, [Const(tx.index(value))], {})
        converted = value.convert(tx, cls)
        if converted is not None:
            return converted
        return tx.call_pure(cls, args, keywords)

    return handler


def _checked_atom(tx: Tracer, cls: Any, value: Value, answer: Value) -> Value:
    """Return what `__int__` or one like it answers, if it is of the class; anything else is left to CPython."""
    if answer.type() is not cls:
        raise Break("tracer.exception", f"{value.describe()} becomes a {cls.__name__} by {answer.describe()}")
    return answer


def _bool(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("bool", args, keywords, 0, 1)
    return boolean(bool(args) and tx.truth(args[0]))


def _truth(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return _bool(tx, arity("truth", args, keywords, 1), {})


def _str(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if len(args) == 1 and not keywords:
        return tx.call_str(args[0])
    return tx.call_pure(str, args, keywords)


def _repr(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("repr", args, keywords, 1)
    return tx.call_repr(value)


def _format(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    value, *spec = arity("format", args, keywords, 1, 2)
    if spec and not issubclass(spec[0].type(), str):
        raise Break("tracer.exception", f"format is called with {spec[0].describe()}")
    return tx.format_value(value, 0, spec[0] if spec else None)


def _hash(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("hash", args, keywords, 1)
    if isinstance(value, Object) and tx.classes.find(value.cls, "__hash__") is not None:
        found = tx.classes.find(value.cls, "__hash__")
        if found is not None and isinstance(found[0], types.FunctionType):
            return _checked_hash(tx, tx.special(value, "__hash__", []).settled())
    return tx.call_hash(value)


def _checked_hash(tx: Tracer, answer: Value) -> Value:
    """Return the hash that CPython makes of what a user's `__hash__` answers."""
    if not issubclass(answer.type(), int):
        tx.raising.error(TypeError, "__hash__ method should return an integer")
    number = int(answer.as_python())
    fits = -sys.maxsize - 1 <= number <= sys.maxsize
    return Const((-2 if number == -1 else number) if fits else hash(number))


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
    return tx.new_instance(
        cls, maker[0] if maker and not isinstance(maker[0], staticmethod) else object.__new__, args[1:], keywords
    )


def _new_of(base: Any) -> BuiltinCall:
    """Return `base.__new__` as called by a subclass's own `__new__`."""

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        if not args or not isinstance(args[0], ClassValue):
            raise Break("tracer.call", f"{base.__name__}.__new__ is called without a class")
        return tx.new_instance(args[0], base.__new__, args[1:], keywords)

    return handler


def _partial(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if not args:
        raise Break("tracer.exception", "partial is called without a function")
    function, *rest = args
    if not tx.truth(_callable(tx, [function], {})):
        raise Break("tracer.exception", f"partial is called with {function.describe()}")
    if isinstance(function, Partial):
        return Partial(function.function, [*function.args, *rest], {**function.keywords, **keywords})
    return Partial(function, rest, keywords)


def _special(name: str) -> BuiltinCall:
    """Return a function that asks one special method unless all is constant."""
    real: Callable[..., Any] = getattr(builtins, name.strip("_"))

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        if args and not isinstance(args[0], Const) and not keywords:
            found = opened(tx.guards, real, args)
            if found is not None:
                return found
            if not defines(args[0].type(), name) or len(args) > (2 if name == "__round__" else 1):
                raise Break("tracer.exception", f"{real.__name__} is called with {args[0].describe()}")
            return tx.call(special_method(tx, args[0], name), args[1:], {})
        return tx.call_pure(real, args, keywords)

    return handler


# ---- operator module -------------------------------------------------------------------------------------------


def _binary(op: str, in_place: bool) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        left, right = arity(op, args, keywords, 2)
        return tx.binary(op, left, right, in_place)

    return handler


def _compare(op: str) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        left, right = arity(op, args, keywords, 2)
        return tx.compare(op, left, right)

    return handler


def _getitem(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, key = arity("getitem", args, keywords, 2)
    return owner.get_item(tx, key)


def _setitem(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, key, value = arity("setitem", args, keywords, 3)
    owner.set_item(tx, key, value)
    return NONE


def _delitem(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, key = arity("delitem", args, keywords, 2)
    owner.delete_item(tx, key)
    return NONE


def _contains(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    owner, item = arity("contains", args, keywords, 2)
    return boolean(owner.contains(tx, item))


def _is(expected: bool) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        left, right = arity("is_", args, keywords, 2)
        return boolean(tx.same(left, right) is expected)

    return handler


def _not(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("not_", args, keywords, 1)
    return boolean(not tx.truth(value))


def _unary(op: str) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        (value,) = arity(op, args, keywords, 1)
        return value.unary(tx, op)

    return handler


def _index(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("index", args, keywords, 1)
    if isinstance(value, Object) and not isinstance(value.identity(), int):
        return tx.live.from_python(tx.index(value))
    return tx.call_pure(operator.index, args, keywords)


# ---- what breaks, and what does nothing ------------------------------------------------------------------------


def _breaks(code: str, reason: str) -> BuiltinCall:
    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        raise Break(code, reason)

    return handler


def _signature(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    """Ask for the signature of an existing function while tracing: its code is guarded."""
    (value,) = arity("signature", args, keywords, 1)
    function = value.function if isinstance(value, BoundMethod) else value
    if not isinstance(function, Function):
        raise Break("tracer.call", f"the signature of {value.describe()} is asked for")
    function.guard_code(tx.guards)
    real = function.value if function is value else types.MethodType(function.value, object())
    return tx.live.wrap(tx.real(inspect.signature, real), None)


def _weakly(what: str) -> BuiltinCall:
    """Return a function that keeps objects weakly: one that is made here ends where CPython lets go of it."""

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        if not args or args[0].identity() is None:
            raise Whole("tracer.lifetime", f"{what} is made, for an object that may end before the frame")
        raise Break("tracer.call", f"{what} is made")

    return handler


def _cast(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    return args[1]


def _id(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("id", args, keywords, 1)
    real = value.identity()
    if real is None:
        raise Break("tracer.identity", f"the id of {value.describe()} is asked for")
    if value.source is not None:
        tx.guards.add(GuardKind.IDENTITY, value.source, real)
    return Const(id(real))


BUILTIN_CALLS: dict[Any, BuiltinCall] = {
    abs: _special("__abs__"),
    bool: _bool,
    breakpoint: _breaks("tracer.output", "breakpoint() starts a debugger"),
    bytes: _atom(bytes),
    callable: _callable,
    collections.OrderedDict: _dict(collections.OrderedDict),
    collections.defaultdict: _dict(collections.defaultdict),
    collections.deque: _deque,
    complex: _atom(complex),
    delattr: _delattr,
    dict: _dict(dict),
    dir: _dir,
    enumerate: _enumerate,
    filter: _filter,
    float: _atom(float),
    format: _format,
    frozenset: _set(frozenset),
    functools.partial: _partial,
    getattr: _getattr,
    globals: _breaks("tracer.call", "globals() looks at the frame"),
    hasattr: _hasattr,
    hash: _hash,
    id: _id,
    inspect.signature: _signature,
    input: _breaks("tracer.output", "input() reads from the outside"),
    int: _atom(int),
    **CLASS_CALLS,
    iter: _iter,
    len: _len,
    list: _list,
    locals: _locals,
    map: _map,
    max: _extreme("max"),
    min: _extreme("min"),
    next: _next,
    object: _object,
    object.__new__: _object_new,
    operator.attrgetter: _getter(operator.attrgetter),
    operator.contains: _contains,
    operator.delitem: _delitem,
    operator.getitem: _getitem,
    operator.index: _index,
    operator.inv: _unary("~"),
    operator.invert: _unary("~"),
    operator.itemgetter: _getter(operator.itemgetter),
    operator.is_: _is(True),
    operator.is_not: _is(False),
    operator.methodcaller: _getter(operator.methodcaller),
    operator.neg: _unary("-"),
    operator.not_: _not,
    operator.pos: _unary("+"),
    operator.setitem: _setitem,
    operator.truth: _truth,
    print: _breaks("tracer.output", "print() writes to the outside"),
    repr: _repr,
    reversed: _reversed,
    round: _special("__round__"),
    set: _set(set),
    setattr: _setattr,
    slice: _slice,
    sorted: _sorted,
    str: _str,
    sum: _sum,
    super: _super,
    sys.exc_info: _exc_info,
    sys.exception: _exception,
    tuple: _tuple,
    tuple.__new__: _new_of(tuple),
    dict.__new__: _new_of(dict),
    list.__new__: _new_of(list),
    set.__new__: _new_of(set),
    BaseException.__new__: _new_of(BaseException),
    type: _type,
    types.MethodType: _method,
    types.SimpleNamespace: _namespace,
    typing.cast: _cast,
    vars: _vars,
    weakref.WeakKeyDictionary: _weakly("a WeakKeyDictionary"),
    weakref.WeakSet: _weakly("a WeakSet"),
    weakref.WeakValueDictionary: _weakly("a WeakValueDictionary"),
    weakref.finalize: _weakly("a finalizer"),
    weakref.proxy: _weakly("a weak proxy"),
    zip: _zip,
    **{
        getattr(operator, name if name not in ("and", "or") else name + "_"): _binary(op, False)
        for op, (_, name) in BINARY.items()
    },
    **{getattr(operator, "i" + name): _binary(op, True) for op, (_, name) in BINARY.items()},
    **{function: _compare(op) for op, (function, _, _) in COMPARE.items()},
}

PURE_FUNCTIONS: frozenset[Any] = frozenset(
    [ascii, bin, chr, divmod, hex, oct, ord, pow, range, round, abs, int, float, complex, bytes, str]
    + [value for value in vars(math).values() if callable(value) and value is not math.prod]
    + [value for value in vars(cmath).values() if callable(value)]
    + [operator.length_hint, int.from_bytes, float.fromhex, bytes.fromhex, str.maketrans]
)
