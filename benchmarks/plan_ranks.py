"""How well predicted times rank plans: Spearman's rank of predicted against measured time over random legal plans.

    python benchmarks/plan_ranks.py ranks.json                                   # 4 programs, 40 plans each
    python benchmarks/plan_ranks.py ranks.json --programs softmax,block --plans 10 --cost calibration.json
    python benchmarks/plan_ranks.py ranks.json --device cuda --cost calibration.json    # larger sizes: `--times`

Models are the target's roofline, `intarsia_study.walked_us`, which prices what a plan's schedule makes, by the target's
peaks, and with a calibration the two models in it: `calibrated`, which sees kernels, and `walks, calibrated`, which
sees their schedule. Plans of which the same kernels are printed are one. The file has every plan, what each model
predicts for it, its time and the ranks. It is written after each batch; run again, the command goes on where the file
ends. A batch is measured in turn with the plan without fusion, and a plan's time is relative to that one's of its
batch, so what else the machine does between batches costs little. Times are those of `intarsia_study.measure`, in
generated kernels: CPU time of one thread, or a GPU's between events; of the best of the rounds.
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

import intarsia_cpp
import intarsia_triton
from intarsia_fuser import AtRandom, Calibrated, CostModel, FusionPlan, NoFusion, Roofline, apply_program
from intarsia_runtime import detect_target
from intarsia_scheduler import Measured, scheduled, walks_of_json
from intarsia_study import StudyProgram, measure, programs_of, spearman, walked_us

BATCH = {"cpu": 8, "cuda": 20}  # plans that are built side by side, and measured in turn
TRIES = 20  # seeds for each plan, of which most give one that there is already where few are legal


def softmax(times: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Softmax of 512 rows of 1024, as many times."""
    return lambda x: torch.softmax(x * 0.5 + 1.0, -1), (torch.randn(512 * times, 1024),)


def norm(times: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A residual and a layer norm of 512 rows of 768, as many times."""

    def run(x: Any, y: Any, w: Any, b: Any) -> Any:
        z = x + F.gelu(y)
        return z, F.layer_norm(z, (768,), w, b)

    x, y = torch.randn(512 * times, 768), torch.randn(512 * times, 768)
    return run, (x, y, torch.randn(768), torch.randn(768))


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


def stage(times: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A stage of ResNet-18: two blocks of so many images of 64 x 56 x 56, in evaluation."""
    return torch.nn.Sequential(_Block(64), _Block(64)).eval(), (torch.randn(times, 64, 56, 56),)


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
        weights = torch.softmax(scores.masked_fill(torch.ones(length, length, device=x.device).tril() == 0, -1e9), -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


def block(times: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A block of GPT-2: 2 sequences of 128, 256 wide, 4 heads, as many times."""
    return _Transformer(256, 4).eval(), (torch.randn(2 * times, 128, 256),)


PROGRAMS: Mapping[str, Callable[[int], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "softmax": softmax, "norm": norm, "stage": stage, "block": block,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the file lacks, and print the ranks."""
    options = _arguments().parse_args(argv)
    data = json.loads(options.file.read_text(encoding="utf-8")) if options.file.exists() else {}
    # where two plans differ by the last bit of a number, TF32 would make that its tenth
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    for name in options.programs.split(","):
        program = program_of(name, options.device, options.times or (16 if options.device == "cuda" else 1))
        machine = torch.cuda.get_device_name() if program.target.is_gpu else platform.machine()
        found = data.setdefault(name, {"machine": f"{machine} {program.target.isa}", "plans": {}, "ranks": {}})
        models = models_of(program, options.cost)
        for batch in [*batches(program, options.plans, found["plans"]), {}]:
            found["plans"] |= times_of(program, batch, options.rounds) if batch else {}
            found["ranks"] = ranks(program, found["plans"], models)
            options.file.write_text(json.dumps(data, indent=1), encoding="utf-8")
            print(f"{name}: {len(found['plans'])} plans", file=sys.stderr, flush=True)
        relative = [p["relative"] for p in found["plans"].values()]
        least, most = min(relative, default=0.0), max(relative, default=0.0)
        print(
            f"{name}: {len(relative)} plans, {least:.2f} to {most:.2f} of no fusion, ranks {found['ranks']}", flush=True
        )
    return 0


def program_of(name: str, device: str, times: int) -> StudyProgram:
    """Return a program by its name, on a device."""
    torch.manual_seed(0)
    function, arguments = PROGRAMS[name](times)
    if isinstance(function, torch.nn.Module):
        function.to(device)
    target = detect_target(torch.device(device), threads=1) if device == "cuda" else None
    (program,) = programs_of(function, *(x.to(device) for x in arguments), name=name, target=target)
    return program


def models_of(program: StudyProgram, calibration: Path | None) -> dict[str, Callable[[FusionPlan], float]]:
    """Return what predicts a plan's microseconds, by name."""
    models: dict[str, Callable[[FusionPlan], float]] = {
        "roofline": partial(_by_cost, program, Roofline.of(program.target)),
        "walks": lambda plan: walked_us(program.program, plan, program.target),
    }
    if calibration is not None:
        text = calibration.read_text(encoding="utf-8")
        prices = walks_of_json(text)
        models["calibrated"] = partial(_by_cost, program, Calibrated.from_json(text))
        models["walks, calibrated"] = lambda plan: walked_us(program.program, plan, program.target, prices)
    return models


def batches(program: StudyProgram, wanted: int, known: Mapping[str, Any]) -> Iterator[dict[str, FusionPlan]]:
    """Yield random plans of which different kernels are printed, by their seeds, without those that are known."""
    seen: set[tuple[Any, ...]] = set()
    texts: set[str] = set()
    batch: dict[str, FusionPlan] = {}
    for seed in range(wanted * TRIES):
        if len(texts) >= wanted:
            break
        plan = program.plan(AtRandom(seed), cost=Roofline.of(program.target))  # any: it draws from what is legal
        if plan.decisions in seen:
            continue
        seen.add(plan.decisions)
        text = printed(program, plan)
        if text in texts:  # other decisions that come to the same: which of them is faster is chance
            continue
        texts.add(text)
        if str(seed) not in known:
            batch[str(seed)] = plan
        if len(batch) == BATCH[program.target.device]:
            yield batch
            batch = {}
    if batch:
        yield batch


def printed(program: StudyProgram, plan: FusionPlan) -> str:
    """Return the source of a plan's kernels."""
    kernels = apply_program(program.program, plan)
    emit = intarsia_triton.emit_unit if program.target.is_gpu else intarsia_cpp.emit_unit
    return emit(scheduled(kernels, program.target, Measured(merges=False), check=False).launches).text


def times_of(program: StudyProgram, batch: Mapping[str, FusionPlan], rounds: int) -> dict[str, dict[str, Any]]:
    """Return the best microseconds of each plan of a batch, and what part they are of those without fusion."""
    plans = [program.plan(NoFusion()), *batch.values()]
    base, *timed = measure(program.program, plans, program.inputs, target=program.target, rounds=rounds).plans
    return {
        seed: {"us": round(t.best_us, 2), "relative": t.best_us / base.best_us, "kernels": len(t.kernels)}
        for seed, t in zip(batch, timed, strict=True)
    }


def ranks(
    program: StudyProgram, plans: dict[str, dict[str, Any]], models: Mapping[str, Callable[[FusionPlan], float]]
) -> dict[str, float]:
    """Return each model's rank, and keep what it predicts with the plans."""
    found: dict[str, float] = {}
    for seed, plan in plans.items():
        made = program.plan(AtRandom(int(seed)), cost=Roofline.of(program.target))
        plan["predicted"] = {name: round(predict(made), 3) for name, predict in models.items()}
    for name in models:
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
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--times", type=int, default=0, help="how large programs are (default: 1, on a GPU 16)")
    parser.add_argument("--plans", type=int, default=40, help="random legal plans of each program")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of timing")
    parser.add_argument(
        "--cost", type=Path, help="a calibration, as intarsia_study.calibrate makes it, beside the roofline"
    )
    return parser


if __name__ == "__main__":
    with torch.no_grad():
        raise SystemExit(main())
