"""Exceptions of the traced program: which one is handled, and how new ones are raised."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from intarsia_ir.guards import HandlingGuard
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.sources import Guards
from intarsia_pyeval.values.constants import NONE, Const
from intarsia_pyeval.values.handled import BY_CALLER
from intarsia_pyeval.values.objects import Object
from intarsia_pyeval.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_pyeval.state.steps import Steps
    from intarsia_pyeval.values.base import Value

__all__ = ["Raising"]


class Raising:
    """Raises in the traced program.

    Args:
        steps: Where the capture stands.
        guards: What was relied on.

    Attributes:
        handling: The exception that the running generator handles, if one runs, else that all that runs handles.
        parts: A part of a group of exceptions -> the group that was split.
        asked_caller: Whether it matters if the caller handles an exception.
    """

    def __init__(self, steps: Steps, guards: Guards) -> None:
        self.handling: Value | None = None
        self._outside: Value | None = None  # what is handled by what advances the running generator
        self._guards = guards
        self._caller_handles = sys.exception() is not None
        self.asked_caller = False
        self._steps = steps
        self.parts: dict[Value, Value] = {}
        self._raised_in: dict[Value, int] = {}  # an exception that the outermost frame handled -> step that raised it

    def new(self, cls: type[BaseException], args: Sequence[Value]) -> Object:
        """Return the model of a new exception."""
        return Object(cls, base=Tuple(args), birth=self._steps.now)

    def error(self, cls: type[BaseException], message: str) -> NoReturn:
        """Raise an exception with a text.

        Raises:
            Raised: Always.
        """
        self.throw(cls, [Const(message)])

    def throw(self, cls: type[BaseException], args: Sequence[Value]) -> NoReturn:
        """Raise an exception with models as arguments.

        Raises:
            Raised: Always.
        """
        self.throw_made(self.new(cls, args))

    def throw_made(self, exception: Object) -> NoReturn:
        """Raise an exception in the context of what is being handled.

        Raises:
            Raised: Always.
        """
        self.set_context(exception)
        raise Raised(exception)

    # -- what is handled -----------------------------------------------------------------------------------------

    def handled(self) -> Value | None:
        """Return the exception that is being handled, as `sys.exception()` does; None where the caller handles none."""
        exception = self.handling or self._outside
        if exception is None:
            self.rely_on_calm_caller()
        return exception

    def set_context(self, exception: Value) -> None:
        """Remember what is being handled as the context of a raised exception; cut the chain where it would close."""
        assert isinstance(exception, Object)
        handled = self.handling or self._outside
        if handled is exception:
            return
        if handled is None:
            self._leave_context(exception)
            return
        link: Value | None = handled
        while isinstance(link, Object):
            behind = link.written.get("__context__")
            if behind is exception:
                link.written["__context__"] = NONE
                break
            link = behind
        exception.written["__context__"] = handled

    def _leave_context(self, exception: Object) -> None:
        """An exception is raised where the frame handles none: leave its context open, unless it has one already."""
        before = exception.written.get("__context__")
        if before is None or before is BY_CALLER:
            exception.written["__context__"] = BY_CALLER
        else:
            self.rely_on_calm_caller()

    def ask_caller(self) -> None:
        """Rely on whether the caller handles an exception."""
        self.asked_caller = True
        self._guards.add(HandlingGuard, self._caller_handles)

    def rely_on_calm_caller(self) -> None:
        """Rely on it that the caller handles no exception.

        Raises:
            Break: It does.
        """
        self.ask_caller()
        if self._caller_handles:
            raise Break("tracer.exception", "the exception that the caller handles is asked for")

    def enter(self, handling: Value | None) -> tuple[Value | None, Value | None]:
        """A generator that stopped while it handled `handling` goes on; return what to `leave` it with."""
        before = self.handling, self._outside
        self.handling, self._outside = handling, self.handling or self._outside
        return before

    def leave(self, before: tuple[Value | None, Value | None]) -> Value | None:
        """A generator stops; return what it handles."""
        handling = self.handling
        self.handling, self._outside = before
        return handling

    # -- where exceptions came from ------------------------------------------------------------------------------

    def passed(self, exception: Value) -> None:
        """The outermost frame handles an exception that the current step raised."""
        self._raised_in.setdefault(exception, self._steps.now)

    def raised_at(self, exception: Value) -> int | None:
        """Return the step that raised an exception which the outermost frame handled; None for any other."""
        return self._raised_in.get(exception)
