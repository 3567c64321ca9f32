"""Run the sweep: `python -m integration.layouts [--json PATH] [--dtype NAME] [--op NAME] [--device NAME] ...`.

Rows are appended as they are found; a run with `--resume` leaves out what the file has.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from integration.progress import Progress

ROOT = Path(__file__).resolve().parent.parent.parent
CRASHES = 20
"""A worker that dies is started again behind the sample that killed it, this many times."""
LOST = 3
"""How a worker exits whose GPU stopped: started again, it leaves out the layout that stopped it, and says so."""


def main(arguments: list[str]) -> int:
    """Run the sweep, or the work of one of its processes; 0 when nothing is wrong."""
    options = _parser().parse_args(arguments)
    options.until = options.until or time.time() + (options.seconds or 1e9)
    if options.worker is not None:
        return work(options)
    with tempfile.TemporaryDirectory() as folder:
        path = options.json or Path(folder) / "rows.jsonl"
        if not options.resume:
            path.unlink(missing_ok=True)
        rows = sweep(options, path)
    return show(rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m integration.layouts", description=__doc__)
    parser.add_argument("--json", type=Path, help="keep the rows here, one a line, as they are found")
    parser.add_argument("--resume", action="store_true", help="leave out what the file of --json has already")
    parser.add_argument("--dtype", action="append", help="element types (default: float32 and complex64)")
    parser.add_argument("--op", action="append", help="only operators of these full names")
    parser.add_argument("--stride", type=int, default=1, help="take one of this many operators")
    parser.add_argument("--samples", type=int, default=1, help="samples of each operator, those of most dimensions")
    parser.add_argument("--dynamic", action="store_true", help="symbolic sizes")
    parser.add_argument("--backward", action="store_true", help="gradients as well")
    parser.add_argument("--inplace", action="store_true", help="the form that writes its first operand")
    parser.add_argument(
        "--mismatched", action="store_true", help="operands of other shapes, where eager raises, instead"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the operands are")
    parser.add_argument("--backend", default="auto", help="as for intarsia.compile: a rung finds where it goes wrong")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="only this part of the operators")
    parser.add_argument("--seconds", type=float, help="begin nothing after this long")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--eager-of", help=argparse.SUPPRESS)  # run this sample in eager, and do nothing else
    return parser


# ---- the parent ------------------------------------------------------------------------------------------------


def sweep(options: argparse.Namespace, path: Path) -> list[dict[str, Any]]:
    """Run the workers to their end and return their rows."""
    running = {k: _start(options, path, k) for k in range(max(1, options.jobs))}
    crashes, progress = 0, Progress("samples begun")
    try:
        while running:
            time.sleep(0.2)
            progress.tell(lambda: len(rows_of(path)))
            for k, process in list(running.items()):
                if process.poll() is None:
                    continue
                del running[k]
                if process.returncode == LOST:
                    running[k] = _start(options, path, k)
                elif process.returncode:
                    crashes += 1
                    _blame(options, path, k, process)
                    if crashes > CRASHES:
                        raise SystemExit("too many workers died")
                    running[k] = _start(options, path, k)
    finally:
        for process in running.values():
            process.kill()
    return list(rows_of(path).values())


def _start(options: argparse.Namespace, path: Path, number: int, *more: str) -> subprocess.Popen[bytes]:
    """Start a worker by its number, with the options of the parent and more words."""
    command = [sys.executable, "-m", "integration.layouts", "--json", str(path), "--worker", str(number), *more]
    for name in ("stride", "samples", "device", "backend", "shard", "jobs", "until"):
        command += [f"--{name}", str(getattr(options, name))]
    for name in ("dtype", "op"):
        command += [word for value in getattr(options, name) or () for word in (f"--{name}", value)]
    flags = ("dynamic", "backward", "inplace", "mismatched")
    command += [f"--{name}" for name in flags if getattr(options, name)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    """Rows by sample; a later row of the same sample replaces an earlier one."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row["sample"]: row for row in map(json.loads, filter(None, lines))}


def _blame(options: argparse.Namespace, path: Path, number: int, process: subprocess.Popen[bytes]) -> None:
    """Write down what killed a worker: the sample that it had begun, or eager, where that alone dies as well."""
    for row in rows_of(path).values():
        if row.get("worker") == process.pid:
            alone = _start(options, path, number, "--eager-of", row["sample"]).wait()
            result = "eager" if alone < 0 else "wrong"
            why = f"the process died with status {process.returncode}" + (", as eager's does" if alone < 0 else "")
            keep(path, {"sample": row["sample"], "layouts": {"all": {"result": result, "why": why}}})


def keep(path: Path, row: dict[str, Any]) -> None:
    """Append one row; a single write, so that rows of several processes don't mix."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def show(rows: list[dict[str, Any]]) -> int:
    """Print counts by layout, the codes of refusals and what is wrong; 1 if anything is."""
    counts: dict[str, Counter[str]] = {}
    codes: Counter[str] = Counter()
    wrong = [f"{row['sample']}: not finished" for row in rows if "worker" in row]
    for row in rows:
        for layout, verdict in row.get("layouts", {}).items():
            counts.setdefault(layout, Counter())[verdict["result"]] += 1
            codes[verdict.get("why", "")] += verdict["result"] == "refused"
            wrong += [f"{row['sample']}, {layout}: {verdict['why']}"] if verdict["result"] == "wrong" else []
    for layout, n in counts.items():
        print(f"{layout:32}{n['same']:6} same{n['refused']:6} refused{n['eager']:6} eager{n['wrong']:6} wrong")
    print("refused:", ", ".join(f"{code} {n}" for code, n in codes.most_common() if n) or "nothing")
    for text in wrong:
        print("WRONG", text)
    n_same = sum(n["same"] for n in counts.values())
    print(f"{n_same} of {sum(n['same'] + n['wrong'] for n in counts.values())} that compile are as in eager")
    return 1 if wrong else 0


# ---- a worker --------------------------------------------------------------------------------------------------


def work(options: argparse.Namespace) -> int:
    """Judge the samples of one worker."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["INTARSIA_CACHE_DIR"] = cache
        import torch

        from integration.layouts.judge import Judge
        from integration.layouts.mismatched import Mismatched

        torch.set_num_threads(1)
        modes = {"dynamic": options.dynamic or None, "backward": options.backward, "inplace": options.inplace}
        judge = (Mismatched if options.mismatched else Judge)(**modes, backend=options.backend)
        if options.eager_of:
            judge.run_eager(next(sample for sample in chosen(options) if sample.name == options.eager_of))
            return 0
        rows = rows_of(options.json)
        for sample in chosen(options):
            if time.time() > options.until:
                break
            row = rows.get(sample.name, {"worker": 0})
            if "worker" in row and not _judged(judge, sample, row.get("lost", {}), options.json):
                return LOST
    return 0


def _judged(judge: Any, sample: Any, lost: dict[str, Any], path: Path) -> bool:
    """Judge one sample and keep its row, which is there from the beginning; tell whether the GPU outlives it."""
    from integration.layouts.judge import DeviceLost

    begun = {"sample": sample.name, "worker": os.getpid()}
    keep(path, {**begun, "lost": lost} if lost else begun)
    start = time.perf_counter()
    try:
        verdicts = judge(sample, lost)
    except DeviceLost as error:
        keep(path, {**begun, "lost": {**lost, error.layout: error.verdict}})
        return False
    seconds = round(time.perf_counter() - start, 3)
    keep(path, {"sample": sample.name, "layouts": verdicts, "seconds": seconds})
    return True


def chosen(options: argparse.Namespace) -> Iterator[Any]:
    """Yield the samples of one worker, the same ones in every run."""
    import torch
    import torch.utils._pytree as pytree
    from torch.testing._internal.common_methods_invocations import op_db

    from integration.opinfo.samples import Sample, own, seed

    for number, op in enumerate(op_db):
        for name in options.dtype or ("float32", "complex64"):
            dtype = getattr(torch, name)
            if not _is_chosen(options, number, op, dtype):
                continue
            seed(number)
            inputs = list(op.sample_inputs(options.device, dtype, requires_grad=options.backward))
            ranks = [_rank(pytree.tree_leaves((s.input, s.args, s.kwargs))) for s in inputs]
            for k in sorted(range(len(inputs)), key=ranks.__getitem__, reverse=True)[: options.samples]:
                operands = (inputs[k].input, tuple(inputs[k].args), dict(inputs[k].kwargs))
                yield Sample(f"{name} {op.full_name} {k}", op, own(op.op), operands)


def _is_chosen(options: argparse.Namespace, number: int, op: Any, dtype: Any) -> bool:
    """Tell whether a worker judges an operator, the `number`th of all, with an element type."""
    shard, n_shards = map(int, options.shard.split("/"))
    place, remainder = divmod(number, n_shards)
    if remainder != shard or place % options.stride or place // options.stride % options.jobs != options.worker:
        return False
    if (options.op and op.full_name not in options.op) or (options.inplace and op.inplace_variant is None):
        return False
    return dtype in op.supported_dtypes(options.device) and (not options.backward or op.supports_autograd)


def _rank(leaves: list[Any]) -> tuple[int, int]:
    """Order samples by the dimensions of their tensors that have several elements."""
    import torch

    tensors = [t for t in leaves if isinstance(t, torch.Tensor) and t.layout is torch.strided]
    return max((sum(n > 1 for n in t.shape), t.dim()) for t in tensors) if tensors else (0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
