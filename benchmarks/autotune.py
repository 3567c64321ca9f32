"""What measuring schedules is worth: `mode="max-autotune-no-cudagraphs"` beside the default, in turn, in one process.

`python benchmarks/autotune.py [--only NAME] [--rounds N] [--folder F] [--device cuda] [--json F]`. Prints, for each
program, microseconds of both and their ratio (the median over the rounds, with its spread), the seconds of the first
call, and the choices that were measured to be faster. With a folder that has a table nothing is measured again. On a
GPU programs are larger, and a time is that between events around calls, before which the GPU waits for the host.
"""

from __future__ import annotations

import argparse
import json
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


def programs(device: str = "cpu") -> dict[str, Program]:
    """Return what is timed, by name."""
    torch.manual_seed(0)
    times = 8 if device == "cuda" else 1
    x, y = torch.randn(2048 * times, 768).to(device), torch.randn(2048 * times, 768).to(device)
    wide = torch.randn(64 * times, 32768).to(device)
    w, b = torch.randn(768).to(device), torch.randn(768).to(device)
    image = torch.randn(16 * times, 64, 56, 56).to(device)
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
    options.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options.add_argument("--json", type=Path, help="file for the rows")
    args = options.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp())
    machine = torch.cuda.get_device_name() if args.device == "cuda" else platform.processor() or platform.machine()
    print(f"{machine}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{'program':24} {'default':>9} {'tuned us':>9} {'ratio':>6} {'spread':>13} {'first s':>8}  choices")
    rows: dict[str, dict[str, Any]] = {}
    for name, one in programs(args.device).items():
        if args.only in name:
            rows[name] = row(name, *one, folder, args.rounds)
            if args.json:
                args.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print(f"geomean {statistics.geometric_mean([r['ratio'] for r in rows.values()]):.3f}")


def row(
    name: str, fn: Callable[..., Any], inputs: tuple[torch.Tensor, ...], folder: Path, rounds: int
) -> dict[str, Any]:
    """Time one program, print its line and return what it says."""
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
    return {"us": us, "ratio": ratio, "spread": [low, high], "first_s": first, "choices": changed}


def timed(fn: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> float:
    """Return the seconds of one call: the mean over 20 ms of calls, or on a GPU over ten."""
    if inputs[0].is_cuda:
        return timed_on_device(fn, inputs)
    start, n = time.perf_counter(), 0
    while n == 0 or time.perf_counter() - start < 0.02:
        fn(*inputs)
        n += 1
    return (time.perf_counter() - start) / n


def timed_on_device(fn: Callable[..., Any], inputs: tuple[torch.Tensor, ...], n: int = 10) -> float:
    """Return the seconds of one call on a GPU."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(2_000_000)  # about a millisecond, in which the host queues the calls
    start.record()
    for _ in range(n):
        fn(*inputs)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / n / 1e3


if __name__ == "__main__":
    main()
