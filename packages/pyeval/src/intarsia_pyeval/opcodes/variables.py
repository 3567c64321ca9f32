"""Constants, variables, imports, and the stack itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_pyeval.evaluate import EvaluatedFrame, Pending
from intarsia_pyeval.semantics import namespaces
from intarsia_pyeval.stores import cell_store, dict_store
from intarsia_pyeval.values.base import NULL, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.functions import Cell

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = [
    "copy",
    "copy_free_vars",
    "delete_deref",
    "delete_fast",
    "delete_global",
    "import_from",
    "import_name",
    "load_closure",
    "load_const",
    "load_deref",
    "load_fast",
    "load_global",
    "make_cell",
    "nothing",
    "pop_top",
    "push_null",
    "read_local",
    "store_deref",
    "store_fast",
    "store_global",
    "swap",
]


def nothing(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """NOP, RESUME and the like."""


def pop_top(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Drop the top."""
    frame.stack.pop()


def push_null(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push the empty slot of a call."""
    frame.stack.append(NULL)


def copy(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Copy an entry to the top."""
    frame.stack.append(frame.stack[-instruction.arg])


def swap(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Swap the top with an entry."""
    frame.stack[-instruction.arg], frame.stack[-1] = frame.stack[-1], frame.stack[-instruction.arg]


def load_const(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push a constant of the code."""
    frame.stack.append(frame.tx.live.constant(instruction.value))


def load_fast(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push a local."""
    value = frame.locals.get(instruction.value)
    frame.stack.append(read_local(frame, instruction.value) if value is None or type(value) is Pending else value)


def read_local(frame: EvaluatedFrame, name: str) -> Value:
    """Return a local."""
    value = frame.read(name)
    if value is not None:
        return value
    if name in frame.cells:  # 3.13 loads cells as if they were locals
        return frame.cells[name]
    frame.tx.raising.error(
        UnboundLocalError, f"cannot access local variable {name!r} where it is not associated with a value"
    )


def store_fast(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Set a local."""
    frame.locals[instruction.value] = frame.stack.pop()


def delete_fast(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Delete a local."""
    read_local(frame, instruction.value)
    del frame.locals[instruction.value]


def load_global(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push a global or builtin, below it the empty slot of a call."""
    value = namespaces.global_or_builtin(frame.tx, frame.globals, instruction.value)
    if instruction.arg & 1:
        frame.stack.append(NULL)
    frame.stack.append(value)


def store_global(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Set a global."""
    dict_store.store(frame.tx, frame.globals, instruction.value, Const(instruction.value), frame.stack.pop())


def delete_global(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Delete a global."""
    if dict_store.remove(frame.tx, frame.globals, instruction.value, Const(instruction.value)) is None:
        frame.tx.raising.error(NameError, f"name {instruction.value!r} is not defined")


def make_cell(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Make the cell of a variable; a parameter moves into it."""
    content = frame.read(instruction.value)
    frame.locals.pop(instruction.value, None)
    frame.cells[instruction.value] = Cell(content, frame_name=instruction.value if frame.outermost else None)


def copy_free_vars(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Take the cells of the free variables from the function."""
    frame.cells.update(zip(frame.code.co_freevars, frame.closure, strict=True))


def load_closure(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push a cell."""
    frame.stack.append(frame.cells[instruction.value])


def load_deref(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push the content of a cell."""
    frame.stack.append(
        cell_store.content_of(
            frame.tx, frame.cells[instruction.value], instruction.value, instruction.value in frame.code.co_freevars
        )
    )


def store_deref(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Set the content of a cell."""
    cell_store.fill(frame.tx.effects, frame.cells[instruction.value], frame.stack.pop())


def delete_deref(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Empty a cell."""
    cell_store.content_of(
        frame.tx, frame.cells[instruction.value], instruction.value, instruction.value in frame.code.co_freevars
    )
    cell_store.fill(frame.tx.effects, frame.cells[instruction.value], None)


def import_name(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Import a module that is loaded already."""
    level, names = frame.popn(2)
    frame.stack.append(
        namespaces.import_module(frame.tx, frame.globals, instruction.value, level.as_python(), names.as_python())
    )


def import_from(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Read a name of a module."""
    frame.stack.append(namespaces.import_from(frame.tx, frame.stack[-1], instruction.value))
