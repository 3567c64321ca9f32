"""Iterators made of others: `enumerate`, `zip`, `map`, `filter`, `reversed`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Raised, Unreconstructable
from intarsia_pyeval.semantics import iteration, methods, operators
from intarsia_pyeval.values.base import Keywords, Value, defines
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.iterators import Enumerate, Filter, Iterator, Map, Reversed, Zip
from intarsia_pyeval.values.sequences import Items, List, Tuple
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.truth.rule(Iterator)
def truth(tx: Tracer, x: Iterator) -> bool:
    """Iterators have no length: they are true."""
    return True


@do.iterate.rule(Iterator)
def iterate(tx: Tracer, x: Iterator) -> Value:
    """An iterator is its own iterator."""
    return x


@do.contains.rule(Iterator)
def contains(tx: Tracer, x: Iterator, item: Value) -> bool:
    """Advance until the item is found."""
    while (element := do.advance(tx, x)) is not None:
        if operators.same_or_equal(tx, element, item):
            return True
    return False


@do.get_attribute.rule(Iterator)
def get_attribute(tx: Tracer, x: Iterator, name: str) -> Value:
    """Return a method."""
    if not defines(x.type(), name):
        tx.raising.error(AttributeError, f"{x.type().__name__!r} object has no attribute {name!r}")
    return BoundBuiltin(x, name)


@do.call_method.rule(Iterator)
def call_method(tx: Tracer, x: Iterator, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of the iterator's class."""
    return methods.call(tx, x.type(), x, name, args, keywords)


@do.call_method.rule(Reversed)
def call_method_reversed(tx: Tracer, x: Reversed, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method: those of all classes that go backwards by position are the same."""
    return methods.call(tx, reversed, x, name, args, keywords)


@codegen.reconstruct.rule(Iterator)
def reconstruct_iterator(out: Builder, x: Iterator) -> None:
    """Most iterators can't be built in the middle."""
    raise Unreconstructable(f"{x.describe()} is live, and can't be built in the middle", x.birth)


@do.advance.rule(Enumerate)
def advance_enumerate(tx: Tracer, x: Enumerate) -> Value | None:
    """Return the next pair."""
    tx.effects.advanced()
    element = do.advance(tx, x.inner)
    if element is None:
        return None
    x.count += 1
    return Tuple([Const(x.count - 1), element])


@codegen.reconstruct.rule(Enumerate)
def reconstruct_enumerate(out: Builder, x: Enumerate) -> None:
    """Enumerate the rest."""
    out.call(lambda: out.constant(enumerate), [lambda: out.load(x.inner), lambda: out.constant(x.count)])


@do.advance.rule(Zip)
def advance_zip(tx: Tracer, x: Zip) -> Value | None:
    """Return the next tuple; the first iterator that ends, ends all."""
    tx.effects.advanced()
    found = []
    for number, iterator in enumerate(x.inner):
        element = do.advance(tx, iterator)
        if element is None:
            _check(tx, x, number)
            return None
        found.append(element)
    return Tuple(found) if found else None


def _check(tx: Tracer, x: Zip, ended: int) -> None:
    """With strict, the others must end too."""
    if not x.strict:
        return
    if ended:
        tx.raising.error(ValueError, f"zip() argument {ended + 1} is shorter than {_arguments(ended)}")
    for number, iterator in enumerate(x.inner[1:], 1):
        if do.advance(tx, iterator) is not None:
            tx.raising.error(ValueError, f"zip() argument {number + 1} is longer than {_arguments(number)}")


@codegen.reconstruct.rule(Zip)
def reconstruct_zip(out: Builder, x: Zip) -> None:
    """Zip the rests."""
    if x.strict:
        reconstruct_iterator(out, x)
    out.call(lambda: out.constant(zip), [partial(out.load, i) for i in x.inner])


@do.advance.rule(Map)
def advance_map(tx: Tracer, x: Map) -> Value | None:
    """Call the function with the next elements."""
    tx.effects.advanced()
    found = []
    for iterator in x.inner:
        element = do.advance(tx, iterator)
        if element is None:
            return None
        found.append(element)
    return do.call(tx, x.function, found, {})


@codegen.reconstruct.rule(Map)
def reconstruct_map(out: Builder, x: Map) -> None:
    """Map the rests."""
    parts = [x.function, *x.inner]
    out.call(lambda: out.constant(map), [partial(out.load, p) for p in parts])


@do.advance.rule(Filter)
def advance_filter(tx: Tracer, x: Filter) -> Value | None:
    """Return the next element that the function accepts."""
    tx.effects.advanced()
    while (element := do.advance(tx, x.inner)) is not None:
        plain = isinstance(x.function, Const)
        if do.truth(tx, element if plain else do.call(tx, x.function, [element], {})):
            return element
    return None


@codegen.reconstruct.rule(Filter)
def reconstruct_filter(out: Builder, x: Filter) -> None:
    """Filter the rest."""
    out.call(lambda: out.constant(filter), [lambda: out.load(x.function), lambda: out.load(x.inner)])


@do.advance.rule(Reversed)
def advance_reversed(tx: Tracer, x: Reversed) -> Value | None:
    """Return the element before."""
    tx.effects.advanced()
    if x.at < 0:
        return None
    if isinstance(x.over, Items):
        found = x.over.at(x.at) if x.at < x.over.count() else None
    else:
        found = _asked(tx, x)
    x.at = -1 if found is None else x.at - 1
    return found


def _asked(tx: Tracer, x: Reversed) -> Value | None:
    """Ask for the element; an object ends the iteration by an error, as it does when it is indexed from 0 on."""
    try:
        return iteration.real_item(tx, x.over, x.at)
    except Raised as raised:
        if not raised.is_a((IndexError, StopIteration)):
            raise
    return None


@codegen.reconstruct.rule(Reversed)
def reconstruct_reversed(out: Builder, x: Reversed) -> None:
    """Reverse what is left."""
    if not isinstance(x.over, Items) or isinstance(x.over, List):
        reconstruct_iterator(out, x)
    assert isinstance(x.over, Items)
    rest = Tuple(x.over.items[: x.at + 1])
    out.call(lambda: out.constant(reversed), [lambda: out.load(rest)])


def _arguments(count: int) -> str:
    """Return how CPython names the first arguments of zip."""
    return "argument 1" if count == 1 else f"arguments 1-{count}"


def next_of(tx: Tracer, x: Iterator, args: list[Value], keywords: Keywords) -> Value:
    """Model `__next__`."""
    arity("__next__", args, keywords, 0)
    return iteration.next_or_stop(tx, x)


METHODS: dict[str, methods.Rule] = {"__next__": next_of}
_PLACE = "where it is in what it iterates over isn't told"
_cls: type
for _cls in (enumerate, map, filter):
    methods.declare(_cls, METHODS, methods.PICKLED)
methods.declare(zip, METHODS, methods.refused(["__setstate__"], _PLACE), methods.PICKLED)
for _cls in (reversed, type(reversed([]))):
    _named = [name for name in ("__length_hint__", "__setstate__") if name in vars(_cls)]
    methods.declare(_cls, METHODS, methods.refused(_named, _PLACE), methods.PICKLED)
