"""Instructions that end a graph, each with its reason."""

from __future__ import annotations

import dis
from types import MappingProxyType
from typing import TYPE_CHECKING

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.evaluate import EvaluatedFrame, Opcode, Signal

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = ["BREAKS", "raise_break"]


_ASYNC = "asynchronous generators aren't captured"

BREAKS = MappingProxyType(
    {
        "ASYNC_GEN_WRAP": _ASYNC,
        "EXIT_INIT_CHECK": "only CPython's own shortcut for constructors runs it",
        "IMPORT_STAR": "a module's names are imported in CPython",
        "PRINT_EXPR": "only an interactive session runs it",
    }
)


def raise_break() -> dict[str, Opcode]:
    """Return handlers that break, for those instructions above that the running Python has."""
    return {name: _handler(name, reason) for name, reason in BREAKS.items() if name in dis.opmap}


def _handler(name: str, reason: str) -> Opcode:
    """Return a handler that breaks."""

    def handler(frame: EvaluatedFrame, instruction: Instruction) -> Signal:
        raise Break("tracer.opcode", f"{name}: {reason}")

    return handler
