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


def load_global(f: EvaluatedFrame, i: Instruction) -> None:
    """Push a global or builtin, above it the empty slot of a call."""
    f.stack.append(global_or_builtin(f.tx, f.globals, i.value))
    if i.arg & 1:
        f.stack.append(NULL)


def load_attr(f: EvaluatedFrame, i: Instruction) -> None:
    """Read an attribute; with the flag, put the empty slot of a call above it."""
    f.stack.append(do.get_attribute(f.tx, f.stack.pop(), i.value))
    if i.arg & 1:
        f.stack.append(NULL)


def load_super_attr(f: EvaluatedFrame, i: Instruction) -> None:
    """Read an attribute of `super()`; with the flag, put the empty slot of a call above it."""
    f.stack.append(py312.super_attribute(f, i))
    if i.arg & 1:
        f.stack.append(NULL)


def call(f: EvaluatedFrame, i: Instruction) -> None:
    """Call; below the arguments lie the callable and an empty slot or a first argument."""
    _call(f, i.arg, ())


def call_kw(f: EvaluatedFrame, i: Instruction) -> None:
    """Call with the names of the last arguments on top."""
    names = cast(tuple[str, ...], f.stack.pop().as_python())
    _call(f, i.arg, names)


def _call(f: EvaluatedFrame, count: int, names: tuple[str, ...]) -> None:
    """Call with `count` arguments."""
    args = f.popn(count)
    function, first = f.popn(2)
    calls.call(f, function, args if first is NULL else [first, *args], names)


def compare_op(f: EvaluatedFrame, i: Instruction) -> None:
    """Compare; with the flag, which the decoder leaves where nothing asks for the truth next, make a bool of it."""
    operations.compare(f, _COMPARE[i.arg >> 5])
    if i.arg & _TO_BOOL:
        to_bool(f, i)


def to_bool(f: EvaluatedFrame, i: Instruction) -> None:
    """Turn the top into a bool."""
    f.stack.append(boolean(do.truth(f.tx, f.stack.pop())))


def convert_value(f: EvaluatedFrame, i: Instruction) -> None:
    """Apply the conversion of an f-string."""
    f.stack.append(formatting.format_value(f.tx, f.stack.pop(), i.arg, None))


def format_simple(f: EvaluatedFrame, i: Instruction) -> None:
    """Format a value of an f-string."""
    f.stack.append(formatting.format_value(f.tx, f.stack.pop(), 0, None))


def format_with_spec(f: EvaluatedFrame, i: Instruction) -> None:
    """Format a value of an f-string by a specification."""
    value, spec = f.popn(2)
    f.stack.append(formatting.format_value(f.tx, value, 0, spec))


def make_function(f: EvaluatedFrame, i: Instruction) -> None:
    """Make a plain function."""
    f.stack.append(calls.make_function(f, cast(CodeType, f.stack.pop().as_python())))


def set_function_attribute(f: EvaluatedFrame, i: Instruction) -> None:
    """Give a function its defaults, annotations or closure."""
    value, made = f.popn(2)
    assert isinstance(made, MadeFunction)
    if i.arg == 8:
        made.closure = tuple(cast(Cell, cell) for cell in iteration.unpack(f.tx, value))
    elif i.arg == 4:
        made.annotations = value
    elif i.arg == 2:
        made.keyword_defaults = cast(Dict, value)
    else:
        made.defaults = tuple(iteration.unpack(f.tx, value))
    f.stack.append(made)


def load_fast_load_fast(f: EvaluatedFrame, i: Instruction) -> None:
    """Push two locals."""
    f.stack.extend(variables.read_local(f, name) for name in i.value)


def store_fast_load_fast(f: EvaluatedFrame, i: Instruction) -> None:
    """Set a local, then push one."""
    py312.write_local(f, i.value[0], f.stack.pop())
    f.stack.append(variables.read_local(f, i.value[1]))


def store_fast_store_fast(f: EvaluatedFrame, i: Instruction) -> None:
    """Set two locals, the first from the top."""
    for name in i.value:
        py312.write_local(f, name, f.stack.pop())


def end_for(f: EvaluatedFrame, i: Instruction) -> None:
    """Loops jump over this."""
    f.stack.pop()


def for_iter(f: EvaluatedFrame, i: Instruction) -> None:
    """Advance the loop."""
    flow.for_iter(f, i, 2)


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
