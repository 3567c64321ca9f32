"""Instructions of CPython 3.13: the callable lies below its empty slot, locals are moved in pairs."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING, cast

from intarsia_pyeval import do
from intarsia_pyeval.evaluate import EvaluatedFrame, Opcode
from intarsia_pyeval.opcodes import calls, common, flow, operations, py312, variables
from intarsia_pyeval.opcodes.untraced import raise_break
from intarsia_pyeval.semantics import formatting, iteration
from intarsia_pyeval.semantics.namespaces import global_or_builtin
from intarsia_pyeval.values.base import NULL
from intarsia_pyeval.values.constants import boolean
from intarsia_pyeval.values.functions import Cell, MadeFunction
from intarsia_pyeval.values.mappings import Dict

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = [
    "TABLE",
    "call",
    "call_kw",
    "compare_op",
    "convert_value",
    "end_for",
    "for_iter",
    "format_simple",
    "format_with_spec",
    "load_attr",
    "load_fast_load_fast",
    "load_global",
    "load_super_attr",
    "make_function",
    "set_function_attribute",
    "store_fast_load_fast",
    "store_fast_store_fast",
    "to_bool",
]


_COMPARE = ("<", "<=", "==", "!=", ">", ">=")
_TO_BOOL = 16


def load_global(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push a global or builtin, above it the empty slot of a call."""
    frame.stack.append(global_or_builtin(frame.tx, frame.globals, instruction.value))
    if instruction.arg & 1:
        frame.stack.append(NULL)


def load_attr(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Read an attribute; with the flag, put the empty slot of a call above it."""
    frame.stack.append(do.get_attribute(frame.tx, frame.stack.pop(), instruction.value))
    if instruction.arg & 1:
        frame.stack.append(NULL)


def load_super_attr(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Read an attribute of `super()`; with the flag, put the empty slot of a call above it."""
    frame.stack.append(py312.super_attribute(frame, instruction))
    if instruction.arg & 1:
        frame.stack.append(NULL)


def call(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Call; below the arguments lie the callable and an empty slot or a first argument."""
    _call(frame, instruction.arg, ())


def call_kw(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Call with the names of the last arguments on top."""
    names = cast(tuple[str, ...], frame.stack.pop().as_python())
    _call(frame, instruction.arg, names)


def _call(frame: EvaluatedFrame, count: int, names: tuple[str, ...]) -> None:
    """Call with `count` arguments."""
    args = frame.popn(count)
    function, first = frame.popn(2)
    calls.call(frame, function, args if first is NULL else [first, *args], names)


def compare_op(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Compare; with the flag, which the decoder leaves where nothing asks for the truth next, make a bool of it."""
    operations.compare(frame, _COMPARE[instruction.arg >> 5])
    if instruction.arg & _TO_BOOL:
        to_bool(frame, instruction)


def to_bool(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Turn the top into a bool."""
    frame.stack.append(boolean(do.truth(frame.tx, frame.stack.pop())))


def convert_value(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Apply the conversion of an f-string."""
    frame.stack.append(formatting.format_value(frame.tx, frame.stack.pop(), instruction.arg, None))


def format_simple(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Format a value of an f-string."""
    frame.stack.append(formatting.format_value(frame.tx, frame.stack.pop(), 0, None))


def format_with_spec(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Format a value of an f-string by a specification."""
    value, spec = frame.popn(2)
    frame.stack.append(formatting.format_value(frame.tx, value, 0, spec))


def make_function(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Make a plain function."""
    frame.stack.append(calls.make_function(frame, cast(CodeType, frame.stack.pop().as_python())))


def set_function_attribute(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Give a function its defaults, annotations or closure."""
    value, function = frame.popn(2)
    assert isinstance(function, MadeFunction)
    if instruction.arg == 8:
        function.closure = tuple(cast(Cell, cell) for cell in iteration.unpack(frame.tx, value))
    elif instruction.arg == 4:
        function.annotations = value
    elif instruction.arg == 2:
        function.keyword_defaults = cast(Dict, value)
    else:
        function.defaults = tuple(iteration.unpack(frame.tx, value))
    frame.stack.append(function)


def load_fast_load_fast(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push two locals."""
    frame.stack.extend(variables.read_local(frame, name) for name in instruction.value)


def store_fast_load_fast(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Set a local, then push one."""
    py312.write_local(frame, instruction.value[0], frame.stack.pop())
    frame.stack.append(variables.read_local(frame, instruction.value[1]))


def store_fast_store_fast(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Set two locals, the first from the top."""
    for name in instruction.value:
        py312.write_local(frame, name, frame.stack.pop())


def end_for(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Loops jump over this."""
    frame.stack.pop()


def for_iter(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Advance the loop."""
    flow.for_iter(frame, instruction, 2)


TABLE: dict[str, Opcode] = {
    **raise_break(),
    **common.COMMON,
    **py312.NEW,
    "CALL": call,
    "CALL_KW": call_kw,
    "COMPARE_OP": compare_op,
    "CONVERT_VALUE": convert_value,
    "END_FOR": end_for,
    "FORMAT_SIMPLE": format_simple,
    "FORMAT_WITH_SPEC": format_with_spec,
    "FOR_ITER": for_iter,
    "LOAD_ATTR": load_attr,
    "LOAD_FAST_LOAD_FAST": load_fast_load_fast,
    "LOAD_GLOBAL": load_global,
    "LOAD_SUPER_ATTR": load_super_attr,
    "MAKE_FUNCTION": make_function,
    "SET_FUNCTION_ATTRIBUTE": set_function_attribute,
    "STORE_FAST_LOAD_FAST": store_fast_load_fast,
    "STORE_FAST_STORE_FAST": store_fast_store_fast,
    "TO_BOOL": to_bool,
}
