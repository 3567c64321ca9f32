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


def store_attr(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Set an attribute."""
    value, owner = frame.popn(2)
    do.set_attribute(frame.tx, owner, instruction.value, value)


def delete_attr(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Delete an attribute."""
    do.delete_attribute(frame.tx, frame.stack.pop(), instruction.value)


def binary_subscr(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Read an item."""
    owner, key = frame.popn(2)
    frame.stack.append(do.get_item(frame.tx, owner, key))


def store_subscr(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Set an item."""
    value, owner, key = frame.popn(3)
    do.set_item(frame.tx, owner, key, value)


def delete_subscr(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Delete an item."""
    owner, key = frame.popn(2)
    do.delete_item(frame.tx, owner, key)


def binary_op(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Apply a binary operator, plain or in place."""
    left, right = frame.popn(2)
    in_place = instruction.arg >= _IN_PLACE
    frame.stack.append(
        operators.binary(frame.tx, _OPERATORS[instruction.arg - _IN_PLACE * in_place], left, right, in_place)
    )


def unary_negative(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Negate."""
    frame.stack.append(do.unary(frame.tx, frame.stack.pop(), "-"))


def unary_positive(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Apply unary plus."""
    frame.stack.append(do.unary(frame.tx, frame.stack.pop(), "+"))


def unary_invert(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Invert."""
    frame.stack.append(do.unary(frame.tx, frame.stack.pop(), "~"))


def unary_not(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push whether the top is false."""
    frame.stack.append(operators.negated(frame.tx, frame.stack.pop()))


def compare(frame: EvaluatedFrame, op: str) -> None:
    """Compare the two topmost entries."""
    left, right = frame.popn(2)
    frame.stack.append(operators.compare(frame.tx, op, left, right))


def is_op(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Compare by identity."""
    left, right = frame.popn(2)
    frame.stack.append(boolean(operators.same(frame.tx, left, right) is not bool(instruction.arg)))


def contains_op(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Test membership."""
    item, container = frame.popn(2)
    frame.stack.append(boolean(do.contains(frame.tx, container, item) is not bool(instruction.arg)))


def get_len(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push the length of the top."""
    frame.stack.append(Const(do.length(frame.tx, frame.stack[-1])))
