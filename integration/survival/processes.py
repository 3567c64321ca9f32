"""Many processes on one empty cache: every result is right, and no unit is compiled more than twice."""

from __future__ import annotations

import argparse
import collections
import os
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import intarsia
from integration.survival.compilers import Remembering

__all__ = ["Crowd", "crowded", "main"]


@dataclass(frozen=True)
class Crowd:
    """What was seen.

    Args:
        failures: Processes that raised, or had another result than eager.
        units: Different units that were compiled.
        most: How often one of them was.
    """

    failures: int
    units: int
    most: int


def function(n: int) -> Any:
    """Return the n-th function; no two have the same kernel."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * (n + 2) if n % 2 else x.sin() + n
        return torch.softmax(y, -1) if n % 3 == 0 else y.sum(-1) if n % 3 == 1 else y.relu() - n

    return f


def work(n_functions: int, seed: int, start: float) -> None:
    """Compile and call the functions, each process beginning at another one in turn."""
    time.sleep(max(0.0, start - time.monotonic()))
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    for k in range(n_functions):
        f = function((k + seed % 2) % n_functions)
        fast = intarsia.compile(f, options={"on_error": "raise"})
        for _ in range(2):
            torch.testing.assert_close(fast(x), f(x))


def crowded(n_processes: int, n_functions: int, folder: Path) -> Crowd:
    """Fork processes that compile the same functions; the cache is empty."""
    compiler = Remembering(folder)
    os.environ.update(CXX=compiler.path, INTARSIA_CACHE_DIR=str(folder / "cache"))
    start, children = time.monotonic() + 0.5, []
    for seed in range(n_processes):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(n_functions, seed, start)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    failures = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    times = collections.Counter(compiler.units())
    return Crowd(failures, len(times), max(times.values(), default=0))


def main(arguments: list[str]) -> int:
    """Run a crowd and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m integration.survival processes")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--functions", type=int, default=50)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        seen = crowded(given.processes, given.functions, Path(name))
    print(
        f"{given.processes} processes, {given.functions} functions: {seen.failures} failures, "
        f"{seen.units} units, each compiled at most {seen.most} times"
    )
    return seen.failures > 0 or seen.most > 2 or seen.units != given.functions
