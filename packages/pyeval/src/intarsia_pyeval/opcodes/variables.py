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


def nothing(f: EvaluatedFrame, i: Instruction) -> None:
    """NOP, RESUME and the like."""


def pop_top(f: EvaluatedFrame, i: Instruction) -> None:
    """Drop the top."""
    f.stack.pop()


def push_null(f: EvaluatedFrame, i: Instruction) -> None:
    """Push the empty slot of a call."""
    f.stack.append(NULL)


def copy(f: EvaluatedFrame, i: Instruction) -> None:
    """Copy an entry to the top."""
    f.stack.append(f.stack[-i.arg])


def swap(f: EvaluatedFrame, i: Instruction) -> None:
    """Swap the top with an entry."""
    f.stack[-i.arg], f.stack[-1] = f.stack[-1], f.stack[-i.arg]


def load_const(f: EvaluatedFrame, i: Instruction) -> None:
    """Push a constant of the code."""
    f.stack.append(f.tx.live.constant(i.value))


def load_fast(f: EvaluatedFrame, i: Instruction) -> None:
    """Push a local."""
    found = f.locals.get(i.value)
    f.stack.append(read_local(f, i.value) if found is None or type(found) is Pending else found)


def read_local(f: EvaluatedFrame, name: str) -> Value:
    """Return a local."""
    found = f.read(name)
    if found is not None:
        return found
    if name in f.cells:  # 3.13 loads cells as if they were locals
        return f.cells[name]
    f.tx.raising.error(
        UnboundLocalError, f"cannot access local variable {name!r} where it is not associated with a value"
    )


def store_fast(f: EvaluatedFrame, i: Instruction) -> None:
    """Set a local."""
    f.locals[i.value] = f.stack.pop()


def delete_fast(f: EvaluatedFrame, i: Instruction) -> None:
    """Delete a local."""
    read_local(f, i.value)
    del f.locals[i.value]


def load_global(f: EvaluatedFrame, i: Instruction) -> None:
    """Push a global or builtin, below it the empty slot of a call."""
    found = namespaces.global_or_builtin(f.tx, f.globals, i.value)
    if i.arg & 1:
        f.stack.append(NULL)
    f.stack.append(found)


def store_global(f: EvaluatedFrame, i: Instruction) -> None:
    """Set a global."""
    dict_store.store(f.tx, f.globals, i.value, Const(i.value), f.stack.pop())


def delete_global(f: EvaluatedFrame, i: Instruction) -> None:
    """Delete a global."""
    if dict_store.remove(f.tx, f.globals, i.value, Const(i.value)) is None:
        f.tx.raising.error(NameError, f"name {i.value!r} is not defined")


def make_cell(f: EvaluatedFrame, i: Instruction) -> None:
    """Make the cell of a variable; a parameter moves into it."""
    content = f.read(i.value)
    f.locals.pop(i.value, None)
    f.cells[i.value] = Cell(content, frame_name=i.value if f.outermost else None)


def copy_free_vars(f: EvaluatedFrame, i: Instruction) -> None:
    """Take the cells of the free variables from the function."""
    f.cells.update(zip(f.code.co_freevars, f.closure, strict=True))


def load_closure(f: EvaluatedFrame, i: Instruction) -> None:
    """Push a cell."""
    f.stack.append(f.cells[i.value])


def load_deref(f: EvaluatedFrame, i: Instruction) -> None:
    """Push the content of a cell."""
    f.stack.append(cell_store.content_of(f.tx, f.cells[i.value], i.value, i.value in f.code.co_freevars))


def store_deref(f: EvaluatedFrame, i: Instruction) -> None:
    """Set the content of a cell."""
    cell_store.fill(f.tx.effects, f.cells[i.value], f.stack.pop())


def delete_deref(f: EvaluatedFrame, i: Instruction) -> None:
    """Empty a cell."""
    cell_store.content_of(f.tx, f.cells[i.value], i.value, i.value in f.code.co_freevars)
    cell_store.fill(f.tx.effects, f.cells[i.value], None)


def import_name(f: EvaluatedFrame, i: Instruction) -> None:
    """Import a module that is loaded already."""
    level, names = f.popn(2)
    f.stack.append(namespaces.import_module(f.tx, f.globals, i.value, level.as_python(), names.as_python()))


def import_from(f: EvaluatedFrame, i: Instruction) -> None:
    """Read a name of a module."""
    f.stack.append(namespaces.import_from(f.tx, f.stack[-1], i.value))
