"""Signals whose handlers may raise, held back where an exception out of nowhere does harm.

While a program is captured, torch calls Python from C++ where no exception may pass (the process ends), and modes are
on its stacks. So a compilation runs under `held_back()`: a signal that has a Python handler is noted, and the handler
is called at the end, or where long work waits by itself and says so (`let_through`). The third signal of a kind is
handed on at once: whoever insists is obeyed. Only the main thread runs handlers, so in others nothing is held back.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

__all__ = ["held_back", "let_through"]

_SIGNALS = (
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGINT,
)
_INSISTS = 3


class _Handled(BaseException):
    """What a handler raised, on its way out of a compilation: nothing there may take it for an error of its own."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Noted:
    """The handler that stands in for a user's."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler, self.count = handler, 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count >= _INSISTS:
            self.hand_on(number)

    def hand_on(self, number: int) -> None:
        """Call the user's handler if the signal came."""
        came, self.count = self.count, 0
        if came:
            self.handler(number, sys._getframe(1))


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold back signals until the end of the block, then call their handlers.

    Example:
        >>> handler, seen = signal.getsignal(signal.SIGUSR1), []
        >>> _ = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append("handled"))
        >>> with held_back():
        ...     signal.raise_signal(signal.SIGUSR1)
        ...     seen.append("first")
        >>> seen
        ['first', 'handled']
        >>> _ = signal.signal(signal.SIGUSR1, handler)
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    standing_in: list[tuple[int, _Noted]] = []
    try:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler) and not isinstance(handler, _Noted):  # else held back already, or no Python's
                standing_in.append((number, _Noted(handler)))
                signal.signal(*standing_in[-1])
        yield
    except _Handled as handled:
        if not standing_in:  # a block around this one holds back
            raise
        raise handled.error from None
    finally:
        _put_back(standing_in)


def _put_back(standing_in: list[tuple[int, _Noted]]) -> None:
    """Put every handler back, even when one that is back raises meanwhile; then call those whose signals came."""
    try:
        for number, noted in standing_in:
            now: object = signal.getsignal(number)
            if now is noted:  # else the user set another one meanwhile
                signal.signal(number, noted.handler)
    except BaseException:
        _put_back(standing_in)
        raise
    with contextlib.ExitStack() as stack:  # all of them, even when one raises
        for number, noted in reversed(standing_in):
            stack.callback(noted.hand_on, number)


def let_through() -> None:
    """Call the handlers of signals that are held back; what waits for long calls it again and again.

    Raises:
        BaseException: What a handler raises, such as KeyboardInterrupt.
    """
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if isinstance(handler, _Noted):
                try:
                    handler.hand_on(number)
                except Exception as error:
                    raise _Handled(error) from error
