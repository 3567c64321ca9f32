"""Run the demo: `python -m integration.demo [--own] [--quick] [--json PATH] [model ...]`."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from integration.demo import run_own
from integration.models import EXTRA, HUGGING_FACE, MODELS

# the models of the geomeans, then those that have a figure of their own
ALL = [*MODELS, *(spec.name for spec in EXTRA)]
ROOT = Path(__file__).resolve().parent.parent.parent


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m integration.demo", description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*ALL, []], help="only these models")
    parser.add_argument("--own", action="store_true", help="only our own front end; no other compiler is touched")
    parser.add_argument("--quick", action="store_true", help="leave the first-call measurements out")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args(arguments)
    if options.own:
        return run_own()

    def keep(rows: list[dict[str, Any]]) -> None:
        # after every row, so that a run that is stopped keeps what it measured
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")

    rows = measure_all(options.models or ALL, keep, first_calls=not options.quick)
    show(rows)
    return report(rows)


def measure_all(
    names: list[str], keep: Callable[[list[dict[str, Any]]], None], *, first_calls: bool
) -> list[dict[str, Any]]:
    """Measure every model on every route, each in fresh processes; `keep` is given the rows after each one."""
    routes = [(n, r) for n in names for r in routes_of(n)]
    rows = []
    total = len(routes) * (3 if first_calls else 1)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory() as caches,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("compiling", total=total)

        def begin(what: str) -> None:
            progress.update(task, description=what)
            if not progress.console.is_terminal:  # there a bar is drawn only once, at the end
                print(f"{progress.tasks[0].completed:.0f} of {total} done; {what}", file=sys.stderr, flush=True)

        theirs: dict[str, Any] = {}
        for name, route in routes:
            row: dict[str, Any] = {"model": name, "route": route}
            if first_calls:
                if name not in theirs:
                    begin(f"{name}: torch.compile, first call")
                    theirs[name] = child("first", name, "torch", caches)
                progress.advance(task)
                begin(f"{name}: intarsia ({route}), first call")
                ours = child("first", name, route, caches)
                progress.advance(task)
                row |= {"torch_first": theirs[name], "intarsia_first": ours}
            begin(f"{name}: compared with eager, then steady state ({route})")
            row |= child("steady", name, route, caches)
            progress.advance(task)
            rows.append(row)
            keep(rows)
    return rows


def routes_of(name: str) -> tuple[str, ...]:
    """Return the routes of a model: those of the demo go through torch.compile's front end, too."""
    return ("backend", "own") if name in MODELS else ("own",)


def child(kind: str, name: str, route: str, caches: str) -> dict[str, Any]:
    """Measure in a fresh process.

    Each compiler has a cache directory a model and route under `caches`: empty at its first call, and reused where the
    steady state is timed, which needs the kernels but not the wait for them.
    """
    ours = "none" if route == "torch" else route
    env = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/torch-{name}",
        "INTARSIA_CACHE_DIR": f"{caches}/intarsia-{name}-{ours}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "integration.demo.measure", kind, name, route]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1], "stderr": done.stderr[-4000:]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    console = Console(width=None if sys.stdout.isatty() else 190)
    table = Table(title=f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32, no_grad")
    heads = (
        "model",
        "route",
        "result",
        "eager ms",
        "torch.compile ms",
        "intarsia ms",
        "ratio (spread)",
        "first call s: torch.compile",
        "intarsia",
        "kernels",
        "fused ops",
        "extern calls",
        "breaks",
        "fallbacks",
    )
    for head in heads:
        is_text = head in heads[:3]
        width = max(map(len, [head, *[row["model"] for row in rows]])) if head == "model" else None
        table.add_column(head, justify="left" if is_text else "right", min_width=width, no_wrap=head == "model")
    for row in rows:
        table.add_row(*cells(row))
    console.print(table)
    for row in rows:
        if row.get("error"):
            console.print(f"{row['model']} ({row['route']}): {row['error']}", markup=False)
        for reason in row.get("break_reasons", ()):
            console.print(f"  break in {row['model']}: {reason}", markup=False)


def cells(row: dict[str, Any]) -> list[str]:
    """Return the texts of one row."""
    if row.get("error"):
        return [row["model"], row["route"], "FAILED"]  # what differs is said below the table
    firsts = [f"{row[k]['wall']:.2f}" if "wall" in row.get(k, {}) else "-" for k in ("torch_first", "intarsia_first")]
    spread = f"{row['ratio']:.2f} ({row['ratio_low']:.2f}-{row['ratio_high']:.2f})"
    times = [f"{row[k]:.3f}" for k in ("eager_ms", "torch_ms", "intarsia_ms")]
    counts = [str(row.get(k, "-")) for k in ("kernels", "fused", "extern_calls", "breaks", "fallbacks")]
    return [row["model"], row["route"], row["result"], *times, spread, *firsts, *counts]


def report(rows: list[dict[str, Any]]) -> int:
    """Print the figures that the project is held to; return 1 when a must is missed."""
    failed = [
        r["model"]
        for r in rows
        if r.get("error") or any("error" in r.get(first, {}) for first in ("torch_first", "intarsia_first"))
    ]
    own = [r for r in rows if r["route"] == "own" and r["model"] in MODELS]
    ratios = [
        r["intarsia_first"]["wall"] / r["torch_first"]["wall"]
        for r in own
        if "wall" in r.get("torch_first", {}) and "wall" in r.get("intarsia_first", {})
    ]
    if ratios:
        geomean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"first call, geomean over {len(ratios)} models: {geomean:.3f} of torch.compile's (target 0.25)")
    steady = [min(2.0, r["ratio"]) for r in own if "ratio" in r]
    if steady:
        geomean = math.exp(sum(map(math.log, steady)) / len(steady))
        print(f"steady state, geomean over {len(steady)} models, each ratio at most 2: {geomean:.3f}x torch.compile")
    plain = [r for r in rows if r["model"] not in {s.name for s in HUGGING_FACE} and not r.get("error")]
    broken = [r["model"] for r in plain if r["breaks"] or r["fallbacks"]]
    back_half = [r["model"] for r in rows if r["route"] == "backend" and r.get("fallbacks")]
    for what, names in (("failed", failed), ("broke or fell back", broken), ("back half fell back", back_half)):
        print(f"{what}: {', '.join(names) or 'none'}")
    return 1 if failed or broken or back_half else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
