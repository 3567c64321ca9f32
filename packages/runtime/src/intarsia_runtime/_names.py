"""Names of a generated function: local variables for buffers and symbols, global ones for what is bound to it."""

from __future__ import annotations

import keyword
import math
import re
from typing import Any

import torch

__all__ = ["Names"]


class Names:
    """Hands out Python identifiers; names that start with "_" are ours, all others stand for buffers and symbols.

    Attributes:
        bound: The globals of the generated function.
    """

    def __init__(self) -> None:
        self.bound: dict[str, Any] = {}
        self._locals: dict[str, str] = {}
        self._used: set[str] = {"run"}

    def local(self, name: str) -> str:
        """Return the identifier of a buffer or symbol; the same one at every call."""
        identifier = self._locals.get(name)
        if identifier is None:
            identifier = re.sub(r"\W", "_", name).lstrip("_") or "t"
            if keyword.iskeyword(identifier) or identifier[0].isdigit():
                identifier = f"t_{identifier}"
            while identifier in self._used:
                identifier += "_"
            self._used.add(identifier)
            self._locals[name] = identifier
        return identifier

    def bind(self, name: str, value: Any) -> str:
        """Make `value` a global called `name`, and return the name."""
        self.bound[name] = value
        return name

    def literal(self, value: Any) -> str:
        """Return text for a Python constant; what has no exact text is bound as a global."""
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float) and math.isfinite(value):
            return repr(value)
        if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return self.bind("_" + re.sub(r"\W", "_", str(value)), value)
        return self.bind(f"_constant{len(self.bound)}", value)
