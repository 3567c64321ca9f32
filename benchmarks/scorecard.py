"""Print one line per measured figure: `name value target`. Every value comes from a run made now.

`python benchmarks/scorecard.py [--quick] [--only SECTION]`; `--quick` leaves out what compiles the Hugging Face models.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.overhead import calls, capture, guards  # noqa: E402
from benchmarks.recording import proofs, recorder  # noqa: E402
from benchmarks.symbolic_kernels import lines as symbolic  # noqa: E402
from benchmarks.training import lines as training  # noqa: E402
from integration.demo.__main__ import child  # noqa: E402
from integration.models import MODELS  # noqa: E402

Line = tuple[str, float | str, str]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out what takes minutes a line")
    parser.add_argument("--only", metavar="SECTION", help="one section, such as `calls`")
    options = parser.parse_args(arguments)
    quick = options.quick
    print(
        f"# torch {torch.__version__}, Python {sys.version.split()[0]}, {torch.get_num_threads()} threads, {cpu_name()}"
    )
    sections: list[Callable[[bool], Iterator[Line]]] = [
        steady_state,
        first_calls,
        recorder,
        proofs,
        guards,
        calls,
        capture,
        corpus,
        fuzzers,
        training,
        symbolic,
    ]
    for section in sections:
        if options.only not in (None, section.__name__):
            continue
        for name, value, target in section(quick):
            shown = value if isinstance(value, str) else f"{value:.3f}"
            print(f"{name:<44} {shown:>10}   {target}", flush=True)
    return 0


def measured(kind: str, name: str, route: str) -> dict[str, Any]:
    """Measure in a fresh process with empty caches."""
    with tempfile.TemporaryDirectory() as caches:
        return child(kind, name, route, caches)


def steady_state(quick: bool) -> Iterator[Line]:
    """torch.compile's time over ours, medians of interleaved rounds."""
    targets = {"softmax": ">= 1.3", "add_layer_norm": ">= 1.3", "chain": ">= 1.0"}
    names = [*targets, *(() if quick else ("mlp", "resnet18", "vit_block"))]
    for name in names:
        row = measured("steady", name, "own")
        if "error" in row:
            yield f"steady.{name}.ratio", "failed", row["error"]
            continue
        spread = f"({row['ratio_low']:.2f}-{row['ratio_high']:.2f})"
        yield f"steady.{name}.ratio", row["ratio"], f"{targets.get(name, '>= 1.0 (goal)')} {spread}"
        yield f"steady.{name}.kernels", str(row["kernels"]), "1" if name in targets else ""


def first_calls(quick: bool) -> Iterator[Line]:
    """Our first call over torch.compile's, a fresh process and an empty cache each, imports apart."""
    names = ("chain", "softmax", "mlp") if quick else tuple(MODELS)
    ratios = {"wall": [], "cpu": []}
    for name in names:
        theirs, ours = measured("first", name, "torch"), measured("first", name, "own")
        if "error" in theirs or "error" in ours:
            yield f"first_call.{name}", "failed", theirs.get("error") or ours["error"]
            continue
        for kind, values in ratios.items():
            values.append(ours[kind] / theirs[kind])
            yield f"first_call.{name}.{kind}", values[-1], f"ours {ours[kind]:.2f} s, theirs {theirs[kind]:.2f} s"
    for kind, values in ratios.items():
        if values:
            geomean = math.exp(statistics.fmean(map(math.log, values)))
            yield f"first_call.geomean.{kind}", geomean, "<= 0.25"


def corpus(quick: bool) -> Iterator[Line]:
    """Programs of the corpus that each tool captures in one piece and gets right (`integration/python/`)."""
    from integration.python.peers import judge_all, known
    from integration.python.programs import PROGRAMS

    if quick:
        return
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "verdicts.jsonl"
        works = {}
        for tool in ("torch.compile", "intarsia"):
            judge_all(tool, list(PROGRAMS), results)
            works[tool] = sum(v["verdict"] == "works" for v in known(tool, results).values())
        yield "python_corpus.torch_compile", f"{works['torch.compile']}/{len(PROGRAMS)}", ""
        yield "python_corpus.intarsia", f"{works['intarsia']}/{len(PROGRAMS)}", f">= {works['torch.compile']} (goal)"


def fuzzers(quick: bool) -> Iterator[Line]:
    """Random programs and operators against eager, and random changes of state (`integration/fuzz/`)."""
    count, steps = (200, 500) if quick else (2000, 5000)
    yield from _fuzzed("programs", "--count", count, "differences 0")
    yield from _fuzzed("operators", "--count", count // 2, "differences 0")
    yield from _fuzzed("machine", "--steps", steps, "stale results 0, hits at least half of the steps")


def _fuzzed(kind: str, option: str, count: int, target: str) -> Iterator[Line]:
    """Run one fuzzer and give the lines with which it sums up."""
    command = [sys.executable, "-m", "integration.fuzz", kind, option, str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    shown = [line for line in done.stdout.splitlines() if not line.startswith("batch ")]
    yield f"fuzz.{kind}", "ok" if done.returncode == 0 else "failed", target
    for line in shown or done.stderr.splitlines()[-1:]:
        yield f"fuzz.{kind}", "", line


def cpu_name() -> str:
    """Return the processor's name."""
    if not Path("/proc/cpuinfo").exists():
        return subprocess.run(["uname", "-m"], capture_output=True, text=True).stdout.strip()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown processor")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
