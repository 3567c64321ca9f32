"""`keys()`, `values()` and `items()` of a dict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.kinds import sets
from intarsia_pyeval.semantics import iteration, methods, operators
from intarsia_pyeval.stores import dict_store, set_store
from intarsia_pyeval.values.base import Keywords, Value, defines
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.mappings import DictView
from intarsia_pyeval.values.sequences import Tuple
from intarsia_pyeval.values.sets import SetValue

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["elements"]


def elements(tx: Tracer, view: DictView) -> list[Value]:
    """Return what iteration gives now."""
    entries = dict_store.entries(tx, view.base).values()
    if view.what == "items":
        return [Tuple(entry) for entry in entries]
    return [entry[0 if view.what == "keys" else 1] for entry in entries]


@do.length.rule(DictView)
def length(tx: Tracer, view: DictView) -> int:
    """Return the length of the dict."""
    return do.length(tx, view.base)


@do.truth.rule(DictView)
def truth(tx: Tracer, view: DictView) -> bool:
    """Tell whether the dict has entries."""
    return do.truth(tx, view.base)


@do.iterate.rule(DictView)
def iterate(tx: Tracer, view: DictView) -> Value:
    """Iterate."""
    return iteration.iterator_over(tx, view)


@do.contains.rule(DictView)
def contains(tx: Tracer, view: DictView, item: Value) -> bool:
    """Look up a key, or compare with the elements."""
    if view.what == "keys":
        return do.contains(tx, view.base, item)
    return any(operators.same_or_equal(tx, element, item) for element in elements(tx, view))


@do.get_attribute.rule(DictView)
def get_attribute(tx: Tracer, view: DictView, name: str) -> Value:
    """Return a method."""
    if not defines(view.type(), name):
        tx.raising.error(AttributeError, f"{view.type().__name__!r} object has no attribute {name!r}")
    return BoundBuiltin(view, name)


@do.call_method.rule(DictView)
def call_method(tx: Tracer, view: DictView, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of a view."""
    return methods.call(tx, _VIEWS[view.what], view, name, args, keywords)


@do.binary.rule(DictView)
def binary(tx: Tracer, view: DictView, op: str, other: Value, swapped: bool) -> Value | None:
    """Model the set operators of keys."""
    if view.what == "values" or op not in ("&", "|", "-", "^"):
        return None
    if isinstance(other, DictView) and other.what != "values":
        other = _as_set(tx, other)
    # a frozen set in front leaves it to the view, which makes a set
    as_it_is = isinstance(other, SetValue) and (other.cls is set or not swapped)
    operand = other if as_it_is else sets.made(tx, set, other)
    return do.binary(tx, _as_set(tx, view), op, operand, swapped)


@do.compare.rule(DictView)
def compare(tx: Tracer, view: DictView, op: str, other: Value) -> Value | None:
    """Compare keys or items as a set."""
    if view.what == "values":
        return None
    if isinstance(other, DictView) and other.what != "values":
        other = _as_set(tx, other)
    return do.compare(tx, _as_set(tx, view), op, other) if isinstance(other, SetValue) else None


def _as_set(tx: Tracer, view: DictView) -> SetValue:
    """Return the keys or items as a set."""
    return sets.made(tx, set, view.base) if view.what == "keys" else set_store.of(tx, elements(tx, view))


@codegen.reconstruct.rule(DictView)
def reconstruct(out: Builder, view: DictView) -> None:
    """Ask the dict for the view, past what a subclass overrides."""
    if view.base.is_plain():
        out.load(view.base)
        out.call_method(view.what, [])
        return
    method = getattr(view.base.cls, view.what)
    out.call(lambda: out.emit("LOAD_CONST", method), [lambda: out.load(view.base)])


def _is_disjoint(tx: Tracer, view: DictView, args: list[Value], keywords: Keywords) -> Value:
    return do.call_method(tx, _as_set(tx, view), "isdisjoint", args, keywords)


_VIEWS: dict[str, type] = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}
methods.declare(_VIEWS["keys"], {"isdisjoint": _is_disjoint})
methods.declare(_VIEWS["values"])
methods.declare(_VIEWS["items"], methods.refused(["isdisjoint"], "items needn't have a hash"))
