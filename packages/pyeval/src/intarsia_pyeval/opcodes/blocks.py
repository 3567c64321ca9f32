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


def before_with(f: EvaluatedFrame, i: Instruction) -> None:
    """Enter a context manager."""
    manager = f.stack.pop()
    enter = special_method(f.tx, manager, "__enter__")
    f.stack.append(special_method(f.tx, manager, "__exit__"))
    f.stack.append(do.call(f.tx, enter, [], {}))


def with_except_start(f: EvaluatedFrame, i: Instruction) -> None:
    """Call `__exit__` with the exception."""
    exception = f.stack[-1]
    leave = f.stack[-4]
    f.stack.append(do.call(f.tx, leave, [f.tx.live.class_value(exception.type()), exception, Traceback()], {}))


def push_exc_info(f: EvaluatedFrame, i: Instruction) -> None:
    """Begin handling the exception on top."""
    exception = f.stack.pop()
    f.stack.append(f.tx.raising.handling or NONE)
    f.stack.append(exception)
    f.tx.raising.handling = exception


def pop_except(f: EvaluatedFrame, i: Instruction) -> None:
    """End handling."""
    before = f.stack.pop()
    f.tx.raising.handling = None if is_none(before) else before


def check_exc_match(f: EvaluatedFrame, i: Instruction) -> None:
    """Push whether the exception is of a class."""
    wanted = f.stack.pop()
    f.stack.append(boolean(matches_exception(f.tx.classes, f.stack[-1], wanted)))


def check_eg_match(f: EvaluatedFrame, i: Instruction) -> None:
    """Replace an exception by what goes on and what `except*` handles, which is handled from here on."""
    raised, wanted = f.popn(2)
    rest, matched = exception_groups.match_group(f.tx, raised, wanted)
    f.stack += [rest, matched]
    if not is_none(matched):
        f.tx.raising.handling = matched


def prep_reraise_star(f: EvaluatedFrame, i: Instruction) -> None:
    """Replace what was caught, and what is left of it, by what is raised behind `except*`."""
    raised, results = f.popn(2)
    f.stack.append(exception_groups.reraised(f.tx, raised, results))


def reraise(f: EvaluatedFrame, i: Instruction) -> None:
    """Raise the exception on top again."""
    raise Raised(f.stack.pop())


def raise_varargs(f: EvaluatedFrame, i: Instruction) -> None:
    """Model the raise statement."""
    raise_statement(f.tx, f.popn(i.arg))


def load_assertion_error(f: EvaluatedFrame, i: Instruction) -> None:
    """Push AssertionError."""
    f.stack.append(f.tx.live.class_value(AssertionError))
