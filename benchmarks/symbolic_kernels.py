"""Kernels for symbolic sizes beside the same kernels for constant ones: `python benchmarks/symbolic_kernels.py`.

Each function is what the demo models are made of, and becomes one or a few kernels. It is compiled twice, with
`dynamic=False` and with `dynamic=True` (every size a symbol, but for those that a case calls known), and called at one
size, taking turns. A line gives the median of five ratios of medians, symbolic over static; 1.10 is the limit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

import intarsia

LIMIT = 1.10
ROUNDS = 5


class Case(NamedTuple):
    """A function of tensors of these shapes; `known` dimensions of all of them, from the end, are no symbols."""

    name: str
    function: Callable[..., object]
    shapes: tuple[tuple[int, ...], ...]
    known: tuple[int, ...] = ()


def layer_norm(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Residual and layer norm."""
    return torch.nn.functional.layer_norm(x + y, (x.shape[-1],), w, b)


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Llama's norm."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w


def batch_norm(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """ResNet's norm in inference, and its ReLU."""
    return torch.relu(torch.nn.functional.batch_norm(x, m, v.abs(), w, b))


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Llama's rotation of halves."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


CASES = (
    Case("chain", lambda x: torch.sigmoid(torch.relu((x + 1) * 2) - 0.5), ((1024, 1024),)),
    Case("softmax", lambda x: torch.softmax(x * 2 + torch.sin(x), -1), ((512, 1024),)),
    Case("residual + layer norm", layer_norm, ((512, 768), (512, 768), (768,), (768,))),
    Case("rms norm", rms_norm, ((512, 1024), (1024,))),
    Case("bias + gelu", lambda x, b: torch.nn.functional.gelu(x + b), ((512, 3072), (3072,))),
    Case("silu * gate", lambda x, y: torch.nn.functional.silu(x) * y, ((512, 2048), (512, 2048))),
    Case("batch norm + relu", batch_norm, ((8, 64, 56, 56), (64,), (64,), (64,), (64,))),
    Case("masked softmax", lambda x, m: torch.softmax(x * 0.125 + m, -1), ((4, 12, 128, 128), (4, 1, 1, 128))),
    # a model's head size is a number of its configuration
    Case("rotary", rotary, ((4, 16, 128, 64), (128, 64), (128, 64)), known=(-1,)),
    Case("rotary, any heads", rotary, ((4, 16, 128, 64), (128, 64), (128, 64))),
    Case("heads together", lambda x: x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1) + 0, ((4, 12, 128, 64),)),
    Case("sum of rows", lambda x: x.sum(-1), ((2048, 1024),)),
    Case("sum of columns", lambda x: x.sum(0), ((2048, 1024),)),
    Case("mean over places", lambda x: x.mean((-2, -1)), ((16, 512, 14, 14),)),
    Case("max pool", lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1), ((4, 64, 56, 56),)),
)


def ratios(case: Case, seconds: float, middle: Callable[[list[float]], float]) -> tuple[list[float], float]:
    """Return the ratios of a case, sorted, and the static kernel's microseconds; `middle` sums up the calls."""
    inputs = [torch.randn(shape) for shape in case.shapes]
    runs = []
    for tensor in inputs:
        for dim in case.known:
            intarsia.mark_static(tensor, tensor.dim() + dim)
    for dynamic in (False, True):
        intarsia.reset()
        compiled = intarsia.compile(case.function, dynamic=dynamic, fullgraph=True, options={"on_error": "raise"})
        torch.testing.assert_close(compiled(*inputs), case.function(*inputs), rtol=1e-4, atol=1e-4)
        assert intarsia.stats().kernels_generated and not intarsia.stats().extern_calls, case.name
        runs.append(compiled)
    found, static = [], []
    for _ in range(ROUNDS):
        times: tuple[list[float], list[float]] = ([], [])
        end = time.perf_counter() + seconds / ROUNDS
        while time.perf_counter() < end or len(times[1]) < 5:
            for run, taken in zip(runs, times, strict=True):
                start = time.perf_counter()
                run(*inputs)
                taken.append(time.perf_counter() - start)
        medians = [middle(taken) for taken in times]
        found.append(medians[1] / medians[0])
        static.append(medians[0] * 1e6)
    return sorted(found), statistics.median(static)


def lines(quick: bool) -> Iterator[tuple[str, float | str, str]]:
    """Return the scorecard's lines: each kernel's ratio, symbolic over static."""
    with torch.no_grad():
        for case in CASES[:3] if quick else CASES:
            found, _ = ratios(case, 1.0, statistics.median)
            yield f"symbolic.{case.name.replace(' ', '_')}", found[ROUNDS // 2], f"<= {LIMIT}"


def main(arguments: list[str]) -> int:
    """Print a line a case; 1 when one is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seconds", type=float, default=1.0, help="time per case")
    parser.add_argument("--best", action="store_true", help="least times instead of medians, for a busy machine")
    options = parser.parse_args(arguments)
    slow = []
    print(f"{'kernel':24}{'static us':>10}{'ratio':>7}   all five")
    with torch.no_grad():
        for case in CASES:
            if options.only in case.name:
                found, static = ratios(case, options.seconds, min if options.best else statistics.median)
                ratio = found[ROUNDS // 2]
                slow += [case.name] if ratio > LIMIT else []
                print(f"{case.name:24}{static:10.0f}{ratio:7.2f}   {' '.join(f'{r:.2f}' for r in found)}", flush=True)
    print(f"over {LIMIT}: {', '.join(slow) or 'none'}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
