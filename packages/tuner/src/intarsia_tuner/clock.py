"""How launches are timed: on the host by its clock, on a GPU by events that the device itself stamps.

    launch                  the operands are where they are between launches
    start  n launches  end  microseconds of one, the mean of as many as the clock needs

A GPU is kept waiting until the host has queued all n, so that what is timed are the launches back to back, not how fast
they are asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from intarsia_ir.records import Target

__all__ = ["Clock", "TimedLibrary", "clock_of"]

ENOUGH_S = 2e-4  # a launch is repeated until it takes so long
MOST_REPEATS = 40  # on a GPU: of more, the host would queue the first when they are done
WAIT_CYCLES = (20_000, 8_000)  # of a GPU, before the launches, and for each of them: some microseconds

Launcher = Callable[..., None]


class Clock(Protocol):
    """Times of one program's launches, by entry; those of a run are kept where `keeps` says so."""

    keeps: bool
    us: dict[str, list[float]]

    def timed(self, entry: str, launch: Launcher) -> Launcher:
        """Return a call of a kernel, as often as the clock needs. Its results are the same each time."""

    def read(self) -> None:
        """Wait for what was launched, and put its times into `us`."""


def clock_of(target: Target) -> Clock:
    """Return what times kernels for a target.

    On a CPU with one thread it is the CPU time of the calling thread, so that other work on the machine costs little.
    """
    if target.is_gpu:
        return _DeviceClock()
    return _HostClock(time.thread_time if target.threads == 1 else time.perf_counter)


class _HostClock:
    def __init__(self, now: Callable[[], float]) -> None:
        self.keeps = False
        self.us: dict[str, list[float]] = {}
        self._now = now
        self._repeats: dict[str, int] = {}

    def timed(self, entry: str, launch: Launcher) -> Launcher:
        def call(*arguments: int) -> None:
            launch(*arguments)
            n = self._repeats.get(entry, 1) if self.keeps else 1
            start = self._now()
            for _ in range(n):
                launch(*arguments)
            spent = self._now() - start
            self._repeats.setdefault(entry, 1 + int(ENOUGH_S / max(spent, 1e-7)))
            if self.keeps:
                self.us.setdefault(entry, []).append(1e6 * spent / n)

        return call

    def read(self) -> None:
        """Nothing is left to be read."""


class _DeviceClock:
    def __init__(self) -> None:
        self.keeps = False
        self.us: dict[str, list[float]] = {}
        self._repeats: dict[str, int] = {}
        self._pending: list[tuple[str, Any, Any, int]] = []

    def timed(self, entry: str, launch: Launcher) -> Launcher:
        def call(*arguments: int) -> None:
            launch(*arguments)
            if not self.keeps and entry not in self._repeats:
                start, end = self._launched(launch, arguments, 2)
                end.synchronize()
                n = int(ENOUGH_S * 2e3 / max(start.elapsed_time(end), 1e-3))
                self._repeats[entry] = max(2, min(MOST_REPEATS, n))
            elif self.keeps:
                n = self._repeats.get(entry, 2)
                self._pending.append((entry, *self._launched(launch, arguments, n), n))

        return call

    def _launched(self, launch: Launcher, arguments: tuple[int, ...], n: int) -> tuple[Any, Any]:
        """Launch it n times between two events."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first, each = WAIT_CYCLES
        torch.cuda._sleep(first + n * each)
        start.record()
        for _ in range(n):
            launch(*arguments)
        end.record()
        return start, end

    def read(self) -> None:
        torch.cuda.synchronize()
        for entry, start, end, n in self._pending:
            self.us.setdefault(entry, []).append(1e3 * start.elapsed_time(end) / n)
        self._pending.clear()


class TimedLibrary:
    """A built unit whose launchers are timed."""

    def __init__(self, library: Any, clock: Clock) -> None:
        self._library, self._clock = library, clock

    def prepare(self) -> None:
        """Load the kernels of a unit for a GPU into its driver."""
        self._library.prepare()

    def launcher(self, entry: str, n_arguments: int) -> Launcher:
        """Return the library's launcher, timed."""
        return self._clock.timed(entry, self._library.launcher(entry, n_arguments))
