"""The process-wide state of the pipeline: counters, the compile lock, live dispatchers. Nothing below it has any."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any

from intarsia._stats import Stats
from intarsia_dispatch import Counters, Dispatcher

__all__ = ["COMPILE_LOCK", "COUNTERS", "DISPATCHERS", "compiled_code", "reset", "stats"]

COUNTERS = Counters(Stats)
# tracing and recording run torch's fake tensor mode, which is not meant for two threads at once
COMPILE_LOCK = threading.RLock()
DISPATCHERS: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


def stats() -> Stats:
    """Return how much was compiled since the last `reset()`."""
    return COUNTERS.snapshot()


def reset() -> None:
    """Forget every compiled version of every function, and zero the counters."""
    with COMPILE_LOCK:
        for dispatcher in list(DISPATCHERS):
            dispatcher.reset()
        COUNTERS.reset()


def compiled_code(function: Callable[..., Any]) -> tuple[CodeType, ...]:
    """Return the code objects that stand in for `function`'s, in the order in which they were compiled."""
    return tuple(code for dispatcher in list(DISPATCHERS) for code in dispatcher.compiled_code(function))
