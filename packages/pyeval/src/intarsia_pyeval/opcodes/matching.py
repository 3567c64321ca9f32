"""`match`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.evaluate import EvaluatedFrame
from intarsia_pyeval.semantics import iteration, patterns
from intarsia_pyeval.values.constants import NONE, boolean
from intarsia_pyeval.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = ["match_class", "match_keys", "match_mapping", "match_sequence"]


def match_mapping(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push whether the top is a mapping."""
    frame.stack.append(boolean(bool(frame.stack[-1].type().__flags__ & (1 << 6))))


def match_sequence(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push whether the top is a sequence."""
    frame.stack.append(boolean(bool(frame.stack[-1].type().__flags__ & (1 << 5))))


def match_keys(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push the values of keys, or None."""
    subject, keys = frame.stack[-2], frame.stack[-1]
    values = []
    wanted = iteration.unpack(frame.tx, keys)
    if len({do.hash_key(frame.tx, key) for key in wanted}) != len(wanted):
        raise Break("tracer.exception", "a mapping pattern repeats a key")
    for key in wanted:
        if not do.contains(frame.tx, subject, key):
            frame.stack.append(NONE)
            return
        values.append(do.get_item(frame.tx, subject, key))
    frame.stack.append(Tuple(values))


def match_class(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push the attributes of a class pattern, or None."""
    subject, cls, names = frame.popn(3)
    frame.stack.append(patterns.match_class(frame.tx, subject, cls, instruction.arg, iteration.unpack(frame.tx, names)))
