"""`kill -9` at many points of a write, then a restart: the answer is right, entries are whole, leftovers go.

Three quarters of the points are lines: a child dies at the n-th line that the runtime executes while it builds and
stores a unit, evenly over all of them. The others are moments: a child that writes a large entry again and again, now
with one payload and then with another, is killed from outside.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import intarsia_runtime
from intarsia_ir.records import KernelSource, Launch, Target
from intarsia_runtime import Cache
from intarsia_runtime.cache import LEFTOVER_SECONDS
from intarsia_runtime.entries import entries, is_intact
from integration.survival.compilers import Remembering

__all__ = ["Seen", "killed", "main"]

TEXT = 'extern "C" void seg0(float* x, float* y) { for (int i = 0; i < 8; i++) y[i] = x[i] + 1; }'
SOURCE = KernelSource(TEXT, "cpp", launches=(Launch("seg0", ("x", "y")),))
RUNTIME = os.path.dirname(intarsia_runtime.__file__)
LARGE = 1 << 23
PAYLOADS = (b"a" * LARGE, b"b" * LARGE)
KEY = Cache.key("large")


@dataclass
class Seen:
    """What was seen.

    Args:
        kills: Children that died by the signal.
        found: Restarts that found the entry, whole.
        wrong: What went wrong, in words.
    """

    kills: int = 0
    found: int = 0
    wrong: list[str] = field(default_factory=list)


class Dying:
    """A trace function that ends the process at the n-th line of the runtime."""

    def __init__(self, at: int) -> None:
        self.at, self.n_lines = at, 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Follow calls of the runtime, and count."""
        if not frame.f_code.co_filename.startswith(RUNTIME):
            return None
        if event == "line":
            self.n_lines += 1
            if self.n_lines == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def is_right(target: Target, directory: Path) -> bool:
    """Build and run."""
    library = intarsia_runtime.build(SOURCE, target, cache=Cache(directory))
    x, y = torch.zeros(8), torch.zeros(8)
    library.launcher("seg0", 2)(x.data_ptr(), y.data_ptr())
    return bool((y == 1).all())


def lines_of(target: Target, directory: Path) -> int:
    """Return how many lines the runtime executes to build and store a unit."""
    counting = Dying(0)
    sys.settrace(counting)
    try:
        is_right(target, directory)
    finally:
        sys.settrace(None)
    return counting.n_lines


def in_child(work: Any) -> int:
    """Fork, run, and return the process; it never comes back."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(3)
    return child


def was_killed(child: int) -> bool:
    """Wait for a child, and tell whether the signal ended it."""
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def at_lines(count: int, target: Target, folder: Path, seen: Seen) -> None:
    """Kill at lines of a build."""
    n_lines = lines_of(target, folder / "whole")
    for n in range(count):
        directory = folder / f"at{n}"

        def dies(at: int = 1 + n * n_lines // count, directory: Path = directory) -> None:
            sys.settrace(Dying(at))
            is_right(target, directory)

        seen.kills += was_killed(in_child(dies))
        restart(target, directory, f"line {1 + n * n_lines // count} of {n_lines}", seen)


def restart(target: Target, directory: Path, where: str, seen: Seen) -> None:
    """Look at what a killed process left."""
    found = list(entries(directory))
    seen.found += bool(found)
    if not all(map(is_intact, found)):
        seen.wrong.append(f"{where}: an entry is damaged")
    if not is_right(target, directory):
        seen.wrong.append(f"{where}: another result")
    if not [entry for entry in entries(directory) if is_intact(entry)]:
        seen.wrong.append(f"{where}: nothing is stored afterwards")
    if swept(directory):
        seen.wrong.append(f"{where}: leftovers stay")


def swept(directory: Path) -> list[str]:
    """Return what is left aside when the hour has passed."""
    aside = Cache(directory).directory / "tmp"
    old = time.time() - LEFTOVER_SECONDS - 60
    for path in aside.iterdir():
        os.utime(path, (old, old))
    Cache(directory)
    return os.listdir(aside)


def at_moments(count: int, folder: Path, seed: int, seen: Seen) -> None:
    """Kill at moments of writing a large entry."""
    numbers, cache = random.Random(seed), Cache(folder / "large")

    def writes() -> None:
        for n in range(10**6):
            cache.put(KEY, PAYLOADS[n % 2])

    for n in range(count):
        child = in_child(writes)
        time.sleep(numbers.uniform(0, 0.2))
        os.kill(child, signal.SIGKILL)
        seen.kills += was_killed(child)
        got = Cache(folder / "large").get(KEY)
        seen.found += got is not None
        if got is not None and got not in PAYLOADS:
            seen.wrong.append(f"moment {n}: a mixture")
        if swept(folder / "large"):
            seen.wrong.append(f"moment {n}: leftovers stay")


def killed(count: int, folder: Path, seed: int = 0) -> Seen:
    """Kill at `count` points."""
    seen, compiler = Seen(), Remembering(folder)
    target = replace(intarsia_runtime.detect_target(), compiler=compiler.path)
    at_lines(count - count // 4, target, folder, seen)
    at_moments(count // 4, folder, seed, seen)
    return seen


def main(arguments: list[str]) -> int:
    """Kill and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m integration.survival killed")
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        seen = killed(given.points, Path(name), given.seed)
    print(f"{seen.kills} of {given.points} killed; {seen.found} restarts found an entry; {len(seen.wrong)} wrong")
    print(*seen.wrong, sep="\n", end="\n" * bool(seen.wrong))
    return bool(seen.wrong) or seen.kills != given.points
