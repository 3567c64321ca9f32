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


def load_build_class(f: EvaluatedFrame, i: Instruction) -> None:
    """Push what makes classes."""
    f.stack.append(f.tx.live.wrap(builtins.__build_class__, None))


def load_name(f: EvaluatedFrame, i: Instruction) -> None:
    """Push a variable of the class, a global or a builtin."""
    found = dict_store.find(f.tx, _names(f), i.value)
    f.stack.append(namespaces.global_or_builtin(f.tx, f.globals, i.value) if found is None else found)


def store_name(f: EvaluatedFrame, i: Instruction) -> None:
    """Set a variable of the class; what a metaclass prepared may make something else of the value."""
    names, value = _names(f), f.stack.pop()
    if names.prepared is not None:
        real = stand_ins.stand_in(f.tx, value)
        if stand_ins.held_in(real) is not None:
            raise Break("tracer.call", f"an enumeration is made of {value.describe()}")
        names.prepared[i.value] = real
        if names.prepared.get(i.value, real) is not real:
            value = f.tx.live.from_python(names.prepared[i.value])
    dict_store.store(f.tx, names, i.value, Const(i.value), value)


def delete_name(f: EvaluatedFrame, i: Instruction) -> None:
    """Delete a variable of the class."""
    names = _names(f)
    if names.prepared is not None:
        raise Break("tracer.opcode", f"{i.value!r} is deleted in the body of a class whose metaclass sees it")
    if dict_store.remove(f.tx, names, i.value, Const(i.value)) is None:
        f.tx.raising.error(NameError, f"name {i.value!r} is not defined")


def setup_annotations(f: EvaluatedFrame, i: Instruction) -> None:
    """Make the dict of annotations, unless there is one."""
    names = _names(f)
    if dict_store.find(f.tx, names, "__annotations__") is None:
        if names.prepared is not None:
            raise Break("tracer.opcode", "annotations in the body of a class whose metaclass sees them")
        dict_store.store(f.tx, names, "__annotations__", Const("__annotations__"), Dict())


def load_classderef(f: EvaluatedFrame, i: Instruction) -> None:
    """Push a variable of the class, or what a cell holds."""
    found = dict_store.find(f.tx, _names(f), i.value)
    if found is not None:
        f.stack.append(found)
    else:
        variables.load_deref(f, i)


def load_locals(f: EvaluatedFrame, i: Instruction) -> None:
    """Push the namespace."""
    f.stack.append(_names(f))


def load_from_dict_or_deref(f: EvaluatedFrame, i: Instruction) -> None:
    """Replace a namespace by what it or a cell holds."""
    found = _found(f, f.stack.pop(), i.value)
    if found is not None:
        f.stack.append(found)
    else:
        variables.load_deref(f, i)


def load_from_dict_or_globals(f: EvaluatedFrame, i: Instruction) -> None:
    """Replace a namespace by what it, the globals or the builtins hold."""
    found = _found(f, f.stack.pop(), i.value)
    f.stack.append(namespaces.global_or_builtin(f.tx, f.globals, i.value) if found is None else found)


def _names(f: EvaluatedFrame) -> Names:
    """Return the namespace of the class.

    Raises:
        Break: The frame is another's, such as that of a module.
    """
    if f.names is None:
        raise Break("tracer.opcode", "names of a frame that is no body of a class")
    return f.names


def _found(f: EvaluatedFrame, names: Value, name: str) -> Value | None:
    """Look a name up in a namespace."""
    if not isinstance(names, Dict):
        raise Break("tracer.opcode", f"{name!r} is looked up in {names.describe()}")
    return dict_store.find(f.tx, names, name)
