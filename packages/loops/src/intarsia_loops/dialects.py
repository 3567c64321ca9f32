"""Which dialect the graphs of a level are in, and the check of a value by its rules."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import intarsia_ir.torch
from intarsia_ir import aten
from intarsia_ir.values import Captured, Functional, Recorded
from intarsia_loops import kernels, loops
from intarsia_loops.levels import Loops

__all__ = ["dialect_of", "verify"]


def dialect_of(level: type) -> ModuleType:
    """Return the module with `verify`, `interpret`, `print_ir` and `parse_ir` of the graphs of a level."""
    above: dict[type, ModuleType] = {Captured: intarsia_ir.torch, Loops: loops}
    return above.get(level) or (aten if issubclass(level, Recorded) else kernels)


def verify(value: Any) -> None:
    """Verify the graph of a value; that of the last level has none.

    Raises:
        VerifyError: It breaks the rules of its dialect.
    """
    if hasattr(value, "graph_module"):
        rules = {"functional": isinstance(value, Functional), "values": True} if isinstance(value, Recorded) else {}
        dialect_of(type(value)).verify(value.graph_module, **rules)
