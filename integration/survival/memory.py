"""Compile, call, drop, again and again: the process doesn't grow.

Counted are bytes of the process that no file backs (what the allocator keeps is given back first), objects that the
collector knows, and mapped units. A cycle is a new function; its kernels are one of 25 texts.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import intarsia

__all__ = ["Size", "cycles", "main"]

KERNELS = 25  # different ones, so that compiling them is most of the time once only


@dataclass(frozen=True)
class Size:
    """How large the process is.

    Args:
        n_bytes: Anonymous memory that is resident.
        n_objects: Objects that the collector tracks.
        n_units: Mapped shared objects of the compiler's.
    """

    n_bytes: int
    n_objects: int
    n_units: int


def size() -> Size:
    """Collect, give back what is free, and measure."""
    for _ in range(3):
        gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    maps = Path("/proc/self/maps").read_text()
    return Size(int(status["RssAnon"].split()[0]) << 10, len(gc.get_objects()), maps.count("/memfd:intarsia"))


def cycle(n: int) -> None:
    """Compile a function nobody has seen before, call it forward and backward, drop it."""
    scope: dict[str, Any] = {"torch": torch}
    exec(f"def f(x, w):\n    return torch.softmax(x @ w * {n % KERNELS + 2}, -1).sum() + x.sin().mean()\n", scope)
    x, w = torch.ones(3, 4, requires_grad=True), torch.eye(4)
    fast = intarsia.compile(scope["f"], options={"on_error": "raise"})
    result = fast(x, w)
    result.backward()
    torch.testing.assert_close(result, scope["f"](x, w))


def cycles(count: int, first: int) -> tuple[Size, Size]:
    """Return the size after the `first` cycles and after `count`."""
    for n in range(first):
        cycle(n)
    before = size()
    for n in range(first, count):
        cycle(n)
    return before, size()


def main(arguments: list[str]) -> int:
    """Run cycles and print how the process grew; more than 5% is too much."""
    parser = argparse.ArgumentParser(prog="python -m integration.survival memory")
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--first", type=int, default=100)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        os.environ["INTARSIA_CACHE_DIR"] = name
        before, after = cycles(given.cycles, given.first)
    grown = after.n_bytes / before.n_bytes, after.n_objects / before.n_objects
    print(
        f"{given.cycles} cycles: {before.n_bytes >> 20} MiB after the first {given.first}, {after.n_bytes >> 20} MiB "
        f"({grown[0]:.3f}); {before.n_objects} objects, {after.n_objects} ({grown[1]:.3f}); "
        f"{after.n_units} units mapped"
    )
    return max(grown) > 1.05 or after.n_units > before.n_units
