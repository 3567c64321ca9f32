"""Built-in functions that iterate."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.callables import attributes
from intarsia_pyeval.callables.polyfills import polyfill
from intarsia_pyeval.kinds.made_proxies import MadeProxy
from intarsia_pyeval.semantics import folding, iteration, open_lists, operators, special
from intarsia_pyeval.semantics.opening import opened
from intarsia_pyeval.stores import position_store
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.deques import Deque
from intarsia_pyeval.values.iterators import Backwards, Enumerate, Filter, Generator, Map, Reversed, Zip
from intarsia_pyeval.values.mappings import Dict, DictView
from intarsia_pyeval.values.numbers import ChangingNumber
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.sequences import Items, List, Tuple
from intarsia_pyeval.values.sets import SetValue
from intarsia_pyeval.values.signatures import arity, named

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS"]


def _len(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("len", args, keywords, 1)
    changing = open_lists.length(tx, value)
    return Const(do.length(tx, value)) if changing is None else changing


def _iter(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    value, *sentinel = arity("iter", args, keywords, 1, 2)
    if not sentinel:
        return do.iterate(tx, value)
    if not do.truth(tx, attributes._callable(tx, [value], {})):
        raise Break("tracer.exception", f"iter is called with {value.describe()} and an end")
    generator = polyfill(tx, "call_until", [value, *sentinel])
    assert isinstance(generator, Generator)
    generator.cls = type(iter(int, 1))
    return generator


def _next(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    iterator, *default = arity("next", args, keywords, 1, 2)
    element = do.advance(tx, iterator)
    if element is not None:
        return element
    if default:
        return default[0]
    tx.raising.throw(StopIteration, [])


def _enumerate(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    given = named("enumerate", args, keywords, ("iterable", "start"), required=1)
    start = operators.whole_number(tx, given.get("start", Const(0)))
    return Enumerate(do.iterate(tx, given["iterable"]), start, tx.steps.now)


def _zip(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    named("zip", (), keywords, ("strict",))
    strict = "strict" in keywords and do.truth(tx, keywords["strict"])
    return Zip([do.iterate(tx, arg) for arg in args], strict, tx.steps.now)


def _map(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    function, first, *rest = arity("map", args, keywords, 2, 99)
    return Map(function, [do.iterate(tx, first), *[do.iterate(tx, arg) for arg in rest]], tx.steps.now)


def _filter(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    function, values = arity("filter", args, keywords, 2)
    return Filter(function, do.iterate(tx, values), tx.steps.now)


def _reversed(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (value,) = arity("reversed", args, keywords, 1)
    if isinstance(value, MadeProxy):
        value = value.base
    if isinstance(value, (Deque, Dict, DictView)):
        iterator = Backwards(DictView(value, "keys") if isinstance(value, Dict) else value, tx.steps.now)
        position_store.begin(tx, iterator)
        return iterator
    if isinstance(value, Items) and not tx.classes.asks_python(value, "__reversed__"):
        return Reversed(value, value.count() - 1, tx.steps.now)
    if isinstance(value, Const) and isinstance(value.value, (range, str)):
        return (
            iteration.iterator_over(tx, Const(value.value[::-1]))
            if isinstance(value.value, range)
            else Reversed(value, len(value.value) - 1, tx.steps.now)
        )
    if isinstance(value, Object) and tx.classes.find(value.cls, "__reversed__") is not None:
        return special.special(tx, value, "__reversed__", [])
    if isinstance(value, Object) and tx.classes.find(value.cls, "__getitem__") is not None:
        return Reversed(value, do.length(tx, value) - 1, tx.steps.now)
    raise Break("tracer.iterator", f"reversing {value.describe()} isn't modelled")


def _sorted(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (values,) = arity("sorted", args, {}, 1)
    if isinstance(values, SetValue) and _has_total_order(values, keywords):
        elements = List(values.elements.values())
    else:
        elements = iteration.list_of(tx, values)
    do.call_method(tx, elements, "sort", [], keywords)
    return elements


def _has_total_order(values: SetValue, keywords: Keywords) -> bool:
    """Tell whether the order of a set doesn't matter when it is sorted: no two elements are alike."""
    kinds = {type(v.value) if isinstance(v, Const) else None for v in values.elements.values()}
    return "key" not in keywords and kinds in ({str}, {int}, {bytes})


def _sum(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    if not 1 <= len(args) <= 2 or set(keywords) - {"start"} or len(args) + len(keywords) > 2:
        raise Break("tracer.exception", f"sum is called with {len(args)} arguments and {sorted(keywords)}")
    total = args[1] if len(args) > 1 else keywords.get("start", Const(0))
    addends: list[Value] = []  # added up in one go, as long as nobody can see the difference
    elements = iteration.elements(tx, args[0])
    for value in elements:
        if isinstance(total, Const) and isinstance(value, Const):
            addends.append(value)
            continue
        if _COMPENSATED and any(isinstance(v, Const) and isinstance(v.value, float) for v in (*addends, value)):
            raise Break("tracer.call", "the sum of floats and other values isn't modelled")
        total = operators.binary(tx, "+", _sum_of(tx, addends, total), value)
        addends = []
    return _sum_of(tx, addends, total)


def _sum_of(tx: Tracer, values: Sequence[Value], start: Value) -> Value:
    """Return the sum of constants, by CPython's own rule."""
    if not values and not isinstance(start, Const):
        return start
    if isinstance(start, Const):
        return tx.live.from_python(folding.real(tx, sum, [v.as_python() for v in values], start.as_python()))
    return functools.reduce(lambda total, value: operators.binary(tx, "+", total, value), values, start)


_COMPENSATED = sum([0.1] * 10) == 1.0  # since 3.12


def _is_inert(tx: Tracer, value: Value) -> bool:
    """Tell whether iterating runs no user code, so that it doesn't matter what is taken when."""
    return isinstance(value, (Const, Dict, DictView, SetValue)) or iteration.is_read_whole(tx.classes, value)


def _extreme(name: str) -> BuiltinCall:
    """Return min or max: run on constants, else evaluated."""
    real: Callable[..., Any] = getattr(builtins, name)

    def handler(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
        named(name, (), keywords, ("key", "default"))
        if not args or ("default" in keywords and len(args) > 1):
            raise Break("tracer.exception", f"{name} is called with {len(args)} arguments and {sorted(keywords)}")
        if not keywords and (len(args) > 1 or _is_inert(tx, args[0])):
            values = iteration.unpack(tx, args[0]) if len(args) == 1 else args
            if values and all(isinstance(value, Const) for value in values):
                return tx.live.from_python(folding.real(tx, real, [value.as_python() for value in values]))
            if any(isinstance(value, ChangingNumber) and value.type() is float for value in values):
                number = opened(tx.guards, real, values)
                if number is not None:
                    return number
            args = [Tuple(values)] if len(args) == 1 else args
        return polyfill(tx, f"{name}_", args, keywords)

    return handler


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {
    enumerate: _enumerate,
    filter: _filter,
    iter: _iter,
    len: _len,
    map: _map,
    max: _extreme("max"),
    min: _extreme("min"),
    next: _next,
    reversed: _reversed,
    sorted: _sorted,
    sum: _sum,
    zip: _zip,
}
