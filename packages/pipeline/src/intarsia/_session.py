"""The process-wide state of the pipeline: counters, the compile lock, live dispatchers. Nothing below it has any."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any

from intarsia._stats import Stats
from intarsia_dispatch import Counters, Dispatcher, configure_logging
from intarsia_fuser import FusionPlan

__all__ = ["COMPILE_LOCK", "COUNTERS", "DISPATCHERS", "compiled_code", "fusion_plans", "reset", "stats"]

COUNTERS = Counters(Stats)
# tracing and recording run torch's fake tensor mode, which is not meant for two threads at once
COMPILE_LOCK = threading.RLock()
# with the fusion plans of what each has compiled
DISPATCHERS: weakref.WeakKeyDictionary[Dispatcher, list[FusionPlan]] = weakref.WeakKeyDictionary()


def _after_fork() -> None:
    """Make new the locks that another thread of the parent may have held: there is only one thread now."""
    COMPILE_LOCK._at_fork_reinit()  # type: ignore[attr-defined]
    for after_fork in (COUNTERS.after_fork, *(dispatcher.after_fork for dispatcher in DISPATCHERS)):
        after_fork()


os.register_at_fork(after_in_child=_after_fork)


# the words of an environment variable are set, and a wrong one told, once
_configure_logging = functools.cache(configure_logging)


def log_as_asked() -> None:
    """Have the loggers that `INTARSIA_LOGS` names print."""
    _configure_logging(os.environ.get("INTARSIA_LOGS", ""))


log_as_asked()  # a wrong topic is told where intarsia is imported


def stats() -> Stats:
    """Return how much was compiled since the last `reset()`."""
    return COUNTERS.snapshot()


def reset() -> None:
    """Forget every compiled version of every function, and zero the counters."""
    with COMPILE_LOCK:
        for dispatcher, plans in list(DISPATCHERS.items()):
            dispatcher.reset()
            plans.clear()
        COUNTERS.reset()


def compiled_code(function: Callable[..., Any]) -> tuple[CodeType, ...]:
    """Return the code objects that stand in for `function`'s, in the order in which they were compiled."""
    return tuple(code for dispatcher in list(DISPATCHERS) for code in dispatcher.compiled_code(function))


def fusion_plans(function: Callable[..., Any]) -> tuple[FusionPlan, ...]:
    """Return how the graphs of a compiled function were fused, in the order in which they were compiled.

    In training a graph has a plan for each half. `intarsia_fuser.Replay` takes them all as one policy.
    """
    return tuple(p for d, plans in list(DISPATCHERS.items()) if d.compiled_code(function) for p in plans)
