"""Runs many random programs, each batch in a process of its own, and sums up.

A batch is the unit of going on: `--state FILE` keeps one JSON line a finished batch. A program that differs, crashes
the process or takes too long is reduced and written to `--found DIR`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from integration.fuzz.batches import BATCH, guarded, run_examples, spawn
from integration.fuzz.writer import programs

__all__ = ["main", "run_batch"]


def main(arguments: list[str]) -> int:
    """Run the batches; 0 when nothing differed."""
    parser = argparse.ArgumentParser(prog="python -m integration.fuzz programs", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--generated", type=int, default=8, help="one batch of so many runs on the default backend")
    parser.add_argument("--state", type=Path, help="where finished batches are kept")
    parser.add_argument("--found", type=Path, help="folder for programs that differ")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--backend", help="one backend for all")
    options = parser.parse_args(arguments)
    if options.one is not None:
        from integration.fuzz.coverage import count_coverage

        count_coverage()
        row = run_batch(options.one, _size(options, options.one), options.backend or "eager", options.found)
        print(json.dumps(row))
        return 0
    rows = _finished(options.state)
    batches = range(options.seed * 1000, options.seed * 1000 + -(-options.count // BATCH))
    for batch in batches:
        if batch not in rows:
            rows[batch] = _spawn(batch, options)
            _keep(options.state, rows[batch])
            print(_line(rows[batch]), flush=True)
    return _sum_up([rows[batch] for batch in batches])


def run_batch(batch: int, count: int, backend: str, folder: Path | None = None) -> dict[str, Any]:
    """Run one batch in this process and return its row.

    Args:
        batch: Seed of the batch.
        count: Programs in it.
        backend: As for `intarsia.compile`.
        folder: Where what differs is written.
    """
    from integration.fuzz import coverage
    from integration.fuzz.run import check

    sums: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    differences: list[str] = []
    sources: set[str] = set()

    def one(source: str) -> None:
        if source in sources or len(sources) >= count:
            return
        sources.add(source)
        if folder is not None:
            (folder / f"running-{batch}.py").write_text(source)
        outcome = guarded(lambda: check(source, backend))
        if isinstance(outcome, str):
            differences.append(_report(source, outcome, backend, folder))
            return
        sums.update({n: getattr(outcome.stats, n) for n in outcome.stats.__dataclass_fields__})
        sums.update(programs_with_graphs=outcome.stats.graphs > 0, steps_raising=outcome.raised)
        if outcome.refused:
            refused[outcome.refused] += 1
        if outcome.difference:
            differences.append(_report(source, outcome.difference, backend, folder))

    seconds = run_examples(programs(), one, count, batch)
    return {
        "batch": batch,
        "backend": backend,
        "programs": len(sources),
        "seconds": seconds,
        "differences": differences,
        "refused": dict(refused),
        "sums": dict(sums),
        "opcodes": dict(coverage.OPCODES),
        "values": dict(coverage.VALUES),
    }


def _report(source: str, what: str, backend: str, folder: Path | None) -> str:
    name = hashlib.sha256(source.encode()).hexdigest()[:12]
    if folder is not None:
        (folder / f"{name}.py").write_text(f"# backend {backend}\n# {what[:2000]!r}\n{source}")
    return f"{name}: {what[:400]}"


def _size(options: argparse.Namespace, batch: int) -> int:
    return min(BATCH, options.count - (batch - options.seed * 1000) * BATCH)


def _spawn(batch: int, options: argparse.Namespace) -> dict[str, Any]:
    backend = options.backend or ("auto" if (batch + 1) % options.generated == 0 else "eager")
    words = ["programs", "--one", str(batch), "--backend", backend]
    words += ["--count", str(options.count), "--seed", str(options.seed)]
    if options.found:
        options.found.mkdir(parents=True, exist_ok=True)
        words += ["--found", str(options.found)]
    return {"batch": batch, "backend": backend, **spawn(words)}


def _finished(state: Path | None) -> dict[int, dict[str, Any]]:
    if state is None or not state.exists():
        return {}
    return {row["batch"]: row for row in map(json.loads, state.read_text().splitlines())}


def _keep(state: Path | None, row: dict[str, Any]) -> None:
    if state is not None:
        with state.open("a") as out:
            out.write(json.dumps(row) + "\n")


def _line(row: dict[str, Any]) -> str:
    differences = "".join(f"\n    {text}" for text in row["differences"])
    return (
        f"batch {row['batch']} {row['backend']:6} {row['programs']} programs in {row['seconds']} s, "
        f"{len(row['differences'])} differences, refused {row.get('refused', {})}{differences}"
    )


def _sum_up(rows: list[dict[str, Any]]) -> int:
    from integration.fuzz import coverage

    totals: dict[str, Counter[str]] = {}
    for part in ("sums", "refused", "opcodes", "values"):
        totals[part] = Counter()
        for row in rows:
            totals[part].update(row.get(part, {}))
    count = sum(row["programs"] for row in rows)
    differences = sum(len(row["differences"]) for row in rows)
    generated = sum(row["programs"] for row in rows if row["backend"] != "eager")
    print(f"programs {count}, of them {generated} with generated kernels; differences {differences}")
    print("counters: " + ", ".join(f"{name} {value}" for name, value in sorted(totals["sums"].items())))
    print(f"programs run in eager in part, by the code of the refusal: {dict(totals['refused'])}")
    print(coverage.text("opcodes", totals["opcodes"], coverage.expected_opcodes()))
    print(coverage.text("value models", totals["values"], coverage.expected_values()))
    return 1 if differences or not totals["sums"]["frames_compiled"] else 0
