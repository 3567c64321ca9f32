"""Whole models in bfloat16 on a GPU beside eager and torch.compile: `python benchmarks/gpu_models.py [name ...]`.

One JSON object a model. Times are medians of CUDA events in milliseconds, interleaved in rounds in one process, under
`no_grad`. First calls are measured in the order ours, torch.compile: each with caches of its own that are empty at the
start, imports apart.

torch.compile's times are those that peer_times.json keeps for the card, the versions and the mode; one model is timed
again, and the run fails where it is off by more than 3 %. `--measure-peer` times all again and writes the file, in
`$OUT` where there is such a folder; `--alone` leaves torch.compile out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), *(str(p) for p in ROOT.glob("packages/*/src"))]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gpu_zoo  # noqa: E402
import peer_times  # noqa: E402
import torch  # noqa: E402  (after the source tree)
import triton  # noqa: E402

ROUNDS = 15
WARM_UP = 5
MODELS = ("bert", "gpt2", "llama", "vit", "resnet50")
# bound by the card, in either mode: its rounds agree within 1 %
CANARIES = ("bert",)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument("--mode", default="default", help="mode of both compilers")
    peer = parser.add_mutually_exclusive_group()
    peer.add_argument("--alone", action="store_true", help="without torch.compile")
    peer.add_argument("--measure-peer", action="store_true", help="time torch.compile on all, and keep its times")
    options = parser.parse_args(arguments)
    what = "models" if options.mode == "default" else f"models, {options.mode}"
    setup = peer_times.Setup(torch.cuda.get_device_name(), torch.__version__, triton.__version__, what)
    compared = None if options.alone else peer_times.chosen(setup, CANARIES, measure=options.measure_peer)
    rows = measured_rows(options.names or MODELS, compared, options.mode)
    if options.measure_peer:
        peer_times.keep(setup, rows)
    lines, trusted = peer_times.canary_lines(rows)
    for line in (*summary(rows), *lines):
        print(line)
    return 1 if not trusted or any("error" in r for r in rows) else 0


def measured_rows(names: Iterable[str], compared: peer_times.Comparison | None, mode: str) -> list[dict[str, Any]]:
    """Measure each model, with caches that are empty at the start."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["INTARSIA_CACHE_DIR"] = f"{folder}/ours"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
        for name in compared.names(names) if compared is not None else names:
            rows.append(row(name, compared, mode))
            print(json.dumps(rows[-1]), flush=True)
            keep(rows[-1])
            torch.cuda.empty_cache()
    return rows


def keep(found: dict[str, Any]) -> None:
    """Append a row to `$OUT/gpu_models.json`, where there is such a folder."""
    if "OUT" in os.environ:
        with (Path(os.environ["OUT"]) / "gpu_models.json").open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")


def row(name: str, compared: peer_times.Comparison | None = None, mode: str = "default") -> dict[str, Any]:
    """Measure one model, without a comparison only beside eager; a failure is a row as well."""
    found = {"model": name, "card": torch.cuda.get_device_name(), "torch": torch.__version__, "mode": mode}
    try:
        with torch.no_grad():
            return found | measured(name, compared, mode)
    except Exception as error:  # the other models must still be measured; the failure is a row and the exit status
        return found | {"error": f"{type(error).__name__}: {error}"[:3000]}


def measured(name: str, compared: peer_times.Comparison | None, mode: str) -> dict[str, Any]:
    """Check one model against eager, and time it."""
    import intarsia

    torch.manual_seed(0)
    model, inputs = in_bfloat16(*gpu_zoo.ZOO[name]())
    intarsia.reset()
    compiled = intarsia.compile(model, mode=mode, options={"on_error": "raise"})
    first, actual = timed(compiled, inputs)
    check(model, inputs, actual)
    stats = intarsia.stats()
    calls = {"eager": model, "ours": compiled}
    found = {"first_s": round(first, 2), "graphs": stats.graphs, "kernels": stats.kernels_generated}
    found |= {"externs": stats.extern_calls, "fallbacks": stats.fallbacks}
    if compared is not None and compared.measures(name):
        torch._dynamo.reset()
        calls["inductor"] = torch.compile(model, mode=mode, dynamic=False)
        found["inductor_first_s"] = round(timed(calls["inductor"], inputs)[0], 2)
    times = interleaved(calls, inputs)
    if compared is not None and not compared.measures(name):
        times["inductor"] = [compared.kept[name].time] * ROUNDS
        found["inductor_first_s"] = compared.kept[name].first_s
    found |= {f"{key}_ms": round(statistics.median(t), 3) for key, t in times.items()}
    for key in set(times) - {"ours"}:
        ratios = sorted(t / o for t, o in zip(times[key], times["ours"], strict=True))
        found[f"against_{key}"] = [round(r, 3) for r in (statistics.median(ratios), ratios[2], ratios[-3])]
    return found if compared is None else found | compared.of_row(name, found["inductor_ms"])


def in_bfloat16(
    model: torch.nn.Module, inputs: dict[str, torch.Tensor]
) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    return model.cuda().bfloat16().eval(), {k: v.bfloat16() if v.is_floating_point() else v for k, v in inputs.items()}


def timed(call: Callable[..., Any], inputs: dict[str, Any]) -> tuple[float, list[torch.Tensor]]:
    start = time.perf_counter()
    made = leaves(call(**inputs))
    torch.cuda.synchronize()
    return time.perf_counter() - start, made


def check(model: torch.nn.Module, inputs: dict[str, Any], actual: list[torch.Tensor]) -> None:
    """Raise an AssertionError where a result is further from float32's than twice eager's own distance."""
    expected = leaves(model(**inputs))
    exact = leaves(model.float()(**{k: v.float() if v.is_floating_point() else v for k, v in inputs.items()}))
    model.bfloat16()
    assert len(actual) == len(expected)
    for ours, theirs, true in zip(actual, expected, exact, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        far, allowed = (ours - true).float().norm(), (theirs - true).float().norm()
        assert far <= 2 * allowed, f"{far:.3g} from float32, eager {allowed:.3g}"


def leaves(value: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def interleaved(calls: dict[str, Callable[..., Any]], inputs: dict[str, Any]) -> dict[str, list[float]]:
    """Return milliseconds a round and name, host time included: the card starts idle."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + WARM_UP):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call(**inputs)
            end.record()
            end.synchronize()
            if number >= WARM_UP:
                times[name].append(start.elapsed_time(end))
    return times


def summary(rows: list[dict[str, Any]]) -> list[str]:
    n_kept = sum(str(r.get("peer")).startswith("kept") for r in rows)
    lines = [f"of torch.compile's times, {n_kept} were kept before"] if n_kept else []
    for key in ("eager", "inductor"):
        ratios = [min(2.0, r[f"against_{key}"][0]) for r in rows if f"against_{key}" in r]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            lines.append(f"against {key}, geomean over {len(ratios)}, at most 2 each: {mean:.3f}; least {min(ratios)}")
    pairs = [r["first_s"] / r["inductor_first_s"] for r in rows if "inductor_first_s" in r]
    if pairs:
        lines.append(f"first call, of torch.compile's seconds: {', '.join(f'{p:.2f}' for p in pairs)}")
    failed = [r["model"] for r in rows if "error" in r]
    return [*lines, *([f"failed: {', '.join(failed)}"] if failed else [])]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
