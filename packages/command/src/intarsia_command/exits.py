"""What a command ends with: an exit code, and for an error a message that names what is wrong and the remedy.

0  it worked, and what was asked about is as it should be
1  it worked, and found something: results that differ, a fault, a damaged entry, a requirement that is missing
2  what was asked for can't be: an unknown command, option, pass, file or function, a text that can't be read
3  the program is legal, but can't be compiled
4  Intarsia itself is at fault
5  the script, or the program in eager, raised
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, NoReturn

import typer

from intarsia_ir.errors import IntarsiaError, InvalidArgumentError, NeedsFact, UnsupportedError, VerifyError

__all__ = ["Exit", "command", "exit_of", "of_the_program"]


class Exit(IntEnum):
    """The exit codes."""

    FINE = 0
    FOUND = 1
    USAGE = 2
    UNSUPPORTED = 3
    INTERNAL = 4
    PROGRAM = 5


def exit_of(error: IntarsiaError) -> Exit:
    """Return the exit code for an error.

    Example:
        >>> exit_of(InvalidArgumentError("no such pass", code="command.pass"))
        <Exit.USAGE: 2>
    """
    match error:
        case InvalidArgumentError():
            return Exit.USAGE
        case VerifyError():
            return Exit.FOUND
        case UnsupportedError() | NeedsFact():
            return Exit.UNSUPPORTED
    return Exit.INTERNAL


def command(function: Callable[..., Exit]) -> Callable[..., NoReturn]:
    """Return what typer calls for a command: `function`, whose errors and result become exit codes."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> NoReturn:
        try:
            code = function(*args, **kwargs)
        except IntarsiaError as error:
            print(f"intarsia: {error}", file=sys.stderr)
            code = exit_of(error)
        raise typer.Exit(int(code))

    return run


@contextmanager
def of_the_program(what: str) -> Iterator[None]:
    """Around code of the user's: what it raises is shown with its own lines, and ends the command.

    `sys.exit()` at its end is no error.
    """
    try:
        yield
    except IntarsiaError:
        raise
    except SystemExit as end:
        if end.code:
            print(f"intarsia: {what} exited with {end.code!r}", file=sys.stderr)
            raise typer.Exit(int(Exit.PROGRAM)) from end
    except Exception as error:
        lines = traceback.extract_tb(error.__traceback__)
        theirs = [line for line in lines if "intarsia_command" not in line.filename and "<frozen" not in line.filename]
        print("".join(traceback.format_list(theirs)) + f"{type(error).__name__}: {error}", file=sys.stderr)
        print(f"intarsia: {what} raised; run it without intarsia first", file=sys.stderr)
        raise typer.Exit(int(Exit.PROGRAM)) from error
