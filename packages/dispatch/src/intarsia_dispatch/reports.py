"""Words for users: where a frame is, what became of it, what went wrong with it, and the one warning about it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import fields
from enum import Enum
from types import CodeType

import torch

from intarsia_dispatch.events import EventKind, FrameEvent
from intarsia_ir.dtypes import dtype_name
from intarsia_ir.errors import IntarsiaError, InternalError, RuntimeFault, UnsupportedError, raised_by
from intarsia_ir.guards import AliasingGuard, TensorGuard
from intarsia_ir.records import GraphBreak, GuardRecord, Origin, Source
from intarsia_ir.where import user_frame

__all__ = [
    "FallbackWarning",
    "as_intarsia_error",
    "break_error",
    "compilers_fault",
    "describe_frame",
    "describe_guard",
    "first_line",
    "line_of",
    "warn_of",
]

_TORCH = os.path.dirname(torch.__file__) + os.sep


class FallbackWarning(UserWarning):
    """A frame runs in eager where compiling it was asked for."""


def first_line(code: CodeType) -> Origin:
    """Return the line on which a function starts."""
    return Origin(code.co_filename, code.co_firstlineno, code.co_qualname)


def line_of(code: CodeType, error: BaseException | None) -> Origin:
    """Return the innermost user line that an error names, or the first line of the function."""
    return error.where[-1] if isinstance(error, IntarsiaError) and error.where else first_line(code)


def as_intarsia_error(error: Exception, code: CodeType, *, while_doing: str) -> IntarsiaError:
    """Return an error of the compiler as it is; anything else becomes an `InternalError` about it.

    But for a `RecursionError`: how much stack is left is the caller's matter. And for an error of code that was given
    to the compiler, which is no fault of ours.
    """
    if isinstance(error, IntarsiaError):
        return error
    if raised_by(error):
        return UnsupportedError(
            f"{type(error).__name__} in {raised_by(error)} while {while_doing} {code.co_qualname}: {error}",
            code="pipeline.stage",
            where=(first_line(code),),
        )
    if isinstance(error, RecursionError):
        return UnsupportedError(
            f"the recursion limit was reached while {while_doing} {code.co_qualname}",
            code="dispatch.depth",
            where=(first_line(code),),
            hints=("raise sys.setrecursionlimit, or call it from fewer nested calls",),
        )
    return InternalError(
        f"{type(error).__name__} while {while_doing} {code.co_qualname}: {error}",
        code="dispatch.internal",
        where=(first_line(code),),
    )


def compilers_fault(fault: RuntimeFault, where: Sequence[Origin] = ()) -> IntarsiaError:
    """Return the error for a compiled graph that raised where the program, run in eager, does not.

    It is a bug of Intarsia, but for what the graph itself refused: a fake of the user's that predicted another result.
    """
    cause = fault.__cause__
    if isinstance(cause, UnsupportedError):
        return UnsupportedError(
            cause.explanation, code=cause.code, where=cause.where or fault.where or where, hints=cause.hints
        )
    return InternalError(
        f"the program does not raise in eager, but {fault.explanation}",
        code="dispatch.fault",
        where=fault.where or where,
        hints=fault.hints,
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


def describe_frame(event: FrameEvent) -> str:
    """Return what became of a frame: a heading, then its breaks and guards; "" when it has nothing to compile."""
    if event.kind is EventKind.NATIVE and not event.in_eager:
        return ""
    graph = event.capture is not None and event.capture.graph_module is not None
    what = {
        EventKind.COMPILED: "is compiled" if graph else "is replaced, with nothing to compile before its break",
        EventKind.RECOMPILED: f"is compiled again: {event.reason}",
        EventKind.FAULT: f"faulted, and ran again in eager: {event.reason}",
    }.get(event.kind, f"runs in eager: {event.reason}")
    head = f"frame {event.name} at {event.origin.file}:{event.origin.line} {what}"
    return "\n".join([head, *_details(event)])


def _details(event: FrameEvent) -> Iterator[str]:
    if event.capture is not None:
        for b in event.capture.breaks:
            yield f"  break [{b.code}] {b.reason}\n    at {b.origin}\n    remedy: {b.remedy}"
        yield from (f"  guard {describe_guard(guard)}" for guard in event.capture.guards)


def describe_guard(guard: GuardRecord) -> str:
    """Return what a guard checks, on one line, without asking a `__repr__` of the user's."""
    source = str(guard.source) if guard.source else ""
    return f"{guard.kind.value}: {source + ' = ' if source else ''}{_value_text(guard)}"


def _value_text(guard: GuardRecord) -> str:
    if isinstance(guard, TensorGuard):
        value = guard.facts
        sizes = ", ".join("*" if n is None else str(n) for n in value.shape)
        grad = ", requires grad" if value.requires_grad else ""
        return f"{dtype_name(value.dtype)}[{sizes}] on {value.device[0]}, strides {value.strides}{grad}"
    if isinstance(guard, AliasingGuard):
        return f"{'the same object as' if guard.same else 'another object than'} {guard.other}"
    # what is given by name alone is where and why
    values = [getattr(guard, field.name) for field in fields(guard) if not field.kw_only and field.name != "source"]
    return _brief(values[0] if len(values) == 1 else tuple(values))


def _brief(value: object) -> str:
    """Return a short text of a value, without asking a `__repr__` of the user's; of a tensor only what kind it is."""
    if isinstance(value, torch.Tensor):
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    if isinstance(value, Source):
        return str(value)
    if isinstance(value, tuple) and type(value) is tuple:
        return f"({', '.join(map(_brief, value))}{',' if len(value) == 1 else ''})"
    ours = isinstance(value, Enum) or type(value).__module__.partition(".")[0] in _REPRESENTED
    try:
        text = repr(value) if ours and not isinstance(value, torch.nn.Module) else object.__repr__(value)
    except ValueError:  # an int of more digits than Python writes
        text = object.__repr__(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


_REPRESENTED = ("builtins", "collections", "functools", "torch", "types", "weakref")  # and what is in these is short
_LONGEST = 160


def warn_of(code: CodeType, origin: Origin, what: str) -> None:
    """Warn that a frame runs in eager; the warning points to the user's line, for a layer of torch to its call."""
    name = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
    file, line = origin.file, origin.line
    if file.startswith(_TORCH):
        frame = user_frame()
        file, line = frame.f_code.co_filename, frame.f_lineno
    warnings.warn_explicit(f"{name} runs in eager: {what}", FallbackWarning, file, line)
