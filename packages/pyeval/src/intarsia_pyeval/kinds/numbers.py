"""Numbers that are left open."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.semantics import folding, opening, operators
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import boolean
from intarsia_pyeval.values.numbers import COMPARISONS, ChangingNumber, OpenNumber

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


_IN_BYTECODE: dict[Any, str] = {operator.neg: "neg", **{opening.OPERATORS[op]: op for op in "+-*/"}}


@do.binary.rule(OpenNumber)
def binary_open_number(tx: Tracer, x: OpenNumber, op: str, other: Value, swapped: bool) -> Value | None:
    """Keep what can't fail open; None for operands that aren't numbers."""
    if not isinstance(other, ChangingNumber) and not opening._is_number(other):
        return None
    left, right = (other, x) if swapped else (x, other)
    if op == "/" and isinstance(right, OpenNumber) and right.limits is None and not right.is_given():
        (right,) = tx.extension.settle(tx, [right])
    found = opening.opened(x.guards, opening.OPERATORS[op], (left, right)) if op in opening.OPERATORS else None
    if found is not None:
        return found
    left, right = tx.extension.settle(tx, [left, right])
    return operators.binary(tx, op, left, right)


@do.unary.rule(OpenNumber)
def unary_open_number(tx: Tracer, x: OpenNumber, op: str) -> Value:
    """Model `-self` and `+self`."""
    found = opening.opened(x.guards, operator.neg, (x,)) if op == "-" else x if op == "+" else None
    return found if found is not None else do.unary(tx, tx.extension.settle(tx, [x])[0], op)


@do.compare.rule(OpenNumber)
def compare_open_number(tx: Tracer, x: OpenNumber, op: str, other: Value) -> Value | None:
    """Compare with numbers: with a known one, later calls must give the same answer, whatever the float is."""
    if x.is_given() and opening._is_number(other) and op in COMPARISONS:
        return boolean(x._answer(op, other.as_python()))
    if opening._is_number(other):
        answer = opening.answered(x, op, other.as_python())
        if answer is not None:
            return boolean(answer)
    if isinstance(other, ChangingNumber) or opening._is_number(other):
        left, right = tx.extension.settle(tx, [x, other])
        return operators.compare(tx, op, left, right)
    return None


@do.convert.rule(OpenNumber)
def convert_open_number(tx: Tracer, x: OpenNumber, cls: Any) -> Value | None:
    """Model `float(self)`, which is itself, and the other number classes."""
    if cls is x.type():
        return x
    found = opening.opened(x.guards, cls, (x,)) if cls in (int, float) else None
    return found if found is not None else tx.live.from_python(folding.real(tx, cls, x.settled().value))


@do.hash_key.rule(OpenNumber)
def hash_key_open_number(tx: Tracer, x: OpenNumber) -> Hashable:
    """Hash by value."""
    return do.hash_key(tx, x.settled())


@do.truth.rule(OpenNumber)
def truth_open_number(tx: Tracer, x: OpenNumber) -> bool:
    """Tell by comparing with zero."""
    if x.is_given():
        return x._answer("!=", 0.0)
    if x.limits is not None and not x.limits[0] <= 0 <= x.limits[1]:
        return True
    return do.truth(tx, x.settled())


@do.get_attribute.rule(OpenNumber)
def get_attribute_open_number(tx: Tracer, x: OpenNumber, name: str) -> Value:
    """Read an attribute of the constant."""
    return do.get_attribute(tx, x.settled(), name)


@do.call_method.rule(OpenNumber)
def call_method_open_number(tx: Tracer, x: OpenNumber, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of the constant."""
    return do.call_method(tx, x.settled(), name, args, keywords)


@codegen.reconstruct.rule(OpenNumber)
def reconstruct_open_number(out: Builder, x: OpenNumber) -> None:
    """Compute it again."""
    op = _IN_BYTECODE.get(x.function)
    if op is None:
        out.call(lambda: out.emit("LOAD_CONST", x.function), [partial(out.load, part) for part in x.parts])
        return
    for part in x.parts:
        out.load(part)
    out.arithmetic(op)
