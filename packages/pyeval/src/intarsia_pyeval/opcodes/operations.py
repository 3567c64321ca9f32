"""Attributes, items and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.evaluate import EvaluatedFrame
from intarsia_pyeval.semantics import operators
from intarsia_pyeval.values.constants import Const, boolean

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = [
    "binary_op",
    "binary_subscr",
    "compare",
    "contains_op",
    "delete_attr",
    "delete_subscr",
    "get_len",
    "is_op",
    "store_attr",
    "store_subscr",
    "unary_invert",
    "unary_negative",
    "unary_not",
    "unary_positive",
]


_OPERATORS = ["+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^"]


_IN_PLACE = len(_OPERATORS)


def store_attr(f: EvaluatedFrame, i: Instruction) -> None:
    """Set an attribute."""
    value, owner = f.popn(2)
    do.set_attribute(f.tx, owner, i.value, value)


def delete_attr(f: EvaluatedFrame, i: Instruction) -> None:
    """Delete an attribute."""
    do.delete_attribute(f.tx, f.stack.pop(), i.value)


def binary_subscr(f: EvaluatedFrame, i: Instruction) -> None:
    """Read an item."""
    owner, key = f.popn(2)
    f.stack.append(do.get_item(f.tx, owner, key))


def store_subscr(f: EvaluatedFrame, i: Instruction) -> None:
    """Set an item."""
    value, owner, key = f.popn(3)
    do.set_item(f.tx, owner, key, value)


def delete_subscr(f: EvaluatedFrame, i: Instruction) -> None:
    """Delete an item."""
    owner, key = f.popn(2)
    do.delete_item(f.tx, owner, key)


def binary_op(f: EvaluatedFrame, i: Instruction) -> None:
    """Apply a binary operator, plain or in place."""
    left, right = f.popn(2)
    in_place = i.arg >= _IN_PLACE
    f.stack.append(operators.binary(f.tx, _OPERATORS[i.arg - _IN_PLACE * in_place], left, right, in_place))


def unary_negative(f: EvaluatedFrame, i: Instruction) -> None:
    """Negate."""
    f.stack.append(do.unary(f.tx, f.stack.pop(), "-"))


def unary_positive(f: EvaluatedFrame, i: Instruction) -> None:
    """Apply unary plus."""
    f.stack.append(do.unary(f.tx, f.stack.pop(), "+"))


def unary_invert(f: EvaluatedFrame, i: Instruction) -> None:
    """Invert."""
    f.stack.append(do.unary(f.tx, f.stack.pop(), "~"))


def unary_not(f: EvaluatedFrame, i: Instruction) -> None:
    """Push whether the top is false."""
    f.stack.append(operators.negated(f.tx, f.stack.pop()))


def compare(f: EvaluatedFrame, op: str) -> None:
    """Compare the two topmost entries."""
    left, right = f.popn(2)
    f.stack.append(operators.compare(f.tx, op, left, right))


def is_op(f: EvaluatedFrame, i: Instruction) -> None:
    """Compare by identity."""
    left, right = f.popn(2)
    f.stack.append(boolean(operators.same(f.tx, left, right) is not bool(i.arg)))


def contains_op(f: EvaluatedFrame, i: Instruction) -> None:
    """Test membership."""
    item, container = f.popn(2)
    f.stack.append(boolean(do.contains(f.tx, container, item) is not bool(i.arg)))


def get_len(f: EvaluatedFrame, i: Instruction) -> None:
    """Push the length of the top."""
    f.stack.append(Const(do.length(f.tx, f.stack[-1])))
