"""The frames under evaluation, and how far evaluating them may go."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from intarsia_ir.records import Origin
from intarsia_pyeval.breaks import Break, Raised, TooDeep
from intarsia_pyeval.trust import is_installed_file, is_trusted
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.frames import Frame, Yielded
from intarsia_pyeval.values.iterators import Generator

__all__ = ["Frames", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How far one capture goes.

    Args:
        depth: Nested calls that are inlined; never more than eager itself could nest.
        instructions: Instructions of loops and calls that are evaluated, roughly.
    """

    depth: int = 5000
    instructions: int = 2_000_000


class Frames:
    """The stack of frames.

    Args:
        table: Opcode name -> handler.
        limits: How far to go.
        room: Frames that the program may nest before CPython raises RecursionError.

    Attributes:
        stack: The frames, the outermost one first.
        passed_over: Frames that eager has in between, and that aren't evaluated.
        open_generators: Whether some generator was suspended where closing it has an effect.
        coroutines: All that were made; one that is never awaited is CPython's to complain about.
        dropped: Generators that nothing holds any more; they are closed after the instruction.
    """

    def __init__(self, table: Mapping[str, Callable[..., Any]], limits: Limits, room: int = sys.maxsize) -> None:
        self.stack: list[Frame] = []
        self.passed_over = 0
        self.open_generators = False
        self.dropped: list[Any] = []
        self.coroutines: list[Any] = []
        self._table = table
        self._limits = limits
        self._room = room
        self._budget = limits.instructions

    def top(self) -> Frame:
        """Return the frame that is being evaluated."""
        return self.stack[-1]

    def spend(self, instructions: int) -> None:
        """Count evaluated instructions against the budget.

        Raises:
            Break: They are too many.
        """
        self._budget -= instructions
        if self._budget < 0:
            raise Break("tracer.budget", f"more than {self._limits.instructions} instructions were evaluated")

    def check_depth(self, what: str) -> None:
        """See that one more frame fits.

        Raises:
            TooDeep: It doesn't.
        """
        depth = len(self.stack)
        if depth + self.passed_over >= self._room:
            raise TooDeep("tracer.exception", f"RecursionError is raised: calls nest {depth} deep at {what}")
        if depth >= self._limits.depth:
            raise TooDeep("tracer.depth", f"calls nest {depth} deep at {what}")

    def origin(self) -> Origin | None:
        """Return the user line being evaluated: the innermost one that isn't library code, if there is any."""
        if not self.stack:
            return None
        first: Frame | None = None  # where all lines are libraries'
        for frame in reversed(self.stack):  # each operation asks, and stacks are deep
            if is_trusted(frame.module_name()):
                continue
            if not is_installed_file(frame.code.co_filename):
                break
            first = first or frame
        else:
            frame = first or self.stack[-1]
        return Origin(frame.code.co_filename, frame.at.line, frame.code.co_qualname)

    # -- evaluation ----------------------------------------------------------------------------------------------

    def run_outermost(self, frame: Frame) -> Value:
        """Evaluate the captured frame to its return; it stays on the stack."""
        self.stack.append(frame)
        returned = frame.run(self._table)
        assert isinstance(returned, Value)
        return returned

    def leave_inlined(self) -> None:
        """Only the outermost frame goes on."""
        del self.stack[1:]

    def run(self, frame: Frame) -> Value:
        """Evaluate an inlined frame to its return."""
        self.stack.append(frame)
        try:
            returned = frame.run(self._table)
        except Break as broken:
            broken.leave(frame.code, self.origin())
            raise
        except Raised as raised:
            held = (*frame.stack, *frame.locals.values()) if self.open_generators else ()
            if any(isinstance(value, Generator) and value.is_open() for value in held):
                # the traceback keeps them alive, for nobody knows how long
                raise Break("tracer.exception", f"{raised.value.describe()} passes open generators") from None
            raise
        finally:
            self.stack.pop()
        assert isinstance(returned, Value)
        return returned

    def resume(self, frame: Frame, exception: Value | None) -> tuple[bool, Value]:
        """Run a generator's frame on; tell whether it yielded, and what."""
        self.check_depth("a generator")
        self.stack.append(frame)
        try:
            outcome = frame.run(self._table, exception)
        except Break as broken:
            broken.leave(frame.code, self.origin())
            raise
        finally:
            self.stack.pop()
        return (True, outcome.value) if isinstance(outcome, Yielded) else (False, outcome)

    def drop(self, generator: Value) -> None:
        """Note that nothing holds a generator any more, unless the capture is over."""
        if "dropped" in vars(self):
            self.dropped.append(generator)
