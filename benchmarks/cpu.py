"""Kernels on the CPU beside eager and torch.compile: `python benchmarks/cpu.py [name ...] [--threads 1] [--cpu-time]`.

One JSON object a kernel, times in microseconds, interleaved in rounds: medians, and the median ratio of the rounds
with its quartiles. `--cpu-time` takes the CPU seconds of the process and the least of each, for a machine that
others use; it says nothing of how well several threads share the work.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), *(str(p) for p in ROOT.glob("packages/*/src"))]

import torch  # noqa: E402  (after the source tree)
from kernels import KERNELS, KernelCase  # noqa: E402

import intarsia  # noqa: E402

Call = Callable[..., Any]
# of a ratio in a geomean: one kernel that is far ahead doesn't make up for many that are behind
CAP = 2.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these kernels")
    parser.add_argument("--alone", action="store_true", help="without torch.compile")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cpu-time", action="store_true", help="CPU seconds, the least of the rounds")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    unknown = set(options.names) - {case.name for case in KERNELS}
    if unknown:
        parser.error(f"no kernel is called {', '.join(sorted(unknown))}")
    rows = []
    for case in KERNELS:
        if not options.names or case.name in options.names:
            rows.append(row(case, options))
            print(json.dumps(rows[-1]), flush=True)
    for line in summary(rows):
        print(line)
    return 1 if any("error" in row for row in rows) else 0


def row(case: KernelCase, options: argparse.Namespace) -> dict[str, Any]:
    """Compile one kernel both ways, compare with eager, and time all in turn."""
    torch.manual_seed(0)
    inputs = case.make("cpu")
    ways: dict[str, Call] = {"eager": case.function}
    ways["ours"] = intarsia.compile(case.function, fullgraph=True, options={"on_error": "raise"})
    if not options.alone:
        torch.compiler.reset()
        ways["torch"] = torch.compile(case.function, fullgraph=True)
    intarsia.reset()
    try:
        with torch.no_grad():
            error = worst(ways["ours"](*inputs), case.function(*inputs))
            times = measure(ways, inputs, options)
    finally:
        gc.collect()
    counts = intarsia.stats()
    found: dict[str, Any] = {"name": case.name, "kernels": counts.kernels_generated, "extern": counts.extern_calls}
    if counts.fallbacks or counts.graphs != 1:
        found["error"] = f"{counts.graphs} graphs, {counts.fallbacks} fallbacks"
    take = min if options.cpu_time else statistics.median
    found |= {f"{way}_us": round(take(of) * 1e6, 1) for way, of in times.items()} | {"off": error}
    for way in ways.keys() - {"ours"}:
        ratios = [theirs / ours for theirs, ours in zip(times[way], times["ours"], strict=True)]
        low, middle, high = (round(q, 3) for q in statistics.quantiles(ratios, n=4))
        least = round(min(times[way]) / min(times["ours"]), 3)
        found |= {f"{way}_over_ours": least if options.cpu_time else middle, f"{way}_quartiles": [low, high]}
    return found


def worst(ours: object, eagers: object) -> float:
    """Return the largest difference over all results, relative to the largest number of each."""
    pairs = zip(*(torch.utils._pytree.tree_leaves(of) for of in (ours, eagers)), strict=True)
    tensors = [(a.double(), b.double()) for a, b in pairs if isinstance(a, torch.Tensor)]
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in tensors)


def measure(ways: dict[str, Call], inputs: tuple[Any, ...], options: argparse.Namespace) -> dict[str, list[float]]:
    """Return seconds a call by way, one for each round, in turn."""
    clock = time.process_time if options.cpu_time else time.perf_counter
    times: dict[str, list[float]] = {way: [] for way in ways}
    repeats = {way: calls_of(call, inputs) for way, call in ways.items()}
    for _ in range(options.rounds):
        for way, call in ways.items():
            start = clock()
            for _ in range(repeats[way]):
                call(*inputs)
            times[way].append((clock() - start) / repeats[way])
    return times


def calls_of(call: Call, inputs: tuple[Any, ...], seconds: float = 0.05) -> int:
    """Return how many calls take about `seconds`, after two that warm up."""
    call(*inputs)
    call(*inputs)
    start = time.perf_counter()
    call(*inputs)
    return max(1, int(seconds / max(time.perf_counter() - start, 1e-6)))


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Say the geomeans, each ratio at most 2, and the least."""
    for way in ("torch", "eager"):
        ratios = {row["name"]: row[f"{way}_over_ours"] for row in rows if f"{way}_over_ours" in row}
        if ratios:
            geomean = math.exp(statistics.fmean(math.log(min(r, CAP)) for r in ratios.values()))
            low = ", ".join(f"{name} {ratio}" for name, ratio in ratios.items() if ratio < 0.95)
            yield f"{way} over ours, {len(ratios)} kernels: geomean {geomean:.3f}; below 0.95: {low or 'none'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
