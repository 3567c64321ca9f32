"""Waiting for another process by a deadline, with a look now and then at whether an interrupt is held back."""

from __future__ import annotations

import time
from collections.abc import Iterator

from intarsia_ir.interrupts import let_through

__all__ = ["waits"]

_LONGEST_S = 0.2  # how late an interrupt may be


def waits(deadline: float) -> Iterator[float]:
    """Yield how many seconds to wait next, at least once, until a time of `time.monotonic`.

    Interrupts that are held back are let through before each wait.

    Example:
        >>> list(waits(time.monotonic() - 1))
        [0.0]
    """
    while True:
        let_through()
        yield max(min(deadline - time.monotonic(), _LONGEST_S), 0.0)
        if time.monotonic() >= deadline:
            return
