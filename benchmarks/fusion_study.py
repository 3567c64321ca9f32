"""Fusion policies compared on the demo models: kernels, bytes moved, predicted and measured time, plan time.

    python benchmarks/fusion_study.py                               # all policies on all models, as a table
    python benchmarks/fusion_study.py --models softmax,bert --policies greedy,no_fusion --rounds 15
    python benchmarks/fusion_study.py --csv study.csv --json study.json --plans plans/
    python benchmarks/fusion_study.py --scale                       # plan time over program size

Every model is captured once by torch.compile's front end (all graphs of the model count), lowered once, and then
planned, emitted, built and linked per policy. Results are checked against eager before anything is timed. The compiled
graphs run with the very inputs that they were captured with; within a round the policies alternate, and the figure is
the median over rounds, beside the best round. "predicted" is the cost model's time for the generated kernels;
"measured" is the whole model, extern calls included, so its differences between policies are what fusion is worth.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import intarsia_cpp
import intarsia_functionalizer
import intarsia_fuser
import intarsia_loops
import intarsia_rewrites
import intarsia_runtime
import intarsia_scheduler
from intarsia_fuser import FusionPlan, FusionPolicy, Greedy, InductorLike, NoFusion
from intarsia_ir.records import Signature, Target
from intarsia_loops.index import axis, lift
from intarsia_loops.program import Buffer, Kernel, Nest, Program, TensorRef, const, load, val
from intarsia_loops.rewrites import canonical
from integration.models import MODELS, make

POLICIES: dict[str, Callable[[], FusionPolicy]] = {
    "no_fusion": NoFusion,
    "inductor_like": InductorLike,
    "greedy": Greedy,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the study.

    Args:
        model: Name of the demo model.
        policy: Name of the policy.
        nests: Loop nests before fusion.
        kernels: Generated kernels.
        unique: Kernels that differ in more than the names of buffers: what is emitted.
        externs: Extern calls.
        mbytes: Megabytes that the kernels read and write.
        arena_mbytes: Megabytes of intermediates at the peak, by the memory plan.
        predicted_us: The cost model's time for the kernels.
        measured_us: Median time of a call of the whole model; None when nothing was measured.
        best_us: The shortest round's: nearer to the truth when other programs use the machine.
        plan_ms: Time of `plan`.
        apply_ms: Time of `apply`.
    """

    model: str
    policy: str
    nests: int
    kernels: int
    unique: int
    externs: int
    mbytes: float
    arena_mbytes: float
    predicted_us: float
    measured_us: float | None
    best_us: float | None
    plan_ms: float
    apply_ms: float


@dataclass(frozen=True, slots=True)
class Graph:
    """One captured graph, lowered.

    Args:
        loops: FX(loops).
        signature: What its results mean.
        inputs: What it was captured with.
        expected: What the captured graph returns for them in eager.
    """

    loops: Any
    signature: Signature
    inputs: tuple[Any, ...]
    expected: tuple[Any, ...]


def main(argv: Sequence[str] | None = None) -> int:
    options = _arguments().parse_args(argv)
    if options.scale:
        scale()
        return 0
    rows: list[Row] = []
    policies = {name: POLICIES[name]() for name in options.policies.split(",")}
    if options.threads:
        torch.set_num_threads(options.threads)
    target = intarsia_runtime.detect_target(threads=options.threads)
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models.split(","):
            print(f"{model} ...", file=sys.stderr, flush=True)
            cache = intarsia_runtime.Cache(folder)
            rows += study(model, policies, target, cache, options.rounds, options.plans)
    print(table(rows))
    if options.csv:
        write_csv(rows, options.csv)
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n", encoding="utf-8")
    return 0


def study(
    model: str,
    policies: dict[str, FusionPolicy],
    target: Target,
    cache: intarsia_runtime.Cache,
    rounds: int,
    plans: str | None = None,
) -> list[Row]:
    """Return one row per policy for one model.

    Args:
        model: Key of `MODELS`.
        policies: By name.
        target: What is compiled for.
        cache: Where built units go.
        rounds: Rounds of the timing; 0 measures nothing, and then nothing is built.
        plans: Folder for the plans as JSON, if wanted.
    """
    with torch.no_grad():
        graphs = captured(model)
        rows, calls = {}, {}
        for name, policy in policies.items():
            rows[name], kernels = fused(model, name, policy, graphs, plans)
            if rounds:
                calls[name] = compiled(graphs, kernels, target, cache)
        times = interleaved(calls, rounds)
    return [_with(row, **times.get(name, {})) for name, row in rows.items()]


def captured(model: str) -> list[Graph]:
    """Return the graphs of a model, from torch.compile's front end to FX(loops)."""
    found: list[Graph] = []

    def keep(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        expected = tuple(gm(*inputs))
        recorded = intarsia_functionalizer.to_aten(gm, inputs)
        pure = intarsia_functionalizer.functionalize(recorded, check=False)
        aten = pure.graph_module
        for rewrite in (
            intarsia_rewrites.fold_constants,
            intarsia_rewrites.eliminate_common_subexpressions,
            intarsia_rewrites.eliminate_dead_code,
        ):
            aten = rewrite(aten, check=False)
        loops = intarsia_loops.lower(aten, facts=pure.facts)
        found.append(Graph(loops, pure.signature, tuple(inputs), expected))
        return gm.forward

    function, inputs = make(model)
    torch._dynamo.reset()
    torch.compile(function, backend=keep, dynamic=False)(*inputs)
    return found


def fused(
    model: str, name: str, policy: FusionPolicy, graphs: Sequence[Graph], plans: str | None
) -> tuple[Row, list[Any]]:
    """Return the static part of a row, and FX(kernels) of every graph."""
    made: list[FusionPlan] = []
    kernels: list[Any] = []
    plan_s = apply_s = 0.0
    for position, graph in enumerate(graphs):
        start = time.perf_counter()
        made.append(
            intarsia_fuser.plan(graph.loops, policy=policy, target=intarsia_runtime.detect_target(), check=False)
        )
        planned = time.perf_counter()
        kernels.append(intarsia_fuser.apply(graph.loops, made[-1], check=False))
        plan_s, apply_s = plan_s + planned - start, apply_s + time.perf_counter() - planned
        if plans:
            path = Path(plans) / f"{model}.{position}.{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[-1].to_json(), encoding="utf-8")
    programs = [intarsia_loops.from_fx(gm) for gm in kernels]
    distinct = {canonical(item)[0] for p in programs for item in p.items if isinstance(item, Kernel)}
    row = Row(
        model=model,
        policy=name,
        nests=sum(p.before.kernels for p in made),
        kernels=sum(p.after.kernels for p in made),
        unique=len(distinct),
        externs=sum(p.after.externs for p in made),
        mbytes=round(sum(p.after.bytes_moved for p in made) / 1e6, 3),
        arena_mbytes=round(sum(p.placement.arena_bytes for p in programs if p.placement) / 1e6, 3),
        predicted_us=round(sum(p.after.predicted_us for p in made), 1),
        measured_us=None,
        best_us=None,
        plan_ms=round(1e3 * plan_s, 2),
        apply_ms=round(1e3 * apply_s, 2),
    )
    return row, kernels


def compiled(
    graphs: Sequence[Graph], kernels: Sequence[Any], target: Target, cache: intarsia_runtime.Cache
) -> Callable[[], None]:
    """Return a call that runs every graph once, after checking that each gives eager's results."""
    runs: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    for graph, gm in zip(graphs, kernels, strict=True):
        source = intarsia_cpp.emit_unit(intarsia_scheduler.scheduled(gm, target).launches)
        library = intarsia_runtime.build(source, target, cache=cache)
        run = intarsia_runtime.with_epilogue(intarsia_runtime.link(gm, source, library), graph.signature)
        torch.testing.assert_close(tuple(run(*graph.inputs)), graph.expected)
        runs.append((run, graph.inputs))

    def call() -> None:
        for run, inputs in runs:
            run(*inputs)

    return call


def interleaved(calls: dict[str, Callable[[], None]], rounds: int) -> dict[str, dict[str, float]]:
    """Return median and least microseconds a call over the rounds; within a round the calls alternate."""
    repeats = {}
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, min(200, int(0.005 / max(time.perf_counter() - start, 1e-7))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter() - start) / repeats[name])
    return {
        name: {"measured_us": round(1e6 * statistics.median(t), 1), "best_us": round(1e6 * min(t), 1)}
        for name, t in times.items()
        if t
    }


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, a blank line between models."""
    names = [f.name for f in fields(Row)]
    cells = [names] + [[_cell(getattr(r, n)) for n in names] for r in rows]
    widths = [max(len(line[k]) for line in cells) for k in range(len(names))]
    lines = []
    for k, line in enumerate(cells):
        if k > 1 and line[0] != cells[k - 1][0]:
            lines.append("")
        lines.append("  ".join(c.ljust(w) if j < 2 else c.rjust(w) for j, (c, w) in enumerate(zip(line, widths))))
    return "\n".join(lines)


def write_csv(rows: Sequence[Row], path: str) -> None:
    """Write the rows with a header line."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(r) for r in rows)


# ---- plan time over program size -------------------------------------------------------------------------------


def scale() -> None:
    """Print plan and apply time of chains and of wide programs of up to 5,000 nests."""
    print(f"{'shape':6} {'nests':>6} {'policy':14} {'kernels':>8} {'plan ms':>9} {'apply ms':>9} {'us a nest':>10}")
    for shape in ("chain", "wide"):
        for n in (50, 500, 5000):
            program = _large(shape, n)
            for name, make_policy in POLICIES.items():
                start = time.perf_counter()
                made = intarsia_fuser.plan(program, policy=make_policy(), check=False)
                planned = time.perf_counter()
                intarsia_fuser.apply_program(program, made)
                applied = time.perf_counter()
                print(
                    f"{shape:6} {n:6} {name:14} {made.after.kernels:8} {1e3 * (planned - start):9.1f} "
                    f"{1e3 * (applied - planned):9.1f} {1e6 * (applied - start) / n:10.1f}"
                )


def _large(shape: str, n: int) -> Program:
    """`n` maps of 64x64, each reading the one before ("chain") or all reading one input ("wide")."""
    size, one = lift(64), lift(1)
    i, j = axis("i0", 64), axis("i1", 64)
    names = ["x", *(f"b{k}" for k in range(n))]
    buffers = {name: Buffer((size, size), (size, one), "f32") for name in names}
    nests = []
    for k, name in enumerate(names[1:]):
        read = load(names[k] if shape == "chain" else "x", (i, j), "f32")
        body = val(("add", "mul", "max")[k % 3], read, const(float(k), "f32"), dtype="f32")
        nests.append(Nest(name, (i, j), (), "map", body, "f32"))
    outputs = names[-1:] if shape == "chain" else names[1:]
    refs = tuple(TensorRef(name, (size, size), (size, one), lift(0)) for name in outputs)
    return Program(buffers, ("x",), tuple(nests), refs)


# ---- details ---------------------------------------------------------------------------------------------------


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated (default: all)")
    parser.add_argument("--policies", default=",".join(POLICIES), help="comma-separated (default: all)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of timing; 0: static figures only")
    parser.add_argument("--threads", type=int, help="threads of kernels and of torch (default: torch's)")
    parser.add_argument("--csv", help="write the rows to this file")
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--plans", help="write every plan as JSON into this folder")
    parser.add_argument("--scale", action="store_true", help="plan time over program size instead of the study")
    return parser


def _with(row: Row, **changes: Any) -> Row:
    return Row(**{**asdict(row), **changes})


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    raise SystemExit(main())
