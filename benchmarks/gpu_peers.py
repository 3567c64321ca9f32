"""Fifteen whole models on a GPU beside eager and torch.compile: `python benchmarks/gpu_peers.py [name ...]`.

`--type bf16|f32` of inference, or `--training`: forward and backward of float32 models under autocast to bfloat16. One
JSON object a model, also in `$OUT` where there is such a folder. `--workers N` processes share the models: they compile
side by side, meet, and then time one model after the other, so that a model has the card for itself. First calls are
those of processes side by side.

Times are medians in milliseconds of CUDA events over interleaved rounds, the host's time included. Results are no
further from float32 than twice eager's own distance; gradients are compared as one vector. Peaks are of one call, in MB
above what was held before it.
"""

from __future__ import annotations

import argparse
import copy
import fcntl
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), *(str(p) for p in ROOT.glob("packages/*/src"))]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gpu_zoo  # noqa: E402
import torch  # noqa: E402  (after the source tree)
from torch import nn  # noqa: E402

import intarsia  # noqa: E402

ROUNDS = 11
WARM_UP = 4
# distances from float32, relative, that are rounding alone: of sums, and of operands to TF32, which torch's default
# leaves to the library's choice of a convolution
ROUNDING = {False: 1e-5, True: 2**-10}
TYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
Inputs = dict[str, torch.Tensor]
Call = Callable[[], list[torch.Tensor]]


@dataclass
class Contest:
    """A model that is compiled by all, until its turn on the card.

    Args:
        row: What is told of it so far.
        calls: Who -> one call or training step.
    """

    row: dict[str, Any]
    calls: dict[str, Call] = field(default_factory=dict)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument("--type", default="bf16", choices=TYPES)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--mode", default="default", help="mode of both compilers")
    parser.add_argument("--alone", action="store_true", help="without torch.compile")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--meet", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.names = options.names or list(gpu_zoo.ZOO)
    if options.meet is not None:
        return worker(options)
    with tempfile.TemporaryDirectory() as folder:
        rows = shared_out(options, list(arguments), Path(folder))
    for line in summary(rows):
        print(line)
    return 1 if len(rows) < len(options.names) or any("error" in r for r in rows) else 0


def shared_out(options: argparse.Namespace, arguments: list[str], folder: Path) -> list[dict[str, Any]]:
    """Run the models in processes that meet in a folder; return their rows."""
    flags = [a for a in arguments if a not in options.names]
    shares = [share for k in range(options.workers) if (share := options.names[k :: options.workers])]
    (folder / "number").write_text(str(len(shares)))
    children = []
    for k, share in enumerate(shares):
        caches = {name: f"{folder}/{name}-{k}" for name in CACHES}
        command = [sys.executable, __file__, *share, *flags, "--meet", str(folder)]
        children.append(subprocess.Popen(command, env=os.environ | caches))
    for child in children:
        child.wait()
    return [json.loads(line) for line in (folder / "rows").read_text().splitlines()]


CACHES = ("INTARSIA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def worker(options: argparse.Namespace) -> int:
    """Compile this process's models, meet the others, and time each in turn."""
    contests = [contest(name, options) for name in options.names]
    (options.meet / f"ready-{os.getpid()}").touch()
    n = int((options.meet / "number").read_text())
    while len(list(options.meet.glob("ready-*"))) < n:
        time.sleep(0.1)
    for each in contests:
        with alone_on_the_card(options.meet / "card"):
            timed_row = finished(each)
            for path in (options.meet / "rows", Path(os.environ.get("OUT", options.meet)) / "gpu_peers.json"):
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(timed_row) + "\n")
            print(json.dumps(timed_row), flush=True)
    return 0


@contextmanager
def alone_on_the_card(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def contest(name: str, options: argparse.Namespace) -> Contest:
    """Compile a model with all and compare results; a failure is a row as well."""
    what = "training" if options.training else options.type
    one = Contest({"model": name, "what": what, "mode": options.mode, "card": torch.cuda.get_device_name()})
    try:
        compiled_by_all(one, name, options)
    except Exception as error:  # the other models must still be measured; the failure is a row and the exit status
        one.row["error"] = f"{type(error).__name__}: {error}"[:2000]
    return one


def compiled_by_all(one: Contest, name: str, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model, inputs = gpu_zoo.ZOO[name]()
    if options.training:
        model = model.cuda().train()
        turn_off_dropout(model)
    else:
        model = model.cuda().to(TYPES[options.type]).eval()
        inputs = cast(inputs, TYPES[options.type])
    intarsia.reset()
    ours = intarsia.compile(model, mode=options.mode, options={"on_error": "raise"})
    one.calls = {"eager": call_of(model, inputs, options), "ours": call_of(ours, inputs, options)}
    one.row["first_s"], actual = first(one.calls["ours"])
    stats = intarsia.stats()
    one.row |= {"graphs": stats.graphs, "kernels": stats.kernels_generated, "externs": stats.extern_calls}
    convolves = any(isinstance(module, nn.modules.conv._ConvNd) for module in model.modules())
    allowed = ROUNDING[convolves and torch.backends.cudnn.allow_tf32]
    one.row["far"] = distance(actual, one.calls["eager"](), exact(model, inputs, options), allowed)
    if not options.alone:
        torch._dynamo.reset()
        theirs = torch.compile(model, mode=options.mode, dynamic=False)
        one.calls["inductor"] = call_of(theirs, inputs, options)
        one.row["inductor_first_s"], _ = first(one.calls["inductor"])


def turn_off_dropout(model: nn.Module) -> None:
    """Draws would differ; what is left is computed as in training."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "attention_dropout", "activation_dropout", "drop_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


def call_of(model: Callable[..., Any], inputs: Inputs, options: argparse.Namespace) -> Call:
    """Return one call without gradients, or a training step that returns its loss and gradients."""

    def infer() -> list[torch.Tensor]:
        with torch.no_grad():
            return leaves(model(**inputs))

    def step() -> list[torch.Tensor]:
        with torch.autocast("cuda", torch.bfloat16, enabled=not getattr(options, "exact", False)):
            loss = leaves(model(**inputs))[0].float().square().mean()
        weights = list(model.parameters())
        for weight in weights:
            weight.grad = None
        loss.backward()
        return [loss.detach(), *(w.grad for w in weights if w.grad is not None)]

    return step if options.training else infer


def exact(model: nn.Module, inputs: Inputs, options: argparse.Namespace) -> list[torch.Tensor]:
    """Return eager's results in float32 without TF32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    plain = argparse.Namespace(**vars(options), exact=True)
    results = call_of(copy.deepcopy(model).float(), cast(inputs, torch.float32), plain)()
    torch.backends.cudnn.allow_tf32 = before
    return results


def distance(
    actual: list[torch.Tensor], eager: list[torch.Tensor], true: list[torch.Tensor], allowed: float
) -> list[float]:
    """Return how far ours and eager's results are from float32's, relative; raise where ours are too far."""
    assert [t.shape for t in actual] == [t.shape for t in eager]
    ours_far, eager_far = (relative(t, true) for t in (actual, eager))
    assert ours_far <= 2 * eager_far + allowed, f"{ours_far:.3g} from float32, eager {eager_far:.3g}"
    return [float(f"{ours_far:.3g}"), float(f"{eager_far:.3g}")]


def relative(found: list[torch.Tensor], true: list[torch.Tensor]) -> float:
    far = sum((f.float() - t.float()).square().sum() for f, t in zip(found, true, strict=True))
    return float((far / sum(t.float().square().sum() for t in true)).sqrt())


def cast(inputs: Inputs, kind: torch.dtype) -> Inputs:
    return {k: v.to(kind) if v.is_floating_point() else v for k, v in inputs.items()}


def first(call: Call) -> tuple[float, list[torch.Tensor]]:
    start = time.perf_counter()
    results = [t.clone() for t in call()]
    torch.cuda.synchronize()
    return round(time.perf_counter() - start, 2), results


def leaves(value: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def finished(one: Contest) -> dict[str, Any]:
    """Return a row with times and peaks."""
    if "error" in one.row:
        return one.row
    times = interleaved(one.calls)
    row = one.row | {f"{who}_ms": round(statistics.median(t), 3) for who, t in times.items()}
    for who in set(times) - {"ours"}:
        ratios = sorted(t / o for t, o in zip(times[who], times["ours"], strict=True))
        row[f"against_{who}"] = [round(r, 3) for r in (statistics.median(ratios), ratios[2], ratios[-3])]
    return row | {f"{who}_mb": peak(call) for who, call in one.calls.items()}


def interleaved(calls: dict[str, Call]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {who: [] for who in calls}
    for number in range(ROUNDS + WARM_UP):
        for who, call in calls.items():
            torch.cuda.synchronize()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
            start.record()
            call()
            end.record()
            end.synchronize()
            if number >= WARM_UP:
                times[who].append(start.elapsed_time(end))
    return times


def peak(call: Call) -> float:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / 1e6, 1)


def summary(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for who in ("eager", "inductor"):
        ratios = {r["model"]: r[f"against_{who}"][0] for r in rows if f"against_{who}" in r}
        if ratios:
            mean = math.exp(statistics.fmean(math.log(min(2.0, r)) for r in ratios.values()))
            behind = ", ".join(f"{name} {r}" for name, r in ratios.items() if r < 0.98) or "none"
            lines.append(f"against {who}, geomean over {len(ratios)}, at most 2 each: {mean:.3f}; below 0.98: {behind}")
    failed = [r["model"] for r in rows if "error" in r]
    return [*lines, *([f"failed: {', '.join(failed)}"] if failed else [])]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
