"""What the interpreters tell of each step: a debugger stops there, a test counts them. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from intarsia_ir.records import Origin

__all__ = ["Step", "Watch"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a program, just done.

    Args:
        text: It in the program's text: a line, or several.
        made: Name -> value of what it made: tensors, numbers, what else a node may give.
        known: Name -> value of all that has one now, `made` included. It may change with the next step.
        origins: The user's lines that it comes from.
        depth: 0 for a step of the program, from 1 on for what is inside of one, such as a statement of a launch.
    """

    text: str
    made: Mapping[str, Any]
    known: Mapping[str, Any]
    origins: tuple[Origin, ...] = ()
    depth: int = 0


Watch = Callable[[Step], None]
