"""Kernels on a GPU beside the bandwidth floor, eager and torch.compile: `python benchmarks/gpu.py [name ...]`.

One JSON object a kernel. Times are medians of CUDA events, in microseconds, interleaved in rounds, the L2 cache
overwritten before each call, which also lets the host run ahead. The floor is the bytes that must move over the
bandwidth of a copy measured in the same run.

torch.compile's times are those that peer_times.json keeps for the card and the versions; three canaries are timed
again, and the run fails where one is off by more than 3 %. `--measure-peer` times all again and writes the file, in
`$OUT` where there is such a folder; `--alone` leaves torch.compile out.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), *(str(p) for p in ROOT.glob("packages/*/src"))]

import peer_times  # noqa: E402
import torch  # noqa: E402  (after the source tree)
import triton  # noqa: E402
from kernels import KERNELS, KernelCase, bytes_moved  # noqa: E402

ROUNDS = 15
# bound by memory and long enough that rounds agree within 1 %
CANARIES = ("softmax_wide_bf16", "layer_norm_bf16", "sum_all_f32")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these kernels")
    peer = parser.add_mutually_exclusive_group()
    peer.add_argument("--alone", action="store_true", help="without torch.compile")
    peer.add_argument("--measure-peer", action="store_true", help="time torch.compile on all, and keep its times")
    options = parser.parse_args(arguments)
    setup = peer_times.Setup(torch.cuda.get_device_name(), torch.__version__, triton.__version__, "kernels")
    compared = None if options.alone else peer_times.chosen(setup, CANARIES, measure=options.measure_peer)
    rows = list(measure(options.names, compared))
    if options.measure_peer:
        peer_times.keep(setup, rows)
    lines, trusted = peer_times.canary_lines(rows)
    for line in (*summary(rows), *lines):
        print(line)
    return 1 if not trusted or any("error" in row for row in rows) else 0


def measure(names: list[str], compared: peer_times.Comparison | None = None) -> Iterator[dict[str, Any]]:
    """Measure each kernel, or those named; without a comparison, torch.compile is left out."""
    bandwidth = copy_bandwidth()
    unknown = set(names) - {case.name for case in KERNELS}
    if unknown:
        raise SystemExit(f"no kernel is called {', '.join(sorted(unknown))}")
    wanted = compared.names(names) if names and compared is not None else names
    for case in KERNELS:
        if wanted and case.name not in wanted:
            continue
        row = {"kernel": case.name, "card": torch.cuda.get_device_name(), "torch": torch.__version__}
        try:
            with torch.no_grad():
                row |= measured(case, bandwidth, compared)
        except Exception as error:  # the other kernels must still be measured; the failure is a row and the exit status
            row["error"] = f"{type(error).__name__}: {error}"[:3000]
        print(json.dumps(row), flush=True)
        keep(row)
        gc.collect()
        torch.cuda.empty_cache()
        yield row


def keep(row: dict[str, Any]) -> None:
    """Append a row to `$OUT/gpu_kernels.json`, where there is such a folder."""
    if "OUT" in os.environ:
        with (Path(os.environ["OUT"]) / "gpu_kernels.json").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def measured(case: KernelCase, bandwidth: float, compared: peer_times.Comparison | None) -> dict[str, Any]:
    """Check one kernel against eager, and time it."""
    import intarsia

    torch.manual_seed(0)
    inputs = case.make("cuda")
    expected = case.function(*inputs)
    intarsia.reset()
    compiled = intarsia.compile(case.function, options={"on_error": "raise"})
    start = time.perf_counter()
    actual = compiled(*inputs)
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    check(case, inputs, actual, expected)
    del actual
    stats = intarsia.stats()
    calls: dict[str, Callable[..., Any]] = {"eager": case.function, "ours": compiled}
    if compared is not None and compared.measures(case.name):
        torch._dynamo.reset()
        calls["inductor"] = torch.compile(case.function, dynamic=False)
        start = time.perf_counter()
        calls["inductor"](*inputs)
        torch.cuda.synchronize()
        peer_first = time.perf_counter() - start
    floor = 1e6 * bytes_moved(inputs, expected) / bandwidth
    del expected
    times = interleaved(calls, inputs)
    if compared is not None and not compared.measures(case.name):
        kept = compared.kept[case.name]
        times["inductor"], peer_first = [kept.time] * ROUNDS, kept.first_s
    row: dict[str, Any] = {f"{name}_us": round(statistics.median(t), 2) for name, t in times.items()}
    row |= {"floor_us": round(floor, 2), "kernels": stats.kernels_generated, "externs": stats.extern_calls}
    row |= {"fallbacks": stats.fallbacks, "first_s": round(first, 2), "memory_bound": case.memory_bound}
    if case.memory_bound:
        row["of_floor"] = round(min(1.0, floor / row["ours_us"]), 3)
    if compared is not None:
        ratios = sorted(t / o for t, o in zip(times["inductor"], times["ours"], strict=True))
        row |= {"ratio": round(statistics.median(ratios), 3), "low": round(ratios[2], 3), "high": round(ratios[-3], 3)}
        row["inductor_first_s"] = round(peer_first, 2)
        row |= compared.of_row(case.name, row["inductor_us"])
    return row


def check(case: KernelCase, inputs: tuple[Any, ...], actual: Any, expected: Any) -> None:
    """Raise an AssertionError where a result is neither close to eager's nor as near to the truth.

    The truth is the same function in float64. The largest error may be twice eager's, three times for half types.
    """
    try:
        torch.testing.assert_close(leaves(actual), leaves(expected))
        return
    except AssertionError as error:
        differ = error
    exact = leaves(case.function(*torch.utils._pytree.tree_map(widened, inputs)))
    for ours, theirs, true in zip(leaves(actual), leaves(expected), exact, strict=True):
        allowed = (3 if ours.dtype.itemsize == 2 else 2) * (theirs - true).abs().max()
        if not ours.is_floating_point() or not (ours - true).abs().max() <= allowed:
            raise differ


def widened(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def leaves(value: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def interleaved(calls: dict[str, Callable[..., Any]], inputs: tuple[Any, ...]) -> dict[str, list[float]]:
    """Return microseconds a round and name."""
    # 1 GiB: long enough that the host has enqueued the call before the card comes to it, whichever compiler made it
    flush = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + 3):
        for name, call in calls.items():
            flush.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call(*inputs)
            end.record()
            end.synchronize()
            if number >= 3:
                times[name].append(1e3 * start.elapsed_time(end))
    return times


def copy_bandwidth() -> float:
    """Return bytes a second that a copy of 1 GiB reads and writes together."""
    source = torch.empty(1 << 28, device="cuda")
    target = torch.empty_like(source)
    times = interleaved({"copy": target.copy_}, (source,))["copy"]
    return 2 * source.numel() * source.element_size() / (1e-6 * statistics.median(times))


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the figures."""
    good = [row for row in rows if "error" not in row]
    bound = [row["of_floor"] for row in good if row["memory_bound"]]
    if bound:
        yield f"fraction of the floor, geomean over {len(bound)}: {geomean(bound):.3f} (target 0.85)"
    ratios = [min(2.0, row["ratio"]) for row in good if "ratio" in row]
    if ratios:
        n_kept = sum(str(row.get("peer")).startswith("kept") for row in good)
        against = f"torch.compile ({n_kept} kept times)" if n_kept else "torch.compile"
        yield f"against {against}, geomean over {len(ratios)}, at most 2 each: {geomean(ratios):.3f} (target 1.1)"
    yield f"failed: {', '.join(row['kernel'] for row in rows if 'error' in row) or 'none'}"


def geomean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
