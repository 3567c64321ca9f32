"""Writing instructions: what is spelled differently in CPython 3.11, 3.12 and 3.13 has one name here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from bytecode import BinaryOp, Instr, Label
from bytecode.instr import CellVar, FreeVar, InstrLocation

__all__ = ["Loader", "Writer", "parameters"]

#: Emits instructions that push one object.
Loader = Callable[[], None]
_ARITHMETIC = {"+": BinaryOp.ADD, "-": BinaryOp.SUBTRACT, "*": BinaryOp.MULTIPLY, "/": BinaryOp.TRUE_DIVIDE}
_311 = sys.version_info < (3, 12)
_313 = sys.version_info >= (3, 13)


class Writer:
    """Appends instructions to `body`.

    Args:
        code: The code whose frame the instructions run in: it names the cells and free variables.
        line: Line that they get; `location`, if given, says more.
        location: Line and columns that they get.
    """

    def __init__(self, code: CodeType, line: int = 0, location: InstrLocation | None = None) -> None:
        self.code = code
        self.location = location or InstrLocation(line, None, None, None)
        self.body: list[Any] = []  # instructions, and labels among them
        self.used_cells: set[str] = set()  # cells of the frame that are handed on
        self._out = self.body
        self._count = 0

    def emit(self, op: str, *arg: Any) -> None:
        """Append one instruction."""
        self._out.append(Instr(op, *arg, location=self.location))

    def temporary(self) -> str:
        """Return the name of a new local."""
        self._count += 1
        return f"__tmp_{self._count - 1}"

    def temporaries(self) -> list[str]:
        """Return the names of all locals made so far."""
        return [f"__tmp_{number}" for number in range(self._count)]

    def arithmetic(self, op: str) -> None:
        """Replace two numbers on top by the result of an operator, or one by its negative."""
        if op == "neg":
            self.emit("UNARY_NEGATIVE")
        else:
            self.emit("BINARY_OP", _ARITHMETIC[op])

    def load_attribute(self, name: str) -> None:
        """Replace the top by its attribute."""
        self.emit("LOAD_ATTR", name if _311 else (False, name))

    # -- calls ---------------------------------------------------------------------------------------------------

    def call(self, function: Loader, args: Sequence[Loader], before: Sequence[Loader] = ()) -> None:
        """Push the result of a call; `before` is emitted when its arguments lie on the stack."""
        self.push_callable(function)
        for arg in args:
            arg()
        for other in before:
            other()
        self.finish_call(len(args))

    def push_callable(self, function: Loader) -> None:
        """Push what is to be called, and the empty slot that belongs to it."""
        if not _313:
            self.emit("PUSH_NULL")
        function()
        if _313:
            self.emit("PUSH_NULL")

    def finish_call(self, count: int) -> None:
        """Call with what lies on the stack."""
        if _311:
            self.emit("PRECALL", count)
        self.emit("CALL", count)

    def call_method(self, name: str, args: Sequence[Loader]) -> None:
        """Replace the top by the result of its method."""
        self.emit("LOAD_METHOD" if _311 else "LOAD_ATTR", name if _311 else (True, name))
        for arg in args:
            arg()
        self.finish_call(len(args))

    def set_state(self, at: Loader) -> None:
        """Set the position of the iterator on top."""
        self.emit("COPY", 1)
        self.call_method("__setstate__", [at])
        self.emit("POP_TOP")

    def emit_function(self, code: CodeType, flags: int) -> None:
        """Make a function of what lies on the stack: defaults (1), keyword defaults (2), annotations (4), cells (8)."""
        self.emit("LOAD_CONST", code)
        if not _313:
            self.emit("MAKE_FUNCTION", flags)
            return
        self.emit("MAKE_FUNCTION")
        for flag in (8, 4, 2, 1):
            if flags & flag:
                self.emit("SET_FUNCTION_ATTRIBUTE", flag)

    def jump_if_none(self, label: Label) -> None:
        """Pop the top, and go on at a label further on if it is None."""
        self.emit("POP_JUMP_FORWARD_IF_NONE" if _311 else "POP_JUMP_IF_NONE", label)

    # -- the frame's own variables -------------------------------------------------------------------------------

    def variable(self, name: str) -> CellVar | FreeVar:
        """Return how the assembler names a cell or free variable of the frame."""
        return FreeVar(name) if name in self.code.co_freevars else CellVar(name)

    def closure_cell(self, name: str) -> None:
        """Push a cell of the frame."""
        self.used_cells.add(name)
        self.push_cell(self.variable(name))

    def push_cell(self, cell: CellVar | FreeVar) -> None:
        """Push a cell itself, not what it holds."""
        self.emit("LOAD_FAST" if _313 else "LOAD_CLOSURE", cell)


def parameters(code: CodeType) -> tuple[str, ...]:
    """Return the names of all parameters, `*args` and `**kwargs` included."""
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return code.co_varnames[:count]
