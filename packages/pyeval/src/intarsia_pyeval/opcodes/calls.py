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


def call(f: EvaluatedFrame, function: Value, args: list[Value], names: tuple[str, ...]) -> None:
    """Call; the last arguments are named."""
    keywords = {}
    if names:
        keywords = dict(zip(names, args[-len(names) :], strict=True))
        args = args[: -len(names)]
    f.stack.append(do.call(f.tx, function, args, keywords))


def call_function_ex(f: EvaluatedFrame, i: Instruction) -> None:
    """Call with an iterable of arguments and a mapping of keywords."""
    keywords: dict[str, Value] = {}
    if i.arg & 1:
        for hashed, _, value in iteration.pairs(f.tx, building._mapping(f)):
            if not isinstance(hashed, str):
                raise Break("tracer.exception", "keywords must be strings")
            keywords[hashed] = value
    given = f.stack.pop()
    if not any(f.tx.classes.find(given.type(), name) for name in ("__iter__", "__getitem__")):
        raise Break("tracer.exception", f"{given.describe()} stands behind *")
    args = iteration.taken(f.tx, given)
    one, other = f.popn(2)
    f.stack.append(do.call(f.tx, one if other is NULL else other, args, keywords))


def make_function(f: EvaluatedFrame, code: Any) -> Any:
    """Make a function without defaults."""
    return MadeFunction(code, f.globals)
