"""What a change costs: the 25 kernels, or first calls, of a commit and of this tree, in turn.

    python benchmarks/before_after.py 2862adf [kernel ...] [--device cuda] [--rounds 9]
    python benchmarks/before_after.py 2862adf --first-calls [model ...] [--rounds 5]

The commit's packages are unpacked in a temporary folder, and a process of each side does the same, in turn. Of kernels
it is the CPU time of one thread, or on a GPU the time between events; of first calls that of a fresh process with an
empty cache, imports and the model apart, processes that it starts counted. One JSON object a row: the least
microseconds of both sides (of first calls, the median seconds), and the median ratio, before over after, with its
quartiles.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))
SIDES = ("before", "after")
FIRST_CALLS = ("bert-12", "gpt2-12", "bert-2-training")
LEAST_S = 0.02  # of calls that one time is taken of


class Side:
    """A process that makes kernels and times them when it is told to."""

    def __init__(self, tree: Path, device: str) -> None:
        command = [sys.executable, __file__, "--child", device]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment(tree), **pipes)

    def ask(self, question: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(question, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the process for {question!r} ended")
        return json.loads(answer)


def environment(tree: Path, **more: str) -> dict[str, str]:
    packages = os.pathsep.join(str(path) for path in sorted(tree.glob("packages/*/src")))
    return {**os.environ, "PYTHONPATH": packages, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **more}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--first-calls", action="store_true", help=f"of models: {', '.join(FIRST_CALLS)}")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_intermixed_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        trees = dict(zip(SIDES, (unpacked(options.commit, Path(name)), ROOT), strict=True))
        for tree in trees.values():
            for extension in ("intarsia_framehook", "intarsia_guards"):
                command = [sys.executable, "-m", f"{extension}.build"]
                subprocess.run(command, env=environment(tree), check=True, stdout=subprocess.DEVNULL)
        rows = (first_calls if options.first_calls else kernels)(trees, options)
    ratios = [row["ratio"] for row in rows]
    geomean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"before over after, geomean over {len(ratios)}: {geomean:.3f}, the least {min(ratios):.3f}")
    return 0


def unpacked(commit: str, folder: Path) -> Path:
    """Return the folder with the packages of a commit."""
    archive = subprocess.run(["git", "archive", commit, "packages"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    (folder / "tree.tar").write_bytes(archive.stdout)
    with tarfile.open(folder / "tree.tar") as tar:
        tar.extractall(folder, filter="data")
    return folder


def kernels(trees: dict[str, Path], options: argparse.Namespace) -> list[dict[str, Any]]:
    from kernels import KERNELS

    sides = {side: Side(tree, options.device) for side, tree in trees.items()}
    rows = []
    for case in KERNELS:
        if options.names and case.name not in options.names:
            continue
        for side in sides.values():
            side.ask(case.name)
        times: dict[str, list[float]] = {side: [] for side in SIDES}
        for number in range(options.rounds):
            for side in SIDES if number % 2 else SIDES[::-1]:
                times[side].append(sides[side].ask("time"))
        rows.append(row_of(case.name, times, lambda t: round(1e6 * min(t), 1)))
    for side in sides.values():
        side.process.kill()
    return rows


def first_calls(trees: dict[str, Path], options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for model in options.names or FIRST_CALLS:
        times: dict[str, list[float]] = {side: [] for side in SIDES}
        for number in range(options.rounds):
            for side in SIDES if number % 2 else SIDES[::-1]:
                with tempfile.TemporaryDirectory() as cache:
                    told = environment(trees[side], INTARSIA_CACHE_DIR=cache)
                    command = [sys.executable, __file__, "--first", model]
                    done = subprocess.run(command, env=told, check=True, stdout=subprocess.PIPE, text=True)
                times[side].append(float(done.stdout.splitlines()[-1]))
        rows.append(row_of(model, times, lambda t: round(statistics.median(t), 3)))
    return rows


def row_of(name: str, times: dict[str, list[float]], told: Callable[[list[float]], float]) -> dict[str, Any]:
    ratios = sorted(old / new for old, new in zip(times["before"], times["after"], strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    best = min(times["before"]) / min(times["after"])
    spread = [round(low, 3), round(high, 3)]
    sides = {side: told(times[side]) for side in SIDES}
    found = {"name": name, **sides, "ratio": round(middle, 3), "quartiles": spread, "of the least": round(best, 3)}
    print(json.dumps(found), flush=True)
    return found


def child(device: str) -> None:
    """Answer questions: the name of a kernel makes it, `time` gives the seconds of one call."""
    import torch
    from kernels import KERNELS

    import intarsia

    torch.set_num_threads(1)
    cases = {case.name: case for case in KERNELS}
    call: Callable[[], Any] | None = None
    for line in sys.stdin:
        question = line.strip()
        if question == "time":
            assert call is not None
            print(json.dumps(seconds(call, device)), flush=True)
            continue
        torch.manual_seed(0)
        inputs = cases[question].make(device)
        compiled = intarsia.compile(cases[question].function, options={"on_error": "raise"})
        call = without_gradients(compiled, inputs)
        call()
        print(json.dumps(intarsia.stats().kernels_generated), flush=True)


def without_gradients(compiled: Callable[..., Any], inputs: tuple[Any, ...]) -> Callable[[], Any]:
    import torch

    def call() -> Any:
        with torch.no_grad():
            return compiled(*inputs)

    return call


def seconds(call: Callable[[], Any], device: str) -> float:
    """Return the seconds of one call: CPU time, or between events on a GPU."""
    import torch

    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)
        start.record()
        for _ in range(10):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e4
    begun, n = time.process_time(), 0
    while n == 0 or time.process_time() - begun < LEAST_S:
        call()
        n += 1
    return (time.process_time() - begun) / n


def first(name: str) -> None:
    """Print the CPU seconds of a model's first call."""
    import intarsia

    compiler = intarsia.compile  # of the side's tree: what is imported next puts this one first
    import torch
    from warm import model_of

    torch.manual_seed(0)
    kind, n_layers, *mode = name.split("-")
    model, ids = model_of(kind, int(n_layers)).train(bool(mode)), torch.randint(0, 99, (2, 16))
    start = time.process_time()
    with torch.set_grad_enabled(bool(mode)):
        result = compiler(model, options={"on_error": "raise"})(ids)[0]
        if mode:
            result.square().sum().backward()
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(time.process_time() - start + others.ru_utime + others.ru_stime)


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(sys.argv[2])
    elif sys.argv[1] == "--first":
        first(sys.argv[2])
    else:
        raise SystemExit(main(sys.argv[1:]))
