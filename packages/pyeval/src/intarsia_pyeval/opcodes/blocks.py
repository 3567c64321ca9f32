"""`with`, `raise` and `except`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Raised
from intarsia_pyeval.evaluate import EvaluatedFrame
from intarsia_pyeval.semantics import exception_groups
from intarsia_pyeval.semantics.exceptions import matches_exception, raise_statement
from intarsia_pyeval.semantics.special import special_method
from intarsia_pyeval.values.constants import NONE, boolean, is_none
from intarsia_pyeval.values.objects import Traceback

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = [
    "before_with",
    "check_eg_match",
    "check_exc_match",
    "load_assertion_error",
    "pop_except",
    "prep_reraise_star",
    "push_exc_info",
    "raise_varargs",
    "reraise",
    "with_except_start",
]


def before_with(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Enter a context manager."""
    manager = frame.stack.pop()
    enter = special_method(frame.tx, manager, "__enter__")
    frame.stack.append(special_method(frame.tx, manager, "__exit__"))
    frame.stack.append(do.call(frame.tx, enter, [], {}))


def with_except_start(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Call `__exit__` with the exception."""
    exception = frame.stack[-1]
    leave = frame.stack[-4]
    frame.stack.append(
        do.call(frame.tx, leave, [frame.tx.live.class_value(exception.type()), exception, Traceback()], {})
    )


def push_exc_info(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Begin handling the exception on top."""
    exception = frame.stack.pop()
    frame.stack.append(frame.tx.raising.handling or NONE)
    frame.stack.append(exception)
    frame.tx.raising.handling = exception


def pop_except(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """End handling."""
    before = frame.stack.pop()
    frame.tx.raising.handling = None if is_none(before) else before


def check_exc_match(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push whether the exception is of a class."""
    wanted = frame.stack.pop()
    frame.stack.append(boolean(matches_exception(frame.tx.classes, frame.stack[-1], wanted)))


def check_eg_match(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Replace an exception by what goes on and what `except*` handles, which is handled from here on."""
    raised, wanted = frame.popn(2)
    rest, matched = exception_groups.match_group(frame.tx, raised, wanted)
    frame.stack += [rest, matched]
    if not is_none(matched):
        frame.tx.raising.handling = matched


def prep_reraise_star(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Replace what was caught, and what is left of it, by what is raised behind `except*`."""
    raised, results = frame.popn(2)
    frame.stack.append(exception_groups.reraised(frame.tx, raised, results))


def reraise(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Raise the exception on top again."""
    raise Raised(frame.stack.pop())


def raise_varargs(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Model the raise statement."""
    raise_statement(frame.tx, frame.popn(instruction.arg))


def load_assertion_error(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push AssertionError."""
    frame.stack.append(frame.tx.live.class_value(AssertionError))
