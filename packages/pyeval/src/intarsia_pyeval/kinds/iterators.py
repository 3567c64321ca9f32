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
def truth(tx: Tracer, iterator: Iterator) -> bool:
    """Iterators have no length: they are true."""
    return True


@do.iterate.rule(Iterator)
def iterate(tx: Tracer, iterator: Iterator) -> Value:
    """An iterator is its own iterator."""
    return iterator


@do.contains.rule(Iterator)
def contains(tx: Tracer, iterator: Iterator, item: Value) -> bool:
    """Advance until the item is found."""
    while (element := do.advance(tx, iterator)) is not None:
        if operators.same_or_equal(tx, element, item):
            return True
    return False


@do.get_attribute.rule(Iterator)
def get_attribute(tx: Tracer, iterator: Iterator, name: str) -> Value:
    """Return a method."""
    if not defines(iterator.type(), name):
        tx.raising.error(AttributeError, f"{iterator.type().__name__!r} object has no attribute {name!r}")
    return BoundBuiltin(iterator, name)


@do.call_method.rule(Iterator)
def call_method(tx: Tracer, iterator: Iterator, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of the iterator's class."""
    return methods.call(tx, iterator.type(), iterator, name, args, keywords)


@do.call_method.rule(Reversed)
def call_method_reversed(tx: Tracer, iterator: Reversed, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method: those of all classes that go backwards by position are the same."""
    return methods.call(tx, reversed, iterator, name, args, keywords)


@codegen.reconstruct.rule(Iterator)
def reconstruct_iterator(out: Builder, iterator: Iterator) -> None:
    """Most iterators can't be built in the middle."""
    raise Unreconstructable(f"{iterator.describe()} is live, and can't be built in the middle", iterator.birth)


@do.advance.rule(Enumerate)
def advance_enumerate(tx: Tracer, iterator: Enumerate) -> Value | None:
    """Return the next pair."""
    tx.effects.advanced()
    element = do.advance(tx, iterator.inner)
    if element is None:
        return None
    iterator.count += 1
    return Tuple([Const(iterator.count - 1), element])


@codegen.reconstruct.rule(Enumerate)
def reconstruct_enumerate(out: Builder, iterator: Enumerate) -> None:
    """Enumerate the rest."""
    out.call(lambda: out.constant(enumerate), [lambda: out.load(iterator.inner), lambda: out.constant(iterator.count)])


@do.advance.rule(Zip)
def advance_zip(tx: Tracer, zipped: Zip) -> Value | None:
    """Return the next tuple; the first iterator that ends, ends all."""
    tx.effects.advanced()
    elements = []
    for number, iterator in enumerate(zipped.inner):
        element = do.advance(tx, iterator)
        if element is None:
            _check(tx, zipped, number)
            return None
        elements.append(element)
    return Tuple(elements) if elements else None


def _check(tx: Tracer, zipped: Zip, ended: int) -> None:
    """With strict, the others must end too."""
    if not zipped.strict:
        return
    if ended:
        tx.raising.error(ValueError, f"zip() argument {ended + 1} is shorter than {_arguments(ended)}")
    for number, iterator in enumerate(zipped.inner[1:], 1):
        if do.advance(tx, iterator) is not None:
            tx.raising.error(ValueError, f"zip() argument {number + 1} is longer than {_arguments(number)}")


@codegen.reconstruct.rule(Zip)
def reconstruct_zip(out: Builder, iterator: Zip) -> None:
    """Zip the rests."""
    if iterator.strict:
        reconstruct_iterator(out, iterator)
    out.call(lambda: out.constant(zip), [partial(out.load, i) for i in iterator.inner])


@do.advance.rule(Map)
def advance_map(tx: Tracer, mapped: Map) -> Value | None:
    """Call the function with the next elements."""
    tx.effects.advanced()
    elements = []
    for iterator in mapped.inner:
        element = do.advance(tx, iterator)
        if element is None:
            return None
        elements.append(element)
    return do.call(tx, mapped.function, elements, {})


@codegen.reconstruct.rule(Map)
def reconstruct_map(out: Builder, iterator: Map) -> None:
    """Map the rests."""
    parts = [iterator.function, *iterator.inner]
    out.call(lambda: out.constant(map), [partial(out.load, p) for p in parts])


@do.advance.rule(Filter)
def advance_filter(tx: Tracer, iterator: Filter) -> Value | None:
    """Return the next element that the function accepts."""
    tx.effects.advanced()
    while (element := do.advance(tx, iterator.inner)) is not None:
        plain = isinstance(iterator.function, Const)
        if do.truth(tx, element if plain else do.call(tx, iterator.function, [element], {})):
            return element
    return None


@codegen.reconstruct.rule(Filter)
def reconstruct_filter(out: Builder, iterator: Filter) -> None:
    """Filter the rest."""
    out.call(lambda: out.constant(filter), [lambda: out.load(iterator.function), lambda: out.load(iterator.inner)])


@do.advance.rule(Reversed)
def advance_reversed(tx: Tracer, iterator: Reversed) -> Value | None:
    """Return the element before."""
    tx.effects.advanced()
    if iterator.at < 0:
        return None
    if isinstance(iterator.over, Items):
        element = iterator.over.at(iterator.at) if iterator.at < iterator.over.count() else None
    else:
        element = _asked(tx, iterator)
    iterator.at = -1 if element is None else iterator.at - 1
    return element


def _asked(tx: Tracer, iterator: Reversed) -> Value | None:
    """Ask for the element; an object ends the iteration by an error, as it does when it is indexed from 0 on."""
    try:
        return iteration.real_item(tx, iterator.over, iterator.at)
    except Raised as raised:
        if not raised.is_a((IndexError, StopIteration)):
            raise
    return None


@codegen.reconstruct.rule(Reversed)
def reconstruct_reversed(out: Builder, iterator: Reversed) -> None:
    """Reverse what is left."""
    if not isinstance(iterator.over, Items) or isinstance(iterator.over, List):
        reconstruct_iterator(out, iterator)
    assert isinstance(iterator.over, Items)
    rest = Tuple(iterator.over.items[: iterator.at + 1])
    out.call(lambda: out.constant(reversed), [lambda: out.load(rest)])


def _arguments(count: int) -> str:
    """Return how CPython names the first arguments of zip."""
    return "argument 1" if count == 1 else f"arguments 1-{count}"


def next_of(tx: Tracer, iterator: Iterator, args: list[Value], keywords: Keywords) -> Value:
    """Model `__next__`."""
    arity("__next__", args, keywords, 0)
    return iteration.next_or_stop(tx, iterator)


METHODS: dict[str, methods.Rule] = {"__next__": next_of}
_PLACE = "where it is in what it iterates over isn't told"
_cls: type
for _cls in (enumerate, map, filter):
    methods.declare(_cls, METHODS, methods.PICKLED)
methods.declare(zip, METHODS, methods.refused(["__setstate__"], _PLACE), methods.PICKLED)
for _cls in (reversed, type(reversed([]))):
    _named = [name for name in ("__length_hint__", "__setstate__") if name in vars(_cls)]
    methods.declare(_cls, METHODS, methods.refused(_named, _PLACE), methods.PICKLED)
