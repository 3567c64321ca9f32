"""What tuples, lists and deques have in common."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.operation import operation
from intarsia_pyeval.semantics import iteration, operators
from intarsia_pyeval.values.base import NotConstantError, Value
from intarsia_pyeval.values.constants import Const, boolean
from intarsia_pyeval.values.sequences import Items

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["index_of", "position_of", "repeated", "tally"]

_MOST = 1 << 20  # items that are modelled one by one


@do.truth.rule(Items)
def truth(tx: Tracer, sequence: Items) -> bool:
    """Tell whether there are items."""
    return bool(sequence.models)


@do.length.rule(Items)
def length(tx: Tracer, sequence: Items) -> int:
    """Return the number of items."""
    return len(sequence.models)


@do.contains.rule(Items)
def contains(tx: Tracer, sequence: Items, item: Value) -> bool:
    """Compare with each item."""
    return any(operators.same_or_equal(tx, other, item) for other in sequence.items)


@do.iterate.rule(Items)
def iterate(tx: Tracer, sequence: Items) -> Value:
    """Iterate by position, so that growing a list is seen."""
    return iteration.iterator_over(tx, sequence)


@operation
def index_of(tx: Tracer, sequence: Items, key: Value, doing: str) -> int:
    """Return the position that `key` means, checked against the length."""
    at = operators.index(tx, key)
    if not isinstance(at, int):
        tx.raising.error(
            TypeError, f"{sequence.type().__name__} indices must be integers or slices, not {type(at).__name__}"
        )
    if not -len(sequence.models) <= at < len(sequence.models):
        tx.raising.error(IndexError, f"{sequence.noun()} {doing}index out of range")
    return at


@operation
def position_of(tx: Tracer, sequence: Items, args: Sequence[Value]) -> Value:
    """Model `index`."""
    bounds = [operators.index(tx, arg) for arg in args[1:]]
    if not all(isinstance(bound, int) for bound in bounds):
        raise Break("tracer.exception", f"{sequence.noun()}.index is given a bound that is no integer")
    at, stop, _ = slice(*[*bounds, None, None][:2]).indices(len(sequence.models))
    while at < min(stop, len(sequence.models)):  # a comparison may shorten it
        if operators.same_or_equal(tx, sequence.at(at), args[0]):
            return Const(at)
        at += 1
    if sequence.type() is tuple:
        tx.raising.error(ValueError, "tuple.index(x): x not in tuple")
    try:
        shown = repr(args[0].as_python())
    except NotConstantError as unknown:
        raise Break("tracer.exception", f"{sequence.noun()}.index doesn't find {unknown}") from None
    tx.raising.error(ValueError, f"{shown} is not in {sequence.noun()}")


@operation
def tally(tx: Tracer, sequence: Items, args: Sequence[Value]) -> Value:
    """Model `count`."""
    return Const(sum(operators.same_or_equal(tx, item, args[0]) for item in sequence.items))


@do.compare.rule(Items)
def compare(tx: Tracer, sequence: Items, op: str, other: Value) -> Value | None:
    """Compare item by item, as CPython does."""
    if not isinstance(other, Items) or not sequence.comparable(other):
        return None
    if op in ("==", "!=") and len(sequence.models) != len(other.models):
        return boolean(op == "!=")
    at = _first_difference(tx, sequence, other)
    if at < min(len(sequence.models), len(other.models)):
        return boolean(op == "!=") if op in ("==", "!=") else operators.compare(tx, op, sequence.at(at), other.at(at))
    sizes = {"<": len(sequence.models) < len(other.models), ">": len(sequence.models) > len(other.models)}
    sizes |= {"==": len(sequence.models) == len(other.models), "<=": not sizes[">"], ">=": not sizes["<"]}
    return boolean(not sizes["=="] if op == "!=" else sizes[op])


def _first_difference(tx: Tracer, sequence: Items, other: Items) -> int:
    """Return the first position where two sequences differ; comparing items may change them meanwhile."""
    at = 0
    while at < min(len(sequence.models), len(other.models)):
        if not operators.same_or_equal(tx, sequence.at(at), other.at(at)):
            break
        at += 1
    return at


def repeated(sequence: Items, other: Value) -> list[Value] | None:
    """Return the items of `self * other`, or None when `other` isn't an integer."""
    if not isinstance(other, Const) or not isinstance(other.value, int):
        return None
    size = len(sequence.models) * other.value
    if size > _MOST:
        code = "tracer.budget" if size <= sys.maxsize // 8 else "tracer.exception"  # an item is a pointer
        raise Break(code, f"a {sequence.noun()} of {size} items is made")
    return sequence.items * other.value
