"""Waiting for another process by a deadline, with a look now and then at whether an interrupt is held back."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

from intarsia_ir.interrupts import let_through

__all__ = ["waits"]

_LONGEST_S = 0.2  # how late an interrupt may be


def waits(deadline: float) -> Iterator[float]:
    """Yield how many seconds to wait next, at least once, until a time of `time.monotonic`.

    Interrupts that are held back are let through before each wait.

    Example:
        >>> from time import monotonic
        >>> list(waits(monotonic() - 1))
        [0.0]
    """
    while True:
        let_through()
        yield max(min(deadline - monotonic(), _LONGEST_S), 0.0)
        if monotonic() >= deadline:
            return
