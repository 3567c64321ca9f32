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


def load_attr(f: EvaluatedFrame, i: Instruction) -> None:
    """Read an attribute."""
    f.stack.append(do.get_attribute(f.tx, f.stack.pop(), i.value))


def load_method(f: EvaluatedFrame, i: Instruction) -> None:
    """Read a method that is called next."""
    found = do.get_attribute(f.tx, f.stack.pop(), i.value)
    f.stack.append(NULL)
    f.stack.append(found)


def call(f: EvaluatedFrame, i: Instruction) -> None:
    """Call; below the arguments lie an empty slot and a callable, or a callable and its first argument."""
    args = f.popn(i.arg)
    one, other = f.popn(2)
    if one is NULL:
        calls.call(f, other, args, i.keywords)
    else:
        calls.call(f, one, [other, *args], i.keywords)


def compare_op(f: EvaluatedFrame, i: Instruction) -> None:
    """Compare."""
    operations.compare(f, _COMPARE[i.arg])


def for_iter(f: EvaluatedFrame, i: Instruction) -> None:
    """Advance the loop."""
    flow.for_iter(f, i, 0)


def send(f: EvaluatedFrame, i: Instruction) -> None:
    """Advance `yield from`; the receiver is dropped at the end."""
    flow.send(f, i, keep_receiver=False)


def make_function(f: EvaluatedFrame, i: Instruction) -> None:
    """Make a function with defaults, annotations and a closure, as flags say."""
    made = calls.make_function(f, cast(CodeType, f.stack.pop().as_python()))
    if i.arg & 8:
        made.closure = tuple(cast(Cell, cell) for cell in iteration.unpack(f.tx, f.stack.pop()))
    if i.arg & 4:
        made.annotations = f.stack.pop()
    if i.arg & 2:
        made.keyword_defaults = cast(Dict, f.stack.pop())
    if i.arg & 1:
        made.defaults = tuple(iteration.unpack(f.tx, f.stack.pop()))
    f.stack.append(made)


def format_value(f: EvaluatedFrame, i: Instruction) -> None:
    """Format a value of an f-string."""
    spec = f.stack.pop() if i.arg & 4 else None
    f.stack.append(formatting.format_value(f.tx, f.stack.pop(), i.arg & 3, spec))


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
