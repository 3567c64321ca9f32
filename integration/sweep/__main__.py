"""Sweep over models of transformers, timm or diffusers: `python -m integration.sweep --library timm [name ...]`.

Each is built small with random weights, compiled with `on_error="raise"`, and compared with eager: two calls, two of
other batch sizes, and the gradients of a training step. Each runs in a process of its own; rows are kept in a file
(`--rows`), so that a run that was stopped goes on where it was. `--write docs/models.md` writes the page of all rows
and runs nothing. What eager doesn't run is told apart: it says nothing of the compiler.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import multiprocessing
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from integration.sweep.cases import Library
from integration.sweep.check import row_of
from integration.sweep.page import is_right, page, summary

LIBRARIES = ("transformers", "timm", "diffusers")
ROWS = Path(__file__).with_name("rows.jsonl")
Key = tuple[str, str]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m integration.sweep", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="models; all of the library if none is given")
    parser.add_argument("--library", choices=LIBRARIES, default="transformers")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--again", action="store_true", help="run those that weren't right again")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds that a model may take")
    parser.add_argument("--write", type=Path, help="write the page of documentation, and run nothing")
    options = parser.parse_args(arguments)
    rows = known(options.rows)
    if options.write:
        options.write.write_text(page(rows.values()), encoding="utf-8")
        return 0
    library = cast(Library, importlib.import_module(f"integration.sweep.of_{options.library}"))
    ran_with = f"{options.library} {library.version()}, {machine()}"
    until = time.monotonic() + options.seconds
    families = library.families()
    keys = [(options.library, name) for name in options.names or families]
    for key in keys:
        if key in rows and not (options.again and not is_right(rows[key])):
            continue
        if time.monotonic() > until:
            break
        told = {"library": key[0], "family": families[key[1]], "date": f"{datetime.date.today()}", "with": ran_with}
        rows[key] = {"architecture": key[1]} | told | apart(library, key[1], options.limit)
        with options.rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows[key]) + "\n")
        print(json.dumps(rows[key]), flush=True)
    chosen = [rows[key] for key in keys if key in rows]
    print(*summary(chosen), sep="\n")
    return 0 if all(map(is_right, chosen)) else 1


def known(path: Path) -> dict[Key, dict[str, Any]]:
    """Return the rows that were kept, the last of each model."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {(row["library"], row["architecture"]): row for row in map(json.loads, lines)}


def machine() -> str:
    """Return what everything ran with."""
    return (
        f"torch {torch.__version__}, CPython {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    )


def apart(library: Library, name: str, limit: float) -> dict[str, Any]:
    """Return the row of a model, from a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=lambda: theirs.send(alone(library, name)))
    child.start()
    theirs.close()
    try:
        row = ours.recv() if ours.poll(limit) else {"runs": True, "inference": f"no answer in {limit:g} s"}
    except EOFError:
        row = {"runs": True, "inference": "the process died"}
    child.kill()
    child.join()
    return row


def alone(library: Library, name: str) -> dict[str, Any]:
    """Build a model and run it: `runs` tells whether eager does, or why not."""
    try:
        case = library.built(name)
    except Exception as error:  # no small one is known: it says nothing of the compiler
        return {"runs": f"{type(error).__name__}: {error}"[:200]}
    return {"runs": True} | row_of(case)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
