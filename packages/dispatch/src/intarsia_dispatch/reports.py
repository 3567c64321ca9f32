"""Words for users: where a frame is, what went wrong with it, and the one warning about it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import CodeType

from intarsia_ir.errors import IntarsiaError, InternalError, UnsupportedError
from intarsia_ir.records import GraphBreak, Origin

__all__ = ["FallbackWarning", "as_intarsia_error", "break_error", "first_line", "line_of", "warn_of"]


class FallbackWarning(UserWarning):
    """A frame runs in eager where compiling it was asked for."""


def first_line(code: CodeType) -> Origin:
    """Return the line on which a function starts."""
    return Origin(code.co_filename, code.co_firstlineno, code.co_qualname)


def line_of(code: CodeType, error: BaseException | None) -> Origin:
    """Return the innermost user line that an error names, or the first line of the function."""
    return error.where[-1] if isinstance(error, IntarsiaError) and error.where else first_line(code)


def as_intarsia_error(error: Exception, code: CodeType, *, while_doing: str) -> IntarsiaError:
    """Return an error of the compiler as it is; anything else becomes an `InternalError` about it."""
    if isinstance(error, IntarsiaError):
        return error
    return InternalError(
        f"{type(error).__name__} while {while_doing} {code.co_qualname}: {error}",
        code="dispatch.internal",
        where=(first_line(code),),
    )


def break_error(code: CodeType, breaks: Sequence[GraphBreak], what: str) -> UnsupportedError:
    """Return the error for a capture with graph breaks where they aren't acceptable."""
    first = breaks[0]
    return UnsupportedError(
        f"{what}: {first.reason}",
        code=first.code,
        where=(first.origin or first_line(code),),
        hints=(first.remedy,) if first.remedy else (),
    )


def warn_of(code: CodeType, origin: Origin, what: str) -> None:
    """Warn that a frame runs in eager; the warning points to the user's line."""
    name = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
    warnings.warn_explicit(f"{name} runs in eager: {what}", FallbackWarning, origin.file, origin.line)
