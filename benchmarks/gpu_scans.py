"""Scans, scatters and reductions of unknown size on a GPU, beside eager and torch.compile.

`python benchmarks/gpu_scans.py` prints a Markdown row a case: microseconds, medians of CUDA events over interleaved
rounds, the L2 cache overwritten before each call. Each case is first compared with eager, and asserts one graph without
a fallback.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), *(str(p) for p in ROOT.glob("packages/*/src"))]

import torch  # noqa: E402  (after the source tree)
from gpu import interleaved  # noqa: E402

import intarsia  # noqa: E402


@dataclass(frozen=True, slots=True)
class Case:
    """One function of one tensor.

    Args:
        name: Of the row.
        function: What is compiled.
        shape: Of the tensor, in float32.
        dynamic: Whether sizes are symbols.
    """

    name: str
    function: Callable[[torch.Tensor], Any]
    shape: tuple[int, ...]
    dynamic: bool = False


def scattered(x: torch.Tensor) -> torch.Tensor:
    places = torch.arange(x.shape[0], device=x.device) * 7919 % 50000
    return torch.zeros(50000, x.shape[1], device=x.device).index_add(0, places, x)


CASES = (
    Case("cumsum, one row of 2^26", lambda x: x.cumsum(0), (1 << 26,)),
    Case("cumsum, one row of 2^20", lambda x: x.cumsum(0), (1 << 20,)),
    Case("cumsum along rows of 4096", lambda x: x.cumsum(1), (16384, 4096)),
    Case("cumsum along rows of 16384", lambda x: x.cumsum(1), (4096, 16384)),
    Case("cumsum along 64 rows of 2^20", lambda x: x.cumsum(1), (64, 1 << 20)),
    Case("cumsum down 4096 columns", lambda x: x.cumsum(0), (16384, 4096)),
    Case("cumsum down 64 columns", lambda x: x.cumsum(0), (1 << 20, 64)),
    Case("cumsum along the middle", lambda x: x.cumsum(1), (64, 4096, 256)),
    Case("index_add of 16384 rows", scattered, (16384, 256)),
    Case("sum of 2^24, size unknown", lambda x: x.sum(), (1 << 24,), dynamic=True),
    Case("sum of a matrix, sizes unknown", lambda x: (x * x).sum(), (8192, 2048), dynamic=True),
    Case("mean of columns, sizes unknown", lambda x: x.mean(0), (16384, 768), dynamic=True),
    Case("maximum of few rows, sizes unknown", lambda x: x.amax(1), (4, 1 << 22), dynamic=True),
)


def main(names: list[str]) -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print("| case | eager | torch.compile | intarsia | torch.compile / intarsia |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for case in CASES:
        if not names or case.name in names:
            print(row(case), flush=True)


@torch.no_grad()
def row(case: Case) -> str:
    """Check and time one case."""
    torch.manual_seed(0)
    x = torch.randn(case.shape, device="cuda")
    intarsia.reset()
    torch._dynamo.reset()
    calls = {
        "eager": case.function,
        "torch.compile": torch.compile(case.function, dynamic=case.dynamic),
        "intarsia": intarsia.compile(case.function, dynamic=case.dynamic, options={"on_error": "raise"}),
    }
    exact = case.function(x.double() if case.function is not scattered else x)
    far = (calls["intarsia"](x) - exact).abs().max()
    assert far <= 1e-5 * exact.abs().max() + 3 * (case.function(x) - exact).abs().max(), f"{case.name}: {far} off"
    stats = intarsia.stats()
    assert (stats.graphs, stats.fallbacks) == (1, 0), stats
    assert stats.kernels_generated > 0, stats
    times = interleaved(calls, (x,))
    ratio = statistics.median(t / o for t, o in zip(times["torch.compile"], times["intarsia"], strict=True))
    shown = " | ".join(f"{statistics.median(t):.0f}" for t in times.values())
    return f"| {case.name} | {shown} | {ratio:.2f} |"


if __name__ == "__main__":
    main(sys.argv[1:])
