"""How well predicted times rank plans: Spearman's rank of predicted against measured time over random legal plans.

    python benchmarks/plan_ranks.py ranks.json                                   # 4 programs, 40 plans each
    python benchmarks/plan_ranks.py ranks.json --programs softmax,block --plans 10 --cost calibration.json

Models are the target's roofline, `intarsia_study.walked_us`, which prices the loops and vectors that a plan's schedule
makes, and a calibrated one where there is one. The file has every plan, what each model predicts for it, its time and
the ranks. It is written after each batch; run again, the command goes on where the file ends. A batch is measured in
turn with the plan without fusion, and a plan's time is relative to that one's of its batch, so what else the machine
does between batches costs little. Times are those of `intarsia_study.measure`: CPU time of one thread in generated
kernels, of the best of the rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from intarsia_fuser import AtRandom, Calibrated, CostModel, FusionPlan, NoFusion, Roofline
from intarsia_study import StudyProgram, measure, programs_of, spearman, walked_us

BATCH = 8  # plans that are measured in turn
TRIES = 20  # seeds for each plan, of which most give one that there is already where few are legal


def softmax() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Softmax of 512 rows of 1024."""
    return lambda x: torch.softmax(x * 0.5 + 1.0, -1), (torch.randn(512, 1024),)


def norm() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A residual and a layer norm of 512 rows of 768."""

    def run(x: Any, y: Any, w: Any, b: Any) -> Any:
        z = x + F.gelu(y)
        return z, F.layer_norm(z, (768,), w, b)

    return run, (torch.randn(512, 768), torch.randn(512, 768), torch.randn(768), torch.randn(768))


class _Block(torch.nn.Module):
    """A basic block of a residual network."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: Any) -> Any:
        """Return relu(x + f(x))."""
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(y)))


def stage() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A stage of ResNet-18: two blocks of 64 x 56 x 56, in evaluation."""
    return torch.nn.Sequential(_Block(64), _Block(64)).eval(), (torch.randn(1, 64, 56, 56),)


class _Transformer(torch.nn.Module):
    """A block of GPT-2, its attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        """Return x with attention and a feed-forward net added."""
        n, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts[0], parts[1], parts[2]
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        weights = torch.softmax(scores.masked_fill(torch.ones(length, length).tril() == 0, -1e9), -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


def block() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A block of GPT-2: 2 sequences of 128, 256 wide, 4 heads."""
    return _Transformer(256, 4).eval(), (torch.randn(2, 128, 256),)


PROGRAMS: Mapping[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "softmax": softmax, "norm": norm, "stage": stage, "block": block,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the file lacks, and print the ranks."""
    options = _arguments().parse_args(argv)
    data = json.loads(options.file.read_text(encoding="utf-8")) if options.file.exists() else {}
    for name in options.programs.split(","):
        torch.manual_seed(0)
        function, arguments = PROGRAMS[name]()
        (program,) = programs_of(function, *arguments, name=name)
        costs: list[CostModel] = [Roofline.of(program.target)]
        costs += [Calibrated.from_json(options.cost.read_text(encoding="utf-8"))] if options.cost else []
        found = data.setdefault(
            name, {"machine": f"{platform.machine()} {program.target.isa}", "plans": {}, "ranks": {}}
        )
        for batch in batches(program, options.plans, found["plans"]):
            found["plans"] |= times_of(program, batch, options.rounds)
            found["ranks"] = ranks(program, found["plans"], costs)
            options.file.write_text(json.dumps(data, indent=1), encoding="utf-8")
            print(f"{name}: {len(found['plans'])} plans", file=sys.stderr, flush=True)
        found["ranks"] = ranks(program, found["plans"], costs)
        options.file.write_text(json.dumps(data, indent=1), encoding="utf-8")
        slowest = max((p["relative"] for p in found["plans"].values()), default=0.0)
        fastest = min((p["relative"] for p in found["plans"].values()), default=0.0)
        print(
            f"{name}: {len(found['plans'])} plans, {fastest:.2f} to {slowest:.2f} of no fusion, ranks {found['ranks']}"
        )
    return 0


def batches(program: StudyProgram, wanted: int, known: Mapping[str, Any]) -> Iterator[dict[str, FusionPlan]]:
    """Yield random plans that differ in what they decide, by their seeds, without those that are known."""
    seen: set[tuple[Any, ...]] = set()
    batch: dict[str, FusionPlan] = {}
    for seed in range(wanted * TRIES):
        plan = program.plan(AtRandom(seed))
        if plan.decisions in seen or len(seen) >= wanted:
            continue
        seen.add(plan.decisions)
        if str(seed) not in known:
            batch[str(seed)] = plan
        if len(batch) == BATCH:
            yield batch
            batch = {}
    if batch:
        yield batch


def times_of(program: StudyProgram, batch: Mapping[str, FusionPlan], rounds: int) -> dict[str, dict[str, Any]]:
    """Return the best microseconds of each plan of a batch, and what part they are of those without fusion."""
    plans = [program.plan(NoFusion()), *batch.values()]
    base, *timed = measure(program.program, plans, program.inputs, target=program.target, rounds=rounds).plans
    return {
        seed: {"us": round(t.best_us, 2), "relative": t.best_us / base.best_us, "kernels": len(t.kernels)}
        for seed, t in zip(batch, timed, strict=True)
    }


def ranks(program: StudyProgram, plans: dict[str, dict[str, Any]], costs: Sequence[CostModel]) -> dict[str, float]:
    """Return each model's rank, and keep what it predicts with the plans."""
    models: dict[str, Callable[[FusionPlan], float]] = {c.name: partial(_by_cost, program, c) for c in costs}
    models["walks"] = lambda plan: walked_us(program.program, plan, program.target)
    found: dict[str, float] = {}
    for name, predict in models.items():
        for seed, plan in plans.items():
            if name not in plan.setdefault("predicted", {}):
                plan["predicted"][name] = round(predict(program.plan(AtRandom(int(seed)))), 2)
        pairs = [(p["predicted"][name], p["relative"]) for p in plans.values()]
        found[name] = round(spearman([a for a, _ in pairs], [b for _, b in pairs]), 3) if len(pairs) > 2 else 0.0
    return found


def _by_cost(program: StudyProgram, cost: CostModel, plan: FusionPlan) -> float:
    """What a cost model predicts for a plan that was made by another one, or by none."""
    return program.plan(plan, cost=cost).after.predicted_us


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, help="JSON that is written, and gone on with if it is there")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="comma-separated (default: all four)")
    parser.add_argument("--plans", type=int, default=40, help="random legal plans of each program")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of timing")
    parser.add_argument(
        "--cost", type=Path, help="a calibration, as intarsia_study.calibrate makes it, beside the roofline"
    )
    return parser


if __name__ == "__main__":
    with torch.no_grad():
        raise SystemExit(main())
