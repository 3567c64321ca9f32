"""Instructions of CPython 3.12: comprehensions are part of their function, attributes of calls load methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.evaluate import EvaluatedFrame, Opcode, Signal
from intarsia_pyeval.opcodes import blocks, building, class_bodies, common, flow, operations, py311, variables
from intarsia_pyeval.opcodes.untraced import raise_break
from intarsia_pyeval.values.base import NULL, Value
from intarsia_pyeval.values.functions import Cell
from intarsia_pyeval.values.objects import ClassValue, Super
from intarsia_pyeval.values.sequences import Slice

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = [
    "NEW",
    "TABLE",
    "binary_slice",
    "call_intrinsic_1",
    "cleanup_throw",
    "compare_op",
    "end_for",
    "end_send",
    "for_iter",
    "load_attr",
    "load_fast_and_clear",
    "load_super_attr",
    "return_const",
    "send",
    "store_fast",
    "store_slice",
    "super_attribute",
    "write_local",
]


_COMPARE = ("<", "<=", "==", "!=", ">", ">=")
_LIST_TO_TUPLE, _UNARY_POSITIVE, _STOP_ITERATION = 6, 5, 3
_PREP_RERAISE_STAR = 1  # of CALL_INTRINSIC_2


def load_attr(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Read an attribute; with the flag, put the empty slot of a call below it."""
    attribute = do.get_attribute(frame.tx, frame.stack.pop(), instruction.value)
    if instruction.arg & 1:
        frame.stack.append(NULL)
    frame.stack.append(attribute)


def super_attribute(frame: EvaluatedFrame, instruction: Instruction) -> Value:
    """Read an attribute of `super()`, whose three parts lie on the stack."""
    function, cls, owner = frame.popn(3)
    if not isinstance(function, ClassValue) or function.value is not super or not isinstance(cls, ClassValue):
        raise Break("tracer.call", "super isn't the built-in class")
    return do.get_attribute(frame.tx, Super(cls.value, owner), instruction.value)


def load_super_attr(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Read an attribute of `super()`; with the flag, put the empty slot of a call below it."""
    attribute = super_attribute(frame, instruction)
    if instruction.arg & 1:
        frame.stack.append(NULL)
    frame.stack.append(attribute)


def compare_op(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Compare."""
    operations.compare(frame, _COMPARE[instruction.arg >> 4])


def binary_slice(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Read a slice."""
    owner, *bounds = frame.popn(3)
    frame.stack.append(do.get_item(frame.tx, owner, Slice(bounds)))


def store_slice(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Set a slice."""
    value, owner, *bounds = frame.popn(4)
    do.set_item(frame.tx, owner, Slice(bounds), value)


def load_fast_and_clear(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Save what a comprehension's variable hides, or an empty slot."""
    hidden: Value = frame.cells.pop(instruction.value) if instruction.value in frame.cells else NULL
    if instruction.value in frame.locals:
        hidden = variables.read_local(frame, instruction.value)
        del frame.locals[instruction.value]
    frame.stack.append(hidden)


def store_fast(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Set a local, or put back what a comprehension hid."""
    write_local(frame, instruction.value, frame.stack.pop())


def write_local(frame: EvaluatedFrame, name: str, value: Value) -> None:
    """Set a local; an empty slot unbinds it, and a cell becomes its cell again."""
    frame.cells.pop(name, None)
    if value is NULL:
        frame.locals.pop(name, None)
    elif isinstance(value, Cell):
        frame.cells[name] = value
    else:
        frame.locals[name] = value


def return_const(frame: EvaluatedFrame, instruction: Instruction) -> Signal:
    """Return a constant."""
    return frame.tx.live.constant(instruction.value)


def end_for(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Loops jump over this."""
    frame.popn(2)


def end_send(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Drop the receiver of `yield from` below its result."""
    del frame.stack[-2]


def cleanup_throw(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Let an exception that was thrown into `yield from` go on; one that ends it isn't modelled."""
    exception = frame.stack.pop()
    if issubclass(exception.type(), StopIteration):
        raise Break("tracer.opcode", "StopIteration is thrown into `yield from`")
    raise Raised(exception)


def for_iter(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Advance the loop."""
    flow.for_iter(frame, instruction, 1)


def send(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Advance `yield from`; END_SEND drops the receiver."""
    flow.send(frame, instruction, keep_receiver=True)


def call_intrinsic_1(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Run one of CPython's internal functions."""
    if instruction.arg == _LIST_TO_TUPLE:
        building.list_to_tuple(frame, instruction)
    elif instruction.arg == _UNARY_POSITIVE:
        operations.unary_positive(frame, instruction)
    elif instruction.arg == _STOP_ITERATION:
        if issubclass(frame.stack[-1].type(), StopIteration):
            raise Break("tracer.exception", "a generator raised StopIteration")
    else:
        raise Break("tracer.opcode", f"CALL_INTRINSIC_1 {instruction.arg} isn't modelled")


def call_intrinsic_2(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Run one of CPython's internal functions of two arguments."""
    if instruction.arg != _PREP_RERAISE_STAR:
        raise Break("tracer.opcode", "type parameters aren't modelled")
    blocks.prep_reraise_star(frame, instruction)


#: What 3.12 has that 3.11 has not, or does otherwise.
NEW: dict[str, Opcode] = {
    "BINARY_SLICE": binary_slice,
    "CALL": py311.call,
    "CALL_INTRINSIC_1": call_intrinsic_1,
    "CALL_INTRINSIC_2": call_intrinsic_2,
    "COMPARE_OP": compare_op,
    "CLEANUP_THROW": cleanup_throw,
    "END_FOR": end_for,
    "END_SEND": end_send,
    "FOR_ITER": for_iter,
    "LOAD_ATTR": load_attr,
    "LOAD_FAST_AND_CLEAR": load_fast_and_clear,
    "LOAD_FAST_CHECK": variables.load_fast,
    "LOAD_FROM_DICT_OR_DEREF": class_bodies.load_from_dict_or_deref,
    "LOAD_FROM_DICT_OR_GLOBALS": class_bodies.load_from_dict_or_globals,
    "LOAD_LOCALS": class_bodies.load_locals,
    "LOAD_SUPER_ATTR": load_super_attr,
    "POP_JUMP_IF_FALSE": flow.pop_jump_if_false,
    "POP_JUMP_IF_NONE": flow.pop_jump_if_none,
    "POP_JUMP_IF_NOT_NONE": flow.pop_jump_if_not_none,
    "POP_JUMP_IF_TRUE": flow.pop_jump_if_true,
    "RETURN_CONST": return_const,
    "SEND": send,
    "STORE_FAST": store_fast,
    "STORE_SLICE": store_slice,
}

TABLE: dict[str, Opcode] = {
    **raise_break(),
    **common.COMMON,
    **NEW,
    "FORMAT_VALUE": py311.format_value,
    "LOAD_CLOSURE": variables.load_closure,
    "MAKE_FUNCTION": py311.make_function,
}
