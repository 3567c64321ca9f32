"""Sweep over transformers' architectures: `python -m integration.sweep [architecture ...]`.

Each is built from a small configuration with random weights, compiled with `on_error="raise"`, and compared with eager:
two calls, one of another batch size, and the gradients of a training step. Each runs in a process of its own; rows are
kept in a file (`--results`), so that a run that was stopped goes on where it was. `--write docs/models.md` writes the
page. What no small configuration was found for is told apart: it says nothing of the compiler.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from integration.sweep.check import architectures, import_all, row_of

SECONDS = 180.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m integration.sweep", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="architectures; all if none is given")
    parser.add_argument("--results", type=Path, default=Path(tempfile.gettempdir()) / "intarsia-sweep.jsonl")
    parser.add_argument("--again", action="store_true", help="run those that weren't right again")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--write", type=Path, help="write the page of documentation")
    options = parser.parse_args(arguments)
    import_all()
    rows = known(options.results)
    until = time.monotonic() + options.seconds
    for name in options.names or architectures():
        if name in rows and not (options.again and not is_right(rows[name])):
            continue
        if time.monotonic() > until:
            break
        rows[name] = apart(name)
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows[name]) + "\n")
        print(json.dumps(rows[name]), flush=True)
    chosen = [row for name, row in rows.items() if not options.names or name in options.names]
    print(*summary(chosen), sep="\n")
    if options.write:
        options.write.write_text(page(chosen), encoding="utf-8")
    return 0 if all(is_right(row) for row in chosen) else 1


def known(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows that were kept, the last of each architecture."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {row["architecture"]: row for row in map(json.loads, lines)}


def apart(name: str) -> dict[str, Any]:
    """Return the row of an architecture, from a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=lambda: theirs.send(row_of(name)))
    child.start()
    theirs.close()
    try:
        row = ours.recv() if ours.poll(SECONDS) else {"runs": True, "inference": f"no answer in {SECONDS:g} s"}
    except EOFError:
        row = {"runs": True, "inference": "the process died"}
    child.kill()
    child.join()
    return {"architecture": name} | row


def is_right(row: dict[str, Any]) -> bool:
    """Tell whether a row holds no fault of the compiler's."""
    trains = str(row.get("training", "no")).split(":")[0]
    return row["runs"] is not True or (row["inference"] == "right" and trains in ("right", "no"))


def summary(rows: Iterable[dict[str, Any]]) -> list[str]:
    ran = [row for row in rows if row["runs"] is True]
    whole = sum(row.get("graphs") == 1 for row in ran)
    training = Counter(str(row.get("training", "no")).split(":")[0] for row in ran)
    wrong = [row["architecture"] for row in ran if not is_right(row)]
    right = sum(row["inference"] == "right" for row in ran)
    fallbacks = sum(row.get("fallbacks", 0) for row in ran)
    return [
        f"{len(ran)} run in eager; right without gradients {right}; fallbacks {fallbacks}",
        f"one graph: {whole} ({whole / max(1, len(ran)):.0%})",
        f"trained: {training['right']} right of {sum(training.values()) - training['no']}",
        f"not right: {', '.join(wrong) or 'none'}",
    ]


def page(rows: Iterable[dict[str, Any]]) -> str:
    """Return the page of documentation."""
    import torch
    import transformers

    rows = sorted((row for row in rows if row["runs"] is True), key=lambda row: row["architecture"])
    lines = [
        "# Architectures of transformers",
        "",
        f"`python -m integration.sweep --write docs/models.md`; transformers {transformers.__version__}, torch "
        f"{torch.__version__}, CPython {sys.version.split()[0]}. Each from a small configuration with random weights, "
        'on the CPU, with `on_error="raise"`: calls of two batch sizes and the gradients of a step, against eager.',
        "",
        *(f"- {line}" for line in summary(rows)),
        "",
        "| architecture | class | graphs | kernels | without gradients | training | why more than one graph |",
        "| --- | --- | ---: | ---: | --- | --- | --- |",
    ]
    for row in rows:
        cells = [row.get(key, "") for key in ("architecture", "class", "graphs", "kernels", "inference", "training")]
        cells.append("; ".join(row.get("breaks", ())))
        lines.append(f"| {' | '.join(str(c).replace('|', '/').replace(chr(10), ' ') for c in cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
