"""Make the file of a calibrated cost model: measure kernels of random plans, and fit a price to each thing they do.

    python -m intarsia_study.calibrate calibration.json [--plans 12] [--rounds 3]

The programs below cover what emitters do: chains, dear functions, folds along and across rows, softmax, norms,
transposes, broadcasts, scans, small and large. Every kernel of every plan is a sample. The prices minimise the squares
of relative errors over all samples, and none is negative.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import intarsia_runtime
from intarsia_fuser import AtRandom, Calibrated, FusionGraph, NoFusion, features
from intarsia_fuser.calibrated import COMPUTING, MOVING
from intarsia_study.measure import measure
from intarsia_study.programs import StudyProgram, programs_of

__all__ = ["PROGRAMS", "calibrate", "fit", "samples"]

Sample = tuple[Mapping[str, float], float]

PROGRAMS: Mapping[str, Callable[[torch.Tensor], Any]] = {
    "chain": lambda x: torch.tanh(torch.exp(x) * 2 + x) - x.abs(),
    "gelu": lambda x: torch.nn.functional.gelu(x + 1.0) * x,
    "log_softmax": lambda x: torch.log_softmax(x * 0.5, dim=-1),
    "softmax_of_columns": lambda x: torch.softmax(x, dim=0),
    "rms_norm": lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6),
    "centred": lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5),
    "row_sums": lambda x: (x.exp().sum(-1), x.amax(-1)),
    "column_sums": lambda x: (torch.sin(x) + x).sum(0),
    "transposed": lambda x: torch.relu(x.t().contiguous() + x.t()),
    "broadcast": lambda x: (x + x[0]) * torch.sigmoid(x[:, :1]),
    "running": lambda x: torch.cumsum(x * 2, dim=-1),
    "everything": lambda x: ((x - 1) * x).sum() + x,
}
SHAPES = ((64, 48), (96, 512), (384, 640), (768, 1024))


def samples(study: StudyProgram, *, plans: int, rounds: int, seed: int = 1000) -> list[Sample]:
    """Return the features and the best microseconds of every kernel of random plans of a program.

    Args:
        study: The program.
        plans: How many plans, beside the one without fusion.
        rounds: As `measure` takes them.
        seed: Of the first random plan.
    """
    made = {p.decisions: p for p in (study.plan(NoFusion()), *(study.plan(AtRandom(seed + k)) for k in range(plans)))}
    found: list[Sample] = []
    for timed in measure(study.program, list(made.values()), study.inputs, target=study.target, rounds=rounds).plans:
        graph = FusionGraph.of(study.program, target=study.target)
        for decision in timed.plan.decisions:
            graph.apply(decision)
        for kernel in timed.kernels:
            found.append((features(graph.work(kernel.writes[0])), kernel.best_us))
    return found


def fit(found: Sequence[Sample], *, rounds: int = 12) -> dict[str, float]:
    """Return nanoseconds for each feature: least squares of relative errors, none negative.

    Of moving and computing the dearer one counts, which makes the squares no quadratic form: in each round every sample
    is given to the side that is dearer by the prices so far, and the prices are fitted anew.

    Raises:
        ValueError: There are no samples.

    Example:
        >>> prices = fit([({"kernel": 1.0, "light": 0.0}, 2.0), ({"kernel": 1.0, "light": 4.0}, 4.0)])
        >>> {name: round(ns) for name, ns in prices.items()}
        {'kernel': 2000, 'light': 500}
    """
    if not found:
        raise ValueError("no kernel was measured")
    names = list(found[0][0])
    rows = torch.tensor([[f[n] / us for n in names] for f, us in found], dtype=torch.float64)
    moving, computing = (torch.tensor([n in side for n in names]) for side in (MOVING, COMPUTING))
    kept, prices = rows, _least_squares(rows)
    for _ in range(rounds):
        dear = ((rows * moving) @ prices > (rows * computing) @ prices)[:, None]
        kept = rows.masked_fill(dear & computing, 0.0).masked_fill(~dear & moving, 0.0)
        # a step half of the way, so that two sides don't swap for ever
        prices = (prices + _least_squares(kept)) / 2
    return {n: round(1e3 * float(p), 6) for n, p in zip(names, prices, strict=True)}


def _least_squares(rows: torch.Tensor, sweeps: int = 1000) -> torch.Tensor:
    """The prices, none negative, for which `rows @ prices` is nearest to 1 everywhere, by coordinate descent."""
    scale = rows.norm(dim=0).clamp_min(1e-30)
    scaled = rows / scale
    gram, goal = (scaled.t() @ scaled).tolist(), scaled.sum(0).tolist()
    prices = [0.0] * len(goal)
    for _ in range(sweeps):
        for k, row in enumerate(gram):
            if row[k] > 0:
                error = goal[k] - sum(g * p for g, p in zip(row, prices, strict=True))
                prices[k] = max(0.0, prices[k] + error / row[k])
    made: torch.Tensor = torch.tensor(prices, dtype=torch.float64) / scale
    return made


def calibrate(*, plans: int = 6, rounds: int = 3, told: Callable[[str], None] = lambda line: None) -> Calibrated:
    """Measure this machine's CPU and return its cost model.

    Args:
        plans: Random plans of each program.
        rounds: As `measure` takes them.
        told: Is given a line for each program.
    """
    torch.manual_seed(0)
    target = intarsia_runtime.detect_target(threads=1)
    found: list[Sample] = []
    for name, function in PROGRAMS.items():
        for shape in SHAPES:
            for study in programs_of(function, torch.randn(shape), name=name, target=target):
                found += samples(study, plans=plans, rounds=rounds)
        told(f"{name}: {len(found)} kernels so far")
    return Calibrated(f"{platform.machine()} {target.isa}, 1 thread", tuple(fit(found).items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the calibration of this machine."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--plans", type=int, default=6, help="random plans of each program")
    parser.add_argument("--rounds", type=int, default=3, help="how often each plan runs")
    options = parser.parse_args(arguments)
    made = calibrate(plans=options.plans, rounds=options.rounds, told=lambda line: print(line, file=sys.stderr))
    options.file.write_text(made.to_json(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
