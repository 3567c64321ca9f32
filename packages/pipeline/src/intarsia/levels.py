"""The levels of a program, in flow order: what the stages of a pipeline take and give.

Captured -> Recorded -> Functional -> Partition[Half] -> Partition[Loops] -> Partition[Kernels]
    -> Partition[Launched] -> Partition[Emitted] -> Partition[Linked]
"""

from types import ModuleType
from typing import Any

import intarsia_ir.aten
import intarsia_ir.torch
import intarsia_loops
from intarsia_ir.values import Captured, Functional, Half, Partition, Recorded
from intarsia_loops import Emitted, Kernels, Launched, Loops
from intarsia_runtime import Linked

__all__ = [
    "Captured",
    "Emitted",
    "Functional",
    "Half",
    "Kernels",
    "Launched",
    "Linked",
    "Loops",
    "Partition",
    "Recorded",
    "dialect_of",
    "verify",
]


def dialect_of(level: type) -> ModuleType:
    """Return the module with `verify`, `interpret`, `print_ir` and `parse_ir` of the graphs of a level."""
    above = {Captured: intarsia_ir.torch, Loops: intarsia_loops.loops}
    return above.get(level) or (intarsia_ir.aten if issubclass(level, Recorded) else intarsia_loops.kernels)


def verify(value: Any) -> None:
    """Verify the graph of a value of any level but the last, which is none.

    Raises:
        VerifyError: It breaks the rules of its dialect.
    """
    if not isinstance(value, Linked):
        aten = isinstance(value, Recorded)
        rules = {"functional": isinstance(value, Functional), "values": True} if aten else {}
        dialect_of(type(value)).verify(value.graph_module, **rules)
