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
def binary_open_number(tx: Tracer, number: OpenNumber, op: str, other: Value, swapped: bool) -> Value | None:
    """Keep what can't fail open; None for operands that aren't numbers."""
    if not isinstance(other, ChangingNumber) and not opening._is_number(other):
        return None
    left, right = (other, number) if swapped else (number, other)
    if op == "/" and isinstance(right, OpenNumber) and right.limits is None and not right.is_given():
        (right,) = tx.extension.settle(tx, [right])
    opened_number = (
        opening.opened(number.guards, opening.OPERATORS[op], (left, right)) if op in opening.OPERATORS else None
    )
    if opened_number is not None:
        return opened_number
    left, right = tx.extension.settle(tx, [left, right])
    return operators.binary(tx, op, left, right)


@do.unary.rule(OpenNumber)
def unary_open_number(tx: Tracer, number: OpenNumber, op: str) -> Value:
    """Model `-self` and `+self`."""
    opened_number = (
        opening.opened(number.guards, operator.neg, (number,)) if op == "-" else number if op == "+" else None
    )
    return opened_number if opened_number is not None else do.unary(tx, tx.extension.settle(tx, [number])[0], op)


@do.compare.rule(OpenNumber)
def compare_open_number(tx: Tracer, number: OpenNumber, op: str, other: Value) -> Value | None:
    """Compare with numbers: with a known one, later calls must give the same answer, whatever the float is."""
    if number.is_given() and opening._is_number(other) and op in COMPARISONS:
        return boolean(number._answer(op, other.as_python()))
    if opening._is_number(other):
        answer = opening.answered(number, op, other.as_python())
        if answer is not None:
            return boolean(answer)
    if isinstance(other, ChangingNumber) or opening._is_number(other):
        left, right = tx.extension.settle(tx, [number, other])
        return operators.compare(tx, op, left, right)
    return None


@do.convert.rule(OpenNumber)
def convert_open_number(tx: Tracer, number: OpenNumber, cls: Any) -> Value | None:
    """Model `float(self)`, which is itself, and the other number classes."""
    if cls is number.type():
        return number
    opened_number = opening.opened(number.guards, cls, (number,)) if cls in (int, float) else None
    return (
        opened_number
        if opened_number is not None
        else tx.live.from_python(folding.real(tx, cls, number.settled().value))
    )


@do.hash_key.rule(OpenNumber)
def hash_key_open_number(tx: Tracer, number: OpenNumber) -> Hashable:
    """Hash by value."""
    return do.hash_key(tx, number.settled())


@do.truth.rule(OpenNumber)
def truth_open_number(tx: Tracer, number: OpenNumber) -> bool:
    """Tell by comparing with zero."""
    if number.is_given():
        return number._answer("!=", 0.0)
    if number.limits is not None and not number.limits[0] <= 0 <= number.limits[1]:
        return True
    return do.truth(tx, number.settled())


@do.get_attribute.rule(OpenNumber)
def get_attribute_open_number(tx: Tracer, number: OpenNumber, name: str) -> Value:
    """Read an attribute of the constant."""
    return do.get_attribute(tx, number.settled(), name)


@do.call_method.rule(OpenNumber)
def call_method_open_number(
    tx: Tracer, number: OpenNumber, name: str, args: Sequence[Value], keywords: Keywords
) -> Value:
    """Call a method of the constant."""
    return do.call_method(tx, number.settled(), name, args, keywords)


@codegen.reconstruct.rule(OpenNumber)
def reconstruct_open_number(out: Builder, number: OpenNumber) -> None:
    """Compute it again."""
    op = _IN_BYTECODE.get(number.function)
    if op is None:
        out.call(lambda: out.emit("LOAD_CONST", number.function), [partial(out.load, part) for part in number.parts])
        return
    for part in number.parts:
        out.load(part)
    out.arithmetic(op)
