"""Instructions of CPython 3.11."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING, cast

from intarsia_pyeval.evaluate import EvaluatedFrame, Opcode
from intarsia_pyeval.opcodes import common
from intarsia_pyeval.opcodes.untraced import raise_break
from intarsia_pyeval.values.base import NULL
from intarsia_pyeval.values.functions import Cell
from intarsia_pyeval.values.mappings import Dict

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = ["TABLE", "call", "compare_op", "format_value", "load_attr", "make_function"]

_COMPARE = ("<", "<=", "==", "!=", ">", ">=")


def load_attr(f: EvaluatedFrame, i: Instruction) -> None:
    """Read an attribute."""
    f.stack.append(f.stack.pop().get_attribute(f.tx, i.value))


def load_method(f: EvaluatedFrame, i: Instruction) -> None:
    """Read a method that is called next."""
    found = f.stack.pop().get_attribute(f.tx, i.value)
    f.stack.append(NULL)
    f.stack.append(found)


def call(f: EvaluatedFrame, i: Instruction) -> None:
    """Call; below the arguments lie an empty slot and a callable, or a callable and its first argument."""
    args = f.popn(i.arg)
    one, other = f.popn(2)
    if one is NULL:
        common.call(f, other, args, i.keywords)
    else:
        common.call(f, one, [other, *args], i.keywords)


def compare_op(f: EvaluatedFrame, i: Instruction) -> None:
    """Compare."""
    common.compare(f, _COMPARE[i.arg])


def for_iter(f: EvaluatedFrame, i: Instruction) -> None:
    """Advance the loop."""
    common.for_iter(f, i, 0)


def send(f: EvaluatedFrame, i: Instruction) -> None:
    """Advance `yield from`; the receiver is dropped at the end."""
    common.send(f, i, keep_receiver=False)


def make_function(f: EvaluatedFrame, i: Instruction) -> None:
    """Make a function with defaults, annotations and a closure, as flags say."""
    made = common.make_function(f, cast(CodeType, f.stack.pop().as_python()))
    if i.arg & 8:
        made.closure = tuple(cast(Cell, cell) for cell in f.tx.unpack(f.stack.pop()))
    if i.arg & 4:
        made.annotations = f.stack.pop()
    if i.arg & 2:
        made.keyword_defaults = cast(Dict, f.stack.pop())
    if i.arg & 1:
        made.defaults = tuple(f.tx.unpack(f.stack.pop()))
    f.stack.append(made)


def format_value(f: EvaluatedFrame, i: Instruction) -> None:
    """Format a value of an f-string."""
    spec = f.stack.pop() if i.arg & 4 else None
    f.stack.append(f.tx.format_value(f.stack.pop(), i.arg & 3, spec))


TABLE: dict[str, Opcode] = {
    **raise_break(),
    **common.COMMON,
    "CALL": call,
    "COMPARE_OP": compare_op,
    "FORMAT_VALUE": format_value,
    "FOR_ITER": for_iter,
    "JUMP_IF_FALSE_OR_POP": common.jump_if_false_or_pop,
    "JUMP_IF_TRUE_OR_POP": common.jump_if_true_or_pop,
    "LIST_TO_TUPLE": common.list_to_tuple,
    "LOAD_ATTR": load_attr,
    "LOAD_CLOSURE": common.load_closure,
    "LOAD_METHOD": load_method,
    "MAKE_FUNCTION": make_function,
    "POP_JUMP_BACKWARD_IF_FALSE": common.pop_jump_if_false,
    "POP_JUMP_BACKWARD_IF_NONE": common.pop_jump_if_none,
    "POP_JUMP_BACKWARD_IF_NOT_NONE": common.pop_jump_if_not_none,
    "POP_JUMP_BACKWARD_IF_TRUE": common.pop_jump_if_true,
    "POP_JUMP_FORWARD_IF_FALSE": common.pop_jump_if_false,
    "POP_JUMP_FORWARD_IF_NONE": common.pop_jump_if_none,
    "POP_JUMP_FORWARD_IF_NOT_NONE": common.pop_jump_if_not_none,
    "POP_JUMP_FORWARD_IF_TRUE": common.pop_jump_if_true,
    "SEND": send,
    "UNARY_POSITIVE": common.unary_positive,
}
