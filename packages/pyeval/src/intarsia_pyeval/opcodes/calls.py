"""Calling, and making functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.evaluate import EvaluatedFrame
from intarsia_pyeval.opcodes import building
from intarsia_pyeval.semantics import iteration
from intarsia_pyeval.values.base import NULL, Value
from intarsia_pyeval.values.functions import MadeFunction

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = ["call", "call_function_ex", "make_function"]


def call(frame: EvaluatedFrame, function: Value, args: list[Value], names: tuple[str, ...]) -> None:
    """Call; the last arguments are named."""
    keywords = {}
    if names:
        keywords = dict(zip(names, args[-len(names) :], strict=True))
        args = args[: -len(names)]
    frame.stack.append(do.call(frame.tx, function, args, keywords))


def call_function_ex(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Call with an iterable of arguments and a mapping of keywords."""
    keywords: dict[str, Value] = {}
    if instruction.arg & 1:
        for hashed, _, value in iteration.pairs(frame.tx, building._mapping(frame)):
            if not isinstance(hashed, str):
                raise Break("tracer.exception", "keywords must be strings")
            keywords[hashed] = value
    given = frame.stack.pop()
    if not any(frame.tx.classes.find(given.type(), name) for name in ("__iter__", "__getitem__")):
        raise Break("tracer.exception", f"{given.describe()} stands behind *")
    args = iteration.taken(frame.tx, given)
    one, other = frame.popn(2)
    frame.stack.append(do.call(frame.tx, one if other is NULL else other, args, keywords))


def make_function(frame: EvaluatedFrame, code: Any) -> Any:
    """Make a function without defaults."""
    return MadeFunction(code, frame.globals)
