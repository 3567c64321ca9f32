"""What values and the stack of frames know of a frame under evaluation."""

from __future__ import annotations

from types import CodeType
from typing import Any, Protocol

from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.mappings import Dict

__all__ = ["Frame", "Yielded"]


class Yielded:
    """What a frame gives when it yields instead of returning."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class Frame(Protocol):
    """A frame under evaluation.

    Attributes:
        code: Its code.
        decoded: Its instructions and handlers.
        at: The current instruction.
        pc: Index of the next instruction.
        stack: Its value stack.
        locals: Its variables.
        cells: Those of them that functions share.
        outermost: Whether it is the captured frame.
        globals: Its globals.
        gave_locals: The dict in which the traced code got them, where later answers are the same one.
    """

    code: CodeType
    decoded: Any
    at: Any
    pc: int
    stack: list[Value]
    locals: dict[str, Value]
    cells: dict[str, Any]
    outermost: bool
    globals: Any
    gave_locals: Dict | None

    def run(self, table: Any, exception: Value | None = None) -> Value | Yielded:
        """Evaluate until the frame returns or yields; `exception` is thrown in at the current instruction."""

    def module_name(self) -> str | None:
        """Return the name of the module whose globals the frame uses."""

    def let_go(self, generator: Value) -> None:
        """Nothing holds a generator any more whose body the frame runs."""

    def read(self, name: str) -> Value | None:
        """Return a local, or None; what the frame was given is modelled at the first look."""
