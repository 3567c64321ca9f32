"""Frames that are evaluated, as `sys._getframe()` gives them: what is read of them is what CPython has there."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia_bytecode import info_of
from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break, Unreconstructable
from intarsia_pyeval.tracer import BuiltinCall
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.frames import Frame
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["CALLS", "FrameValue"]


class FrameValue(Value):
    """A frame under evaluation.

    Args:
        frame: The frame.
        birth: The outermost step that asked for it.
    """

    __slots__ = ("birth", "frame")

    def __init__(self, frame: Frame, birth: int) -> None:
        self.source = None
        self.frame = frame
        self.birth = birth

    def type(self) -> Any:
        """Return the class of frames."""
        return type(sys._getframe())


@do.truth.rule(FrameValue)
def truth(tx: Tracer, frame: FrameValue) -> bool:
    """Frames are true."""
    return True


@do.get_attribute.rule(FrameValue)
def get_attribute(tx: Tracer, frame: FrameValue, name: str) -> Value:
    """Read the code, the line, the globals or the caller.

    Raises:
        Break: Something else is read, or the caller isn't evaluated.
    """
    if name == "f_code":
        return tx.live.wrap(frame.frame.code, None)
    if frame.frame not in tx.frames.stack:
        raise Break("tracer.frame", f"{name!r} of a frame that has ended is read")
    if name == "f_lineno":
        return Const(frame.frame.at.line)
    if name == "f_globals":
        namespace: Value = frame.frame.globals
        return namespace
    if name == "f_back":
        return _frame(tx, len(tx.frames.stack) - tx.frames.stack.index(frame.frame))
    raise Break("tracer.frame", f"{name!r} of a frame is read")


@codegen.reconstruct.rule(FrameValue)
def reconstruct(out: Builder, frame: FrameValue) -> None:
    """The frames of inlined calls don't exist."""
    raise Unreconstructable("a frame is kept", frame.birth)


def _frame(tx: Tracer, depth: int) -> FrameValue:
    """Return the frame `depth` calls up."""
    if tx.frames.passed_over or not 0 <= depth < len(tx.frames.stack):
        raise Break("tracer.frame", "the frame of a caller is asked for, which isn't captured")
    caller = tx.frames.stack[-1 - depth]
    if info_of(caller.code) is not None:
        raise Break("tracer.frame", "the frame of a function is asked for that goes on behind a break")
    return FrameValue(caller, tx.steps.now)


def _getframe(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    (depth,) = arity("_getframe", args, keywords, 0, 1) or (Const(0),)
    number = depth.as_python()
    if type(number) is not int:
        raise Break("tracer.exception", "the depth of a frame isn't a number")
    return _frame(tx, max(number, 0))


def _currentframe(tx: Tracer, args: Sequence[Value], keywords: Keywords) -> Value:
    arity("currentframe", args, keywords, 0)
    return _frame(tx, 0)


#: How each is called.
CALLS: dict[Any, BuiltinCall] = {inspect.currentframe: _currentframe, sys._getframe: _getframe}
