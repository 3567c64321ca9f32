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


def match_mapping(f: EvaluatedFrame, i: Instruction) -> None:
    """Push whether the top is a mapping."""
    f.stack.append(boolean(bool(f.stack[-1].type().__flags__ & (1 << 6))))


def match_sequence(f: EvaluatedFrame, i: Instruction) -> None:
    """Push whether the top is a sequence."""
    f.stack.append(boolean(bool(f.stack[-1].type().__flags__ & (1 << 5))))


def match_keys(f: EvaluatedFrame, i: Instruction) -> None:
    """Push the values of keys, or None."""
    subject, keys = f.stack[-2], f.stack[-1]
    found = []
    wanted = iteration.unpack(f.tx, keys)
    if len({do.hash_key(f.tx, key) for key in wanted}) != len(wanted):
        raise Break("tracer.exception", "a mapping pattern repeats a key")
    for key in wanted:
        if not do.contains(f.tx, subject, key):
            f.stack.append(NONE)
            return
        found.append(do.get_item(f.tx, subject, key))
    f.stack.append(Tuple(found))


def match_class(f: EvaluatedFrame, i: Instruction) -> None:
    """Push the attributes of a class pattern, or None."""
    subject, cls, names = f.popn(3)
    f.stack.append(patterns.match_class(f.tx, subject, cls, i.arg, iteration.unpack(f.tx, names)))
