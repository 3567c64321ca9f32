"""The evaluator: one frame of symbolic execution, its loop, and its exception handling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from intarsia_bytecode import Instruction, decode
from intarsia_ir.records import Source
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.kinds import generators
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.frames import Yielded
from intarsia_pyeval.values.functions import Cell, Globals
from intarsia_pyeval.values.made import Names
from intarsia_pyeval.values.mappings import Dict

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["EvaluatedFrame", "Opcode", "Pending", "Signal", "close_dropped"]


Signal = Value | Yielded | None


class Pending(Value):
    """An argument of the captured frame that nobody looked at yet: nothing is guarded."""

    __slots__ = ("real",)

    def __init__(self, real: Any, source: Source) -> None:
        self.source = source
        self.real = real

    def type(self) -> Any:
        """Return the class."""
        return type(self.real)

    def identity(self) -> object | None:
        """Return the object."""
        real: object | None = self.real
        return real


class EvaluatedFrame:
    """A frame under evaluation: locals, cells, value stack and position.

    Args:
        tx: The tracer.
        code: Its code.
        values: Parameters.
        scope: Its globals.
        closure: Cells of its free variables.
        outermost: Whether it is the captured frame.
        names: Its namespace, if it is the body of a class.
    """

    __slots__ = (
        "at",
        "cells",
        "closure",
        "code",
        "decoded",
        "gave_locals",
        "globals",
        "locals",
        "names",
        "outermost",
        "pc",
        "stack",
        "tx",
    )

    def __init__(
        self,
        tx: Tracer,
        code: CodeType,
        values: dict[str, Value],
        scope: Globals,
        closure: Sequence[Cell] = (),
        outermost: bool = False,
        names: Names | None = None,
    ) -> None:
        self.tx = tx
        self.code = code
        self.decoded = decode(code)
        self.locals = values
        self.globals = scope
        self.names = names
        self.closure = closure
        self.cells: dict[str, Cell] = {}
        self.stack: list[Value] = []
        self.pc = 0
        self.at: Instruction = self.decoded.instructions[0]
        self.outermost = outermost
        self.gave_locals: Dict | None = None  # what the traced code got that asked for them

    def run(self, table: Mapping[str, Opcode], exception: Value | None = None) -> Value | Yielded:
        """Evaluate until the frame returns or yields; `exception` is thrown in at the current instruction.

        Raises:
            Raised: The traced program raises, and the frame doesn't handle it.
        """
        tx, instructions = self.tx, self.decoded.instructions
        frames, begin, raising, outermost = tx.frames, tx.steps.begin, tx.raising, self.outermost
        if exception is not None and not self.unwind(exception):
            raise Raised(exception)
        while True:
            try:
                while True:
                    self.at = instruction = instructions[self.pc]
                    if outermost:
                        begin(self.stack, raising.handling)
                    self.pc += 1
                    signal = table[instruction.op](self, instruction)
                    if frames.open_generators:
                        close_dropped(tx, self)
                    if signal is not None:
                        return signal
            except Raised as raised:
                if not self.unwind(raised.value):
                    raise

    def read(self, name: str) -> Value | None:
        """Return a local, or None; what the frame was given is modelled at the first look."""
        value = self.locals.get(name)
        if type(value) is Pending:
            value = self.locals[name] = self.tx.live.wrap(value.real, value.source)
        return value

    def unwind(self, exception: Value) -> bool:
        """Go to the handler of the current instruction; tell whether there is one."""
        handler = self.decoded.handlers[self.at.index]
        if handler is None:
            return False
        if self.outermost:
            self.tx.raising.passed(exception)
        del self.stack[handler.depth :]
        if handler.lasti:
            self.stack.append(Const(self.at.index))
        self.stack.append(exception)
        self.pc = handler.target
        return True

    def module_name(self) -> str | None:
        """Return the name of the module whose globals the frame uses."""
        real = self.globals.real
        return real.get("__name__") if real is not None else None

    def let_go(self, generator: Value) -> None:
        """Nothing holds a generator any more whose body the frame runs."""
        self.tx.frames.drop(generator)

    def popn(self, count: int) -> list[Value]:
        """Pop `count` values, the top one last."""
        if not count:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values


Opcode = Callable[[EvaluatedFrame, Instruction], Signal]


def close_dropped(tx: Tracer, frame: EvaluatedFrame | None) -> None:
    """Close the generators that the last instruction dropped: `frame` ran it, None is the end of the capture."""
    if frame is None or frame.outermost:
        tx.steps.stack = []  # the instruction is done: it keeps nothing alive
    dropped = tx.frames.dropped
    while dropped:
        generator = dropped.pop(0)
        try:
            generators.close(tx, generator)
        except Raised as raised:
            what = raised.value.type().__name__
            raise Break("tracer.exception", f"{what} is raised while a dropped generator is closed") from None
