"""What the fuzzers of programs and of operators share: batches in processes of their own, examples, and a clock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

__all__ = ["BATCH", "guarded", "run_examples", "spawn"]

BATCH = 100
"""Programs of a batch."""
SECONDS = 60
"""The longest that one program may take."""

T = TypeVar("T")


def run_examples(strategy: SearchStrategy[T], run: Callable[[T], None], count: int, batch: int) -> float:
    """Call a function with examples of a strategy, a few more than asked for; return how many seconds that took.

    Args:
        strategy: What gives examples; Hypothesis may repeat itself.
        run: Called with each.
        count: How many are asked for.
        batch: Decides which ones.
    """
    chosen = settings(
        max_examples=count + 10,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    started = time.monotonic()

    def example(value: T) -> None:
        run(value)

    seed(batch)(chosen(given(strategy)(example)))()
    return round(time.monotonic() - started, 1)


def spawn(words: Sequence[str]) -> dict[str, Any]:
    """Return the row that `python -m integration.fuzz` prints last for these words, or one of a process that failed."""
    ended = subprocess.run([sys.executable, "-m", "integration.fuzz", *words], capture_output=True, text=True)
    if ended.returncode:
        reason = "".join(ended.stderr.strip().splitlines()[-1:])
        differences = [f"the process ended with {ended.returncode}: {reason}"]
        return {"programs": 0, "seconds": 0, "differences": differences}
    row: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return row


def guarded(check: Callable[[], T]) -> T | str:
    """Run a check under the clock; a string says what went wrong besides a difference."""

    def late(number: int, frame: Any) -> None:
        raise _LateError

    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return check()
    except _LateError:
        return f"it takes more than {SECONDS} s"
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} (at {os.path.basename(at.filename)}:{at.lineno})"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


class _LateError(BaseException):
    """A program takes too long; programs catch `Exception`."""
