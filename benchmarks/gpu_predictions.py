"""What a GPU's peaks predict for the kernels of `gpu.py`, beside what they took: no GPU is needed.

    python benchmarks/gpu_predictions.py

Times are those of the first table of `docs/benchmarks.md`, of an H100 whose copies moved 3.0 TB/s. Inputs are memory
that nothing touches.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from intarsia_study.grid_counts import grid_counts

import intarsia_functionalizer
import intarsia_fuser
import intarsia_lowering
from benchmarks.kernels import KERNELS, KernelCase
from intarsia_ir.records import Target
from intarsia_loops import from_fx
from intarsia_scheduler import WalkPrices, arrange, schedule
from intarsia_study import spearman

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
ROW = re.compile(r"\| (\w+_(?:f32|bf16)) \| \d+ \| \d+ \| \d+ \| (\d+) \|")
SM_90 = Target("cuda", "sm_90")
H100 = replace(SM_90, measured=replace(SM_90.machine, gb_per_s=3000.0))


def main() -> None:
    """Print a line a kernel, the rank correlation, and by how much predictions are off on average."""
    kept: dict[str, int] = {}
    for name, us in ROW.findall(PAGE.read_text(encoding="utf-8")):
        kept.setdefault(name, int(us))
    found = [
        (case.name, predicted_us(case), kept[case.name]) for case in KERNELS if is_ours(case) and case.name in kept
    ]
    for name, us, took in found:
        print(f"{name:30} {us:8.1f} us predicted {took:6} us measured")
    off = sum(abs(math.log(us / took)) for _, us, took in found) / len(found)
    rank = spearman([us for _, us, _ in found], [float(took) for *_, took in found])
    print(f"rank correlation {rank:.2f}, off by a factor of {math.exp(off):.2f} on average, {len(found)} kernels")


def is_ours(case: KernelCase) -> bool:
    """Whether all of a kernel's time is generated code's, not a library's."""
    return case.name not in ("attention_bf16", "linear_gelu_bf16")


def predicted_us(case: KernelCase) -> float:
    """Return the microseconds of all launches of a kernel, by the peaks of the machine."""
    with untouched():
        inputs = case.make("cuda")
    aten = intarsia_functionalizer.functionalize(intarsia_functionalizer.to_aten(case.function, inputs))
    loops = intarsia_lowering.lower(aten.graph_module, facts=aten.facts, target=H100)
    plan = intarsia_fuser.plan(loops, policy=intarsia_fuser.Greedy(), target=H100)
    program = from_fx(intarsia_fuser.apply(loops, plan))
    prices = WalkPrices.of(H100)
    launches = arrange(program, schedule(program, H100)).launches
    return sum(prices.kernel_us(grid_counts(launch, H100.machine)) for launch in launches)


@contextmanager
def untouched() -> Iterator[None]:
    """Have random tensors be memory of the CPU that is never written."""

    def empty(*shape: Any, dtype: torch.dtype = torch.float32, **_: Any) -> torch.Tensor:
        return torch.empty(*shape, dtype=dtype)

    def integers(*given: Any, **_: Any) -> torch.Tensor:
        return torch.empty(given[-1], dtype=torch.int64)

    with patch.multiple(torch, randn=empty, rand=empty, randint=integers):
        yield


if __name__ == "__main__":
    main()
