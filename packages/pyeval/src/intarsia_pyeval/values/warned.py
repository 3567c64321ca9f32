"""A warning that the program gives, carried out behind the graph."""

from __future__ import annotations

from typing import Any

from intarsia_pyeval.values.base import Value

__all__ = ["Warned"]


class Warned(Value):
    """One call of `warnings.warn`, with the place that it names.

    Args:
        message: The text.
        category: The class of the warning.
        file: The file of the frame that is named.
        line: Its line.
        names: Its globals, which keep what was warned of before.
    """

    __slots__ = ("category", "file", "line", "message", "names")

    def __init__(self, message: str, category: Any, file: str, line: int, names: dict[str, Any]) -> None:
        self.source = None
        self.message = message
        self.category = category
        self.file = file
        self.line = line
        self.names = names

    def type(self) -> Any:
        """No object of the program is of this class."""
        return Warned

    def identity(self) -> object | None:
        """It has effects outside of the frame."""
        return self
