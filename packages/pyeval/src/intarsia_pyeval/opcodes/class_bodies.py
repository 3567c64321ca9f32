"""Bodies of classes: names are looked up in the namespace of the class first."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.evaluate import EvaluatedFrame
from intarsia_pyeval.opcodes import variables
from intarsia_pyeval.semantics import namespaces, stand_ins
from intarsia_pyeval.stores import dict_store
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.made import Names
from intarsia_pyeval.values.mappings import Dict

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = [
    "delete_name",
    "load_build_class",
    "load_classderef",
    "load_from_dict_or_deref",
    "load_from_dict_or_globals",
    "load_locals",
    "load_name",
    "setup_annotations",
    "store_name",
]


def load_build_class(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push what makes classes."""
    frame.stack.append(frame.tx.live.wrap(builtins.__build_class__, None))


def load_name(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push a variable of the class, a global or a builtin."""
    value = dict_store.find(frame.tx, _names(frame), instruction.value)
    frame.stack.append(
        namespaces.global_or_builtin(frame.tx, frame.globals, instruction.value) if value is None else value
    )


def store_name(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Set a variable of the class; what a metaclass prepared may make something else of the value."""
    names, value = _names(frame), frame.stack.pop()
    if names.prepared is not None:
        real = stand_ins.stand_in(frame.tx, value)
        if stand_ins.held_in(real) is not None:
            raise Break("tracer.call", f"an enumeration is made of {value.describe()}")
        names.prepared[instruction.value] = real
        if names.prepared.get(instruction.value, real) is not real:
            value = frame.tx.live.from_python(names.prepared[instruction.value])
    dict_store.store(frame.tx, names, instruction.value, Const(instruction.value), value)


def delete_name(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Delete a variable of the class."""
    names = _names(frame)
    if names.prepared is not None:
        raise Break("tracer.opcode", f"{instruction.value!r} is deleted in the body of a class whose metaclass sees it")
    if dict_store.remove(frame.tx, names, instruction.value, Const(instruction.value)) is None:
        frame.tx.raising.error(NameError, f"name {instruction.value!r} is not defined")


def setup_annotations(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Make the dict of annotations, unless there is one."""
    names = _names(frame)
    if dict_store.find(frame.tx, names, "__annotations__") is None:
        if names.prepared is not None:
            raise Break("tracer.opcode", "annotations in the body of a class whose metaclass sees them")
        dict_store.store(frame.tx, names, "__annotations__", Const("__annotations__"), Dict())


def load_classderef(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push a variable of the class, or what a cell holds."""
    value = dict_store.find(frame.tx, _names(frame), instruction.value)
    if value is not None:
        frame.stack.append(value)
    else:
        variables.load_deref(frame, instruction)


def load_locals(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push the namespace."""
    frame.stack.append(_names(frame))


def load_from_dict_or_deref(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Replace a namespace by what it or a cell holds."""
    value = _found(frame, frame.stack.pop(), instruction.value)
    if value is not None:
        frame.stack.append(value)
    else:
        variables.load_deref(frame, instruction)


def load_from_dict_or_globals(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Replace a namespace by what it, the globals or the builtins hold."""
    value = _found(frame, frame.stack.pop(), instruction.value)
    frame.stack.append(
        namespaces.global_or_builtin(frame.tx, frame.globals, instruction.value) if value is None else value
    )


def _names(frame: EvaluatedFrame) -> Names:
    """Return the namespace of the class.

    Raises:
        Break: The frame is another's, such as that of a module.
    """
    if frame.names is None:
        raise Break("tracer.opcode", "names of a frame that is no body of a class")
    return frame.names


def _found(frame: EvaluatedFrame, names: Value, name: str) -> Value | None:
    """Look a name up in a namespace."""
    if not isinstance(names, Dict):
        raise Break("tracer.opcode", f"{name!r} is looked up in {names.describe()}")
    return dict_store.find(frame.tx, names, name)
