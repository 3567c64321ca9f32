"""Instructions of CPython 3.11."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING, cast

from intarsia_pyeval import do
from intarsia_pyeval.evaluate import EvaluatedFrame, Opcode
from intarsia_pyeval.opcodes import blocks, building, calls, class_bodies, common, flow, operations, variables
from intarsia_pyeval.opcodes.untraced import raise_break
from intarsia_pyeval.semantics import formatting, iteration
from intarsia_pyeval.values.base import NULL
from intarsia_pyeval.values.functions import Cell
from intarsia_pyeval.values.mappings import Dict

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = [
    "TABLE",
    "call",
    "compare_op",
    "for_iter",
    "format_value",
    "load_attr",
    "load_method",
    "make_function",
    "send",
]


_COMPARE = ("<", "<=", "==", "!=", ">", ">=")


def load_attr(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Read an attribute."""
    frame.stack.append(do.get_attribute(frame.tx, frame.stack.pop(), instruction.value))


def load_method(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Read a method that is called next."""
    method = do.get_attribute(frame.tx, frame.stack.pop(), instruction.value)
    frame.stack.append(NULL)
    frame.stack.append(method)


def call(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Call; below the arguments lie an empty slot and a callable, or a callable and its first argument."""
    args = frame.popn(instruction.arg)
    one, other = frame.popn(2)
    if one is NULL:
        calls.call(frame, other, args, instruction.keywords)
    else:
        calls.call(frame, one, [other, *args], instruction.keywords)


def compare_op(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Compare."""
    operations.compare(frame, _COMPARE[instruction.arg])


def for_iter(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Advance the loop."""
    flow.for_iter(frame, instruction, 0)


def send(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Advance `yield from`; the receiver is dropped at the end."""
    flow.send(frame, instruction, keep_receiver=False)


def make_function(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Make a function with defaults, annotations and a closure, as flags say."""
    function = calls.make_function(frame, cast(CodeType, frame.stack.pop().as_python()))
    if instruction.arg & 8:
        function.closure = tuple(cast(Cell, cell) for cell in iteration.unpack(frame.tx, frame.stack.pop()))
    if instruction.arg & 4:
        function.annotations = frame.stack.pop()
    if instruction.arg & 2:
        function.keyword_defaults = cast(Dict, frame.stack.pop())
    if instruction.arg & 1:
        function.defaults = tuple(iteration.unpack(frame.tx, frame.stack.pop()))
    frame.stack.append(function)


def format_value(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Format a value of an f-string."""
    spec = frame.stack.pop() if instruction.arg & 4 else None
    frame.stack.append(formatting.format_value(frame.tx, frame.stack.pop(), instruction.arg & 3, spec))


TABLE: dict[str, Opcode] = {
    **raise_break(),
    **common.COMMON,
    "CALL": call,
    "COMPARE_OP": compare_op,
    "FORMAT_VALUE": format_value,
    "FOR_ITER": for_iter,
    "JUMP_IF_FALSE_OR_POP": flow.jump_if_false_or_pop,
    "JUMP_IF_TRUE_OR_POP": flow.jump_if_true_or_pop,
    "LIST_TO_TUPLE": building.list_to_tuple,
    "LOAD_ATTR": load_attr,
    "LOAD_CLASSDEREF": class_bodies.load_classderef,
    "LOAD_CLOSURE": variables.load_closure,
    "LOAD_METHOD": load_method,
    "MAKE_FUNCTION": make_function,
    "POP_JUMP_BACKWARD_IF_FALSE": flow.pop_jump_if_false,
    "POP_JUMP_BACKWARD_IF_NONE": flow.pop_jump_if_none,
    "POP_JUMP_BACKWARD_IF_NOT_NONE": flow.pop_jump_if_not_none,
    "POP_JUMP_BACKWARD_IF_TRUE": flow.pop_jump_if_true,
    "POP_JUMP_FORWARD_IF_FALSE": flow.pop_jump_if_false,
    "POP_JUMP_FORWARD_IF_NONE": flow.pop_jump_if_none,
    "POP_JUMP_FORWARD_IF_NOT_NONE": flow.pop_jump_if_not_none,
    "POP_JUMP_FORWARD_IF_TRUE": flow.pop_jump_if_true,
    "PREP_RERAISE_STAR": blocks.prep_reraise_star,
    "SEND": send,
    "UNARY_POSITIVE": operations.unary_positive,
}
