"""Many threads call and compile the same functions while shapes, modes and settings change: right, and no deadlock."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import random
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import intarsia
from integration.survival.processes import function

__all__ = ["Seen", "main", "threaded"]

PATIENCE_S = 300.0  # what a thread may still take when it was told to stop; beyond that it hangs


@dataclass
class Seen:
    """What was seen.

    Args:
        calls: Calls that were compared with eager.
        wrong: What differed or was raised, in words.
        hanging: Threads that did not stop.
    """

    calls: int = 0
    wrong: list[str] = field(default_factory=list)
    hanging: int = 0


# settings that each thread has for itself
MODES: tuple[Callable[[], Any], ...] = (
    contextlib.nullcontext,
    torch.no_grad,
    torch.inference_mode,
    lambda: torch.autocast("cpu", dtype=torch.bfloat16),
)


class Crowd:
    """Threads over shared compiled functions.

    Args:
        n_functions: How many functions there are.
        seed: Of the choices.
    """

    def __init__(self, n_functions: int, seed: int) -> None:
        self.plain = [function(n) for n in range(n_functions)]
        options = {"on_error": "raise", "recompile_limit": 64}
        self.fast = [intarsia.compile(f, options=options) for f in self.plain]
        self.seed, self.seen, self.stop, self.lock = seed, Seen(), threading.Event(), threading.Lock()

    def call(self, numbers: random.Random) -> None:
        """Call a function in some mode with some shape, and compare; gradients too."""
        n = numbers.randrange(len(self.plain))
        shape, wants = (numbers.randrange(1, 5), numbers.choice((1, 4, 7))), numbers.random() < 0.5
        x = torch.linspace(-1, 1, shape[0] * shape[1]).reshape(shape).requires_grad_(wants)
        with numbers.choice(MODES)():
            got, expected = self.fast[n](x), self.plain[n](x)
        torch.testing.assert_close(got, expected)
        assert got.requires_grad == expected.requires_grad
        if got.requires_grad:
            torch.testing.assert_close(torch.autograd.grad(got.sum(), x), torch.autograd.grad(expected.sum(), x))

    def work(self, seed: int) -> None:
        """Call until told to stop."""
        numbers = random.Random(self.seed * 1000 + seed)
        while not self.stop.is_set():
            try:
                self.call(numbers)
            except Exception as error:
                with self.lock:
                    self.seen.wrong.append(f"{type(error).__name__}: {error}")
            with self.lock:
                self.seen.calls += 1

    def disturb(self, every_s: float) -> None:
        """Change what all threads share: forget what was compiled, and the number of threads of a kernel."""
        for n in range(10**6):
            if self.stop.wait(every_s):
                return
            torch.set_num_threads(1 + n % 2)
            if n % 4 == 3:
                intarsia.reset()


def threaded(n_threads: int, n_functions: int, seconds: float, seed: int = 0) -> Seen:
    """Run threads for some seconds."""
    crowd, before = Crowd(n_functions, seed), torch.get_num_threads()
    threads = [threading.Thread(target=crowd.work, args=(k,), daemon=True) for k in range(n_threads)]
    threads.append(threading.Thread(target=crowd.disturb, args=(max(0.5, seconds / 20),), daemon=True))
    [thread.start() for thread in threads]
    time.sleep(seconds)
    crowd.stop.set()
    deadline = time.monotonic() + PATIENCE_S
    [thread.join(max(0.0, deadline - time.monotonic())) for thread in threads]
    torch.set_num_threads(before)
    crowd.seen.hanging = sum(thread.is_alive() for thread in threads)
    if crowd.seen.hanging:
        faulthandler.dump_traceback()
    return crowd.seen


def main(arguments: list[str]) -> int:
    """Run threads and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m integration.survival threads")
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--functions", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    seen = threaded(given.threads, given.functions, given.seconds, given.seed)
    compiled = intarsia.stats().frames_compiled
    print(
        f"{given.threads} threads, {given.functions} functions, {given.seconds:g} s: {seen.calls} calls, "
        f"{compiled} frames compiled since the last reset, {len(seen.wrong)} wrong, {seen.hanging} hanging"
    )
    print(*sorted(set(seen.wrong))[:9], sep="\n", end="\n" * bool(seen.wrong))
    return bool(seen.wrong) or bool(seen.hanging)
