"""What measuring schedules is worth on a CPU: `mode="max-autotune"` beside the default, in turn, in one process.

`python benchmarks/autotune.py [--only NAME] [--rounds N] [--folder F]`. Prints, for each program, microseconds of both
and their ratio (the median over the rounds, with its spread), the seconds of the first call, and the choices that were
measured to be faster. With a folder that has a table nothing is measured again.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import intarsia

Program = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]
MODE = "max-autotune-no-cudagraphs"


def programs() -> dict[str, Program]:
    """Return what is timed, by name."""
    torch.manual_seed(0)
    x, y, wide = torch.randn(2048, 768), torch.randn(2048, 768), torch.randn(64, 32768)
    w, b = torch.randn(768), torch.randn(768)
    image = torch.randn(16, 64, 56, 56)
    return {
        "softmax": (lambda x: torch.softmax(x, 1), (x,)),
        "softmax, long rows": (lambda x: torch.softmax(x, 1), (wide,)),
        "residual + layer norm": (lambda x, y, w, b: F.layer_norm(x + y, (768,), w, b), (x, y, w, b)),
        "rms norm": (lambda x, w: x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6) * w, (x, w)),
        "gelu + bias": (lambda x, b: F.gelu(x + b), (x, b)),
        "sum of columns": (lambda x: x.sum(0), (x,)),
        "sum of few columns": (lambda x: x.view(-1, 8).sum(0), (x,)),
        "transposed copy": (lambda x: x.t().contiguous() + 1, (x,)),
        "batch norm statistics": (lambda t: (t.mean((0, 2, 3)), t.var((0, 2, 3))), (image,)),
        "cumulative sum": (lambda x: x.cumsum(1), (x,)),
        "arg of the maximum": (lambda x: x.argmax(1), (x,)),
        "bfloat16 chain": (lambda x, y: torch.tanh(x * y + 1), (x.bfloat16(), y.bfloat16())),
    }


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="programs whose name contains this")
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--folder", type=Path, help="cache with the table of measured schedules")
    args = options.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp())
    print(f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{'program':24} {'default':>9} {'tuned us':>9} {'ratio':>6} {'spread':>13} {'first s':>8}  choices")
    ratios = [row(name, *one, folder, args.rounds) for name, one in programs().items() if args.only in name]
    print(f"geomean {statistics.geometric_mean(ratios):.3f}")


def row(name: str, fn: Callable[..., Any], inputs: tuple[torch.Tensor, ...], folder: Path, rounds: int) -> float:
    """Time one program, print its line and return the ratio."""
    raising = {"on_error": "raise"}
    plain = intarsia.compile(fn, fullgraph=True, options=raising)
    plain(*inputs)
    start = time.perf_counter()
    explanation = intarsia.explain(fn, mode=MODE, fullgraph=True, options=raising, cache_dir=folder)(*inputs)
    first = time.perf_counter() - start
    tuned = intarsia.compile(fn, mode=MODE, fullgraph=True, options=raising, cache_dir=folder)
    torch.testing.assert_close(tuned(*inputs), fn(*inputs), rtol=1e-2, atol=1e-3)
    times = [(timed(plain, inputs), timed(tuned, inputs)) for _ in range(rounds)]
    ratios = sorted(old / new for old, new in times)
    low, ratio, high = ratios[len(ratios) // 10], statistics.median(ratios), ratios[-1 - len(ratios) // 10]
    changed = [
        f"{word}={choice.value}"
        for schedule in explanation.graphs[0].schedules
        for kernel in schedule.kernels
        for word, choice in kernel.choices.items()
        if choice.why.startswith("measured")
    ]
    us = [1e6 * statistics.median(column) for column in zip(*times, strict=True)]
    print(
        f"{name:24} {us[0]:9.0f} {us[1]:9.0f} {ratio:6.2f} {f'{low:.2f}-{high:.2f}':>13} {first:8.1f}"
        f"  {', '.join(changed)}",
        flush=True,
    )
    return ratio


def timed(fn: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> float:
    """Return the seconds of one call, the mean over 20 ms of calls."""
    start, n = time.perf_counter(), 0
    while n == 0 or time.perf_counter() - start < 0.02:
        fn(*inputs)
        n += 1
    return (time.perf_counter() - start) / n


if __name__ == "__main__":
    main()
