"""Run the sweep: `python -m integration.opinfo [--json PATH] [--dtype NAME] [--op NAME] [--static] [--device NAME]`.

With `--backward` the operands require grad, and gradients are compared: forward and backward pass are compiled.
`--whole --samples 4` takes four samples of every operator in every type. `--json rows.jsonl --resume --seconds 500`
goes on where an earlier run stopped; `--show` prints what is there, and `--table` as the page in docs has it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from integration.progress import Progress

ROOT = Path(__file__).resolve().parent.parent.parent
DTYPES = ("float32", "int64", "bool", "bfloat16", "float16")
WHOLE = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool", "complex64")
GRADED = ("float32", "float64", "bfloat16", "float16", "complex64")
CRASHES = 60
"""A worker that dies is started again behind the sample that killed it, this many times."""


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.worker:
        return work(options)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = options.json or Path(folder) / "rows.jsonl"
        if not options.resume and not options.show and not options.table:
            path.unlink(missing_ok=True)
        done = options.show or options.table
        rows = list(_rows(path).values()) if done else sweep(options, path)
    if options.table:
        print(table(rows))
        return 0
    show(rows, time.perf_counter() - start)
    return verdict(rows, options)


def types(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the element types that are swept."""
    if options.dtype:
        return tuple(options.dtype)
    if options.backward:
        return GRADED if options.whole else GRADED[:1]
    return WHOLE if options.whole else DTYPES


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m integration.opinfo", description=__doc__)
    parser.add_argument("--json", type=Path, help="keep the rows here, one a line, as they are found")
    parser.add_argument("--resume", action="store_true", help="leave out what the file of --json has already")
    parser.add_argument("--dtype", choices=WHOLE, action="append", help="only these element types")
    parser.add_argument("--op", action="append", help="only operators of these full names")
    parser.add_argument("--whole", action="store_true", help="every operator in every type")
    parser.add_argument("--samples", type=int, default=1, help="as many of each operator")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no sample after these")
    parser.add_argument("--show", action="store_true", help="run nothing, print what the file of --json has")
    parser.add_argument("--table", action="store_true", help="the same, as a table for a page")
    parser.add_argument("--stride", type=int, help="take one of this many operators (default: fixed for each type)")
    parser.add_argument("--offset", type=int, default=0, help="choose other samples")
    parser.add_argument("--dense", type=int, help="take one of this many samples, of every operator, instead")
    parser.add_argument("--static", action="store_true", help="dynamic=False, first shape only")
    parser.add_argument("--backward", action="store_true", help="gradients as well")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the operands are")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--worker", nargs=2, type=int, help=argparse.SUPPRESS)
    return parser


# ---- the parent: processes, rows -------------------------------------------------------------------------------


def sweep(options: argparse.Namespace, path: Path) -> list[dict[str, Any]]:
    """Run the workers to their end and return their rows."""
    jobs = max(1, options.jobs)
    jobs = min(jobs, 8) if options.dense else jobs
    until = time.time() + options.seconds
    running = {k: _start(options, path, (k, jobs), until) for k in range(jobs)}
    crashes, progress = 0, Progress("samples begun")
    try:
        while running:
            time.sleep(0.2)
            progress.tell(lambda: len(_rows(path)))
            for k, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[k]
                if process.returncode == 0:
                    continue
                crashes += 1
                _blame(path, process)
                if crashes > CRASHES:
                    raise SystemExit("too many workers died")
                running[k] = _start(options, path, (k, jobs), until)
    finally:
        for process in running.values():
            process.kill()
    return list(_rows(path).values())


def _start(options: argparse.Namespace, path: Path, part: tuple[int, int], until: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "integration.opinfo", "--json", str(path), "--offset", str(options.offset)]
    command += ["--samples", str(options.samples), "--seconds", str(max(0.0, until - time.time()))]
    command += ["--whole"] if options.whole else []
    for dtype in options.dtype or ():
        command += ["--dtype", dtype]
    for op in options.op or ():
        command += ["--op", op]
    command += ["--stride", str(options.stride)] if options.stride else []
    command += ["--dense", str(options.dense)] if options.dense else []
    command += ["--static"] if options.static else []
    command += ["--backward"] if options.backward else []
    command += ["--device", options.device]
    command += ["--worker", *map(str, part)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})


def _rows(path: Path) -> dict[str, dict[str, Any]]:
    """Rows by sample; a later row of the same sample replaces an earlier one."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return {r["sample"]: r for r in rows}


def _blame(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Whatever a dead worker had begun is what killed it."""
    for row in _rows(path).values():
        if row["result"] == "begun" and row["worker"] == process.pid:
            keep(path, {**row, "result": "wrong", "why": f"the process died with status {process.returncode}"})


def keep(path: Path, row: dict[str, Any]) -> None:
    """Append one row; a single write, so that rows of several processes don't mix."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


# ---- a worker --------------------------------------------------------------------------------------------------


def work(options: argparse.Namespace) -> int:
    """Judge the samples of some shards."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["INTARSIA_CACHE_DIR"] = cache
        import torch

        from integration.opinfo.backward import BackwardJudge
        from integration.opinfo.judge import Judge
        from integration.opinfo.samples import STRIDES, select

        torch.set_num_threads(1)
        judge: Any = Judge(dynamic=not options.static, twice=not options.static)
        if options.backward:
            judge = BackwardJudge(twice=not options.static)
        done, until = _rows(options.json), time.monotonic() + options.seconds
        for dtype in types(options):
            chosen = select(
                dtype,
                stride=options.stride or (1 if options.whole or options.backward else STRIDES[dtype]),
                part=tuple(options.worker),
                samples=options.samples,
                offset=options.offset,
                dense=options.dense,
                only=options.op,
                graded=options.backward,
                device=options.device,
            )
            for sample in chosen:
                if time.monotonic() > until:
                    return 0
                if done.get(sample.name, {"result": "begun"})["result"] == "begun":
                    row = {"sample": sample.name, "dtype": dtype, "op": sample.op.full_name}
                    keep(options.json, {**row, "result": "begun", "worker": os.getpid()})
                    start = time.perf_counter()
                    row |= judge(sample)
                    keep(options.json, {**row, "seconds": round(time.perf_counter() - start, 3)})
    return 0


# ---- what was found --------------------------------------------------------------------------------------------


def show(rows: list[dict[str, Any]], seconds: float) -> None:
    """Print the table, the reasons, the operators that are called, and every wrong sample."""
    print(f"{'':10}{'samples':>9}{'generated':>11}{'extern':>8}{'unsupported':>13}{'wrong':>7}   second shape")
    for dtype in WHOLE:
        mine = [r for r in rows if r["dtype"] == dtype and r["result"] != "eager"]
        if mine:
            n = Counter(r["result"] for r in mine)
            second = Counter(r["second"] for r in mine if "second" in r)
            shares = f"{n['generated'] / len(mine):.0%} generated, {n['unsupported'] / len(mine):.0%} unsupported"
            numbers = f"{len(mine):9}{n['generated']:11}{n['extern']:8}{n['unsupported']:13}{n['wrong']:7}"
            print(f"{dtype:10}{numbers}   {dict(second) or '-'}   {shares}")
    for title, found in (
        ("unsupported", Counter(r.get("why", "") for r in rows if r["result"] == "unsupported")),
        ("called", Counter(e for r in rows for e in r.get("externs", ()))),
    ):
        print(f"{title}:", ", ".join(f"{name} {n}" for name, n in found.most_common(25)) or "nothing")
    for row in rows:
        if row["result"] in ("wrong", "begun"):
            print(f"WRONG {row['sample']}: {row.get('why', 'not finished')}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = f"{seconds:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU"
    print(f"{len(rows)} samples in {spent}; eager rejects {sum(r['result'] == 'eager' for r in rows)} of them")


def table(rows: list[dict[str, Any]]) -> str:
    """Return what was found as Markdown, a line for each element type."""
    head = "| type | operators | samples | generated | library calls | refused | wrong | second size the same graph |"
    lines = [head, "| --- |" + " ---: |" * 7]
    for dtype in WHOLE:
        mine = [r for r in rows if r["dtype"] == dtype and r["result"] != "eager"]
        if mine:
            n = Counter(r["result"] for r in mine)
            seconds = Counter(r.get("second") for r in mine)
            refused = f"{n['unsupported']} ({n['unsupported'] / len(mine):.1%})"
            same = f"{seconds['same']} of {seconds['same'] + seconds['recompiled']}"
            counts = (len({r["op"] for r in mine}), len(mine), n["generated"], n["extern"], refused, n["wrong"], same)
            lines.append(f"| {dtype} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def verdict(rows: list[dict[str, Any]], options: argparse.Namespace) -> int:
    """1 unless nothing is wrong, less than 15% unsupported, and, of float32, at least 45% generated.

    Of the whole, less than 4% of each type may be unsupported.
    """
    counted = [r for r in rows if r["result"] != "eager"]
    whole = not (
        options.dtype or options.op or options.stride or options.dense or options.offset or options.device != "cpu"
    )
    faults = ["something is wrong"] if any(r["result"] in ("wrong", "begun") for r in rows) else []
    for dtype in types(options) if whole else ():
        mine = [r["result"] for r in counted if r["dtype"] == dtype]
        least = 400 if dtype == "float32" else 100
        faults += [f"{len(mine)} samples of {dtype}, fewer than {least}"] if len(mine) < least else []
        limit = 0.04 if options.whole else 0.15
        faults += [f"{limit:.0%} of {dtype} unsupported"] if mine.count("unsupported") >= limit * len(mine) else []
        short = dtype == "float32" and mine.count("generated") < 0.45 * len(mine)
        faults += ["less than 45% of float32 generated"] if short else []
    for fault in faults:
        print("FAULT:", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
