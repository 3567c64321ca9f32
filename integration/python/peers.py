"""Count what capture tools make of the corpus: `python -m integration.python.peers [--write docs/python-corpus.md]`.

A verdict is one of three. *Works*: two calls with new values, each equal to eager in everything that can be seen
(`run.py`), captured in one piece. *Wrong*: the tool took the program, and something differs. *Refuses*: it raised an
error of its own, crashed, or ran out of time. Every tool runs in a process of its own; verdicts are kept in a file,
so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import selectors
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from integration.python.capture_tools import TOOLS, judge
from integration.python.items import ITEMS
from integration.python.programs import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
VERDICTS = ("works", "wrong", "refuses")
SECONDS = 90.0  # for one program; the first one of a process pays for the imports
Found = dict[str, dict[str, dict[str, str]]]  # tool -> program -> verdict and reason


def main(arguments: list[str]) -> int:
    """Judge what isn't judged yet, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m integration.python.peers", description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, default=Path(tempfile.gettempdir()) / "intarsia-python-corpus.jsonl")
    parser.add_argument("--fresh", action="store_true", help="forget the verdicts kept so far")
    parser.add_argument("--tools", nargs="*", choices=list(TOOLS), default=list(TOOLS))
    parser.add_argument("--write", type=Path, help="write the page of documentation")
    parser.add_argument("--worker", metavar="TOOL", help=argparse.SUPPRESS)
    parser.add_argument("programs", nargs="*", help="names of programs; all if none is given")
    options = parser.parse_args(arguments)
    names = options.programs or list(PROGRAMS)
    if options.worker:
        return worker(options.worker, names)
    if options.fresh:
        options.results.unlink(missing_ok=True)
    for tool in options.tools:
        judge_all(tool, names, options.results)
    found = {tool: {n: v for n, v in known(tool, options.results).items() if n in names} for tool in options.tools}
    print(table(found))
    for tool, rows in found.items():
        print(*(f"{tool}: {v['verdict']} {n}: {v['reason']}" for n, v in rows.items() if is_ours(tool, v)), sep="\n")
    if options.write:
        from integration.python.page import page

        options.write.write_text(page(found), encoding="utf-8")
    return 0


def is_ours(tool: str, verdict: dict[str, str]) -> bool:
    """Tell whether a verdict is one that is to be mended here."""
    return tool == "intarsia" and verdict["verdict"] != "works"


def table(found: Found) -> str:
    """Return the totals, and the share of each part of the list, as a Markdown table."""
    lines = ["| tool | " + " | ".join((*VERDICTS, *ITEMS)) + " |", "| --- " * (1 + len(VERDICTS) + len(ITEMS)) + "|"]
    for tool, rows in found.items():
        totals = Counter(v["verdict"] for v in rows.values())
        parts = []
        for items in ITEMS.values():
            inside = [v["verdict"] == "works" for n, v in rows.items() if PROGRAMS[n].item in items]
            parts.append(f"{sum(inside)}/{len(inside)}")
        lines.append(f"| `{tool}` | " + " | ".join([*(str(totals[v]) for v in VERDICTS), *parts]) + " |")
    return "\n".join(lines)


def judge_all(tool: str, names: list[str], results: Path) -> None:
    """Judge the programs that have no verdict yet; start again after a crash or a program that takes too long."""
    while missing := [n for n in names if n not in known(tool, results)]:
        done = 0
        for line in answers(tool, missing):
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"tool": tool, **line}) + "\n")
            done += 1
        print(f"{tool}: {done} judged, {len(missing) - done} to go", file=sys.stderr)


def known(tool: str, results: Path) -> dict[str, dict[str, str]]:
    """Read the verdicts on one tool."""
    if not results.exists():
        return {}
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return {line["name"]: line for line in lines if line["tool"] == tool and line["name"] in PROGRAMS}


def answers(tool: str, names: list[str]) -> Iterator[dict[str, str]]:
    """Run one process over programs; the program that kills or stalls it is refused, and ends it."""
    command = [sys.executable, "-m", "integration.python.peers", "--worker", tool, *names]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)
    assert process.stdout is not None
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    try:
        for name in names:
            line = process.stdout.readline() if selector.select(SECONDS) else None
            if line:
                yield json.loads(line)
                continue
            reason = f"no answer in {SECONDS:.0f} s" if line is None else "the process crashed"
            yield {"name": name, "verdict": "refuses", "reason": reason}
            return
    finally:
        process.kill()
        process.wait()


def worker(tool: str, names: list[str]) -> int:
    """Judge programs in this process; one line of JSON each."""
    for name in names:
        verdict, reason = judge(tool, PROGRAMS[name])
        print(json.dumps({"name": name, "verdict": verdict, "reason": reason}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
