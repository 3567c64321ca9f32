"""Make the file of a calibrated cost model: measure kernels of random plans, and fit a price to each thing they do.

    python -m intarsia_study.calibrate [calibration.json] [--plans 6] [--rounds 3] [--device cuda]

Without a name the file is the one in the cache of the user where `compile` finds it for this target.

The programs below cover what emitters do: chains, dear functions, folds along and across rows, softmax, norms,
transposes, broadcasts, scans, small and large. Every kernel of every plan is a sample. Two models are fitted to them:
one that prices kernels before they are scheduled, for policies, and one that prices what their schedule makes, for
`walked_us`. Prices minimise the squares of relative errors over all samples, and none is negative.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import intarsia
import intarsia_runtime
from intarsia_fuser import AtRandom, Calibrated, FusionGraph, NoFusion, features
from intarsia_fuser.calibrated import COMPUTING, MOVING
from intarsia_ir.records import Target
from intarsia_scheduler import WalkPrices
from intarsia_study.fitting import fitted_prices
from intarsia_study.measure import measure
from intarsia_study.programs import StudyProgram, programs_of
from intarsia_study.walks import walk_counts
from intarsia_tuner import calibration_path

__all__ = ["PROGRAMS", "Calibration", "KernelSample", "calibrate", "fit", "samples"]

Sample = tuple[Mapping[str, float], float]


@dataclass(frozen=True, slots=True)
class KernelSample:
    """One kernel that was measured.

    Args:
        features: What the model before scheduling prices.
        counts: What the model of its schedule prices.
        us: Microseconds of the best round.
    """

    features: Mapping[str, float]
    counts: Mapping[str, float]
    us: float


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
    "affine": lambda x: torch.relu((x * x[0] + x[1]) * x[2] + x[3]),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x + x[1], x.shape[1:], x[0], x[1]),
    "channels": lambda x: torch.relu(x.unflatten(1, (4, -1)) * x[:, :1, None].exp() + x[:, 1:2, None]),
    "heads": lambda x: _heads(x.unflatten(1, (4, -1)), x.unflatten(1, (2, -1))),
    "masked": lambda x: torch.softmax(torch.where(x[0] > 0, x * 0.5, -9.0), dim=-1),
    "centred_rows": lambda x: (x - x.amax(-1, keepdim=True)) / (1 + x.abs().sum(-1, keepdim=True)),
}


def _heads(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Copies in the orders of axes that attention makes, of which few can be transposed in registers."""
    return x.permute(1, 0, 2) * 1.5, x.permute(1, 2, 0) + 1.0, y.permute(2, 1, 0).contiguous()


SHAPES = ((64, 48), (96, 512), (512, 400), (384, 640), (768, 1024))


# on a GPU, where small ones are launches and nothing else
LARGE_SHAPES = ((512, 640), (4096, 768), (16384, 1024))


def samples(study: StudyProgram, *, plans: int, rounds: int, seed: int = 1000) -> list[KernelSample]:
    """Return what every kernel of random plans of a program does, and how long it takes.

    Args:
        study: The program.
        plans: How many plans, beside the one without fusion.
        rounds: As `measure` takes them.
        seed: Of the first random plan.
    """
    made = {p.decisions: p for p in (study.plan(NoFusion()), *(study.plan(AtRandom(seed + k)) for k in range(plans)))}
    found: list[KernelSample] = []
    for timed in measure(study.program, list(made.values()), study.inputs, target=study.target, rounds=rounds).plans:
        graph = FusionGraph.of(study.program, target=study.target)
        for decision in timed.plan.decisions:
            graph.apply(decision)
        counted = walk_counts(study.program, timed.plan, study.target)
        for kernel, counts in zip(timed.kernels, counted, strict=True):
            found.append(KernelSample(features(graph.work(kernel.writes[0])), counts, kernel.best_us))
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


@dataclass(frozen=True, slots=True)
class Calibration:
    """Both models of a machine.

    Args:
        kernels: Prices kernels before they are scheduled.
        walks: Prices what their schedule makes.
    """

    kernels: Calibrated
    walks: WalkPrices

    def to_json(self) -> str:
        """Return the text that `Calibrated.from_json` and `walks_of_json` read."""
        return json.dumps({**json.loads(self.kernels.to_json()), "walks": self.walks.to_data()}, indent=1) + "\n"


def calibrate(
    *,
    target: Target | None = None,
    plans: int = 6,
    rounds: int = 3,
    told: Callable[[str], None] = lambda line: None,
) -> Calibration:
    """Measure a machine and return its cost models.

    Args:
        target: A CPU with one thread, or the current GPU; None: this machine's CPU.
        plans: Random plans of each program.
        rounds: As `measure` takes them.
        told: Is given a line for each program.
    """
    target = target or intarsia_runtime.detect_target(threads=1)
    found: list[KernelSample] = []
    for name, function in PROGRAMS.items():
        for shape in LARGE_SHAPES if target.is_gpu else SHAPES:
            x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(target.device)
            for study in programs_of(function, x, name=name, target=target):
                found += samples(study, plans=plans, rounds=rounds)
        told(f"{name}: {len(found)} kernels so far")
    machine = torch.cuda.get_device_name() if target.is_gpu else f"{platform.machine()} {target.isa}, 1 thread"
    kernels = Calibrated(machine, tuple(fit([(s.features, s.us) for s in found]).items()))
    return Calibration(kernels, fitted_prices([(s.counts, s.us) for s in found], machine, target))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the calibration of this machine."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="default: where compile finds it")
    parser.add_argument("--plans", type=int, default=6, help="random plans of each program")
    parser.add_argument("--rounds", type=int, default=3, help="how often each plan runs")
    parser.add_argument("--device", default="cpu", help='"cpu", or "cuda": the current GPU')
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    target = intarsia_runtime.detect_target(device if device.type == "cuda" else None, threads=1)
    told: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
    made = calibrate(target=target, plans=options.plans, rounds=options.rounds, told=told)
    path = options.file or calibration_path(intarsia.default_cache_dir(), target)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}")  # no reader sees half of it
    aside.write_text(made.to_json(), encoding="utf-8")
    aside.replace(path)
    told(f"written: {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
