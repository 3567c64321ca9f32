"""Run everything under each tested torch and CPython, one row at a time: `nox -s versions -- [row ...] [options]`.

A row is a CPython and a torch, such as `3.11-2.14.1`; the rows are those of `intarsia_ir/tested.py`. Each gets an
environment of its own, gone before the next one's is made, for a CUDA build takes 6 GB. What passed is kept in
`.nox/rows/results.json` and isn't run again, so that a run that was stopped goes on where it was; `--fresh` forgets
it. The build of torch is the one that pip finds: set its index to that of the CPU builds to run those.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def tested() -> dict[str, tuple[str, ...]]:
    """Return the tables of tested versions, read without importing the package."""
    tree = ast.parse((ROOT / "packages" / "ir" / "src" / "intarsia_ir" / "tested.py").read_text(encoding="utf-8"))
    assignments = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
    return {assignment.targets[0].id: ast.literal_eval(assignment.value) for assignment in assignments}


PACKAGES = sorted(p.parent.name for p in ROOT.glob("packages/*/pyproject.toml"))
TESTED = tested()
ROWS = [f"{python}-{torch}" for torch in reversed(TESTED["TORCHES"]) for python in TESTED["PYTHONS"]]
TOOLS = ("pytest>=8", "pytest-timeout", "hypothesis>=6.100", "expecttest", "numpy", "transformers", "rich")
# the interpreter of Triton 3.6, the one that torch 2.11 brings, takes arrays of one element for numbers
LIMITS = {"2.11.0": ("numpy<2.4",)}
EXAMPLES = ["README.md", "docs/add-a-pass.md", "docs/add-an-op.md", *(f"packages/{p}/README.md" for p in PACKAGES)]
PYTEST = ("-m", "pytest", "-q", "--tb=short")

PARTS: dict[str, tuple[str, ...]] = {
    "readme": ("tools/readme_example.py", *EXAMPLES),
    "examples": (*PYTEST, "integration/examples"),
    **{f"packages/{p}": (*PYTEST, f"packages/{p}/tests") for p in PACKAGES},
    "integration": (*PYTEST, "integration", "--ignore=integration/examples"),
    "demo": ("-m", "integration.demo"),
}
SHOWN = ("readme", "examples", "packages", "integration", "demo")

Results = dict[str, dict[str, dict[str, Any]]]


def main(arguments: list[str]) -> int:
    """Run the rows that are named, print the table; 0 when every part of them has passed."""
    parser = argparse.ArgumentParser(prog="nox -s versions --", description=__doc__, allow_abbrev=False)
    parser.add_argument("rows", nargs="*", metavar="row", help=f"of {', '.join(ROWS)}; all if none is given")
    parser.add_argument("--parts", nargs="+", metavar="PART", help=f"only these: {', '.join(SHOWN)}, or packages/NAME")
    parser.add_argument("--fresh", action="store_true", help="run again what passed")
    parser.add_argument("--table", action="store_true", help="run nothing, print the table")
    parser.add_argument("--folder", type=Path, default=ROOT / ".nox" / "rows", help="of results, logs, environment")
    parser.add_argument("--environment", type=Path, help="use this environment, and keep it; for one row")
    parser.add_argument("--quick", action="store_true", help="the demo without its first calls")
    options = parser.parse_args(arguments)
    unknown = [row for row in options.rows if row not in ROWS]
    if unknown or (options.environment and len(options.rows) != 1):
        parser.error(f"no such row: {', '.join(unknown)}" if unknown else "--environment is for one row")
    parts = [p for p in PARTS if options.parts is None or p in options.parts or p.partition("/")[0] in options.parts]
    options.folder.mkdir(parents=True, exist_ok=True)
    book = Book(options.folder / "results.json")
    for row in () if options.table else options.rows or ROWS:
        run_row(row, parts, book, options)
    print(table(book.results))
    if options.table:
        return 0
    chosen = options.rows or ROWS
    return int(not all(book.passed(row, part) for row in chosen for part in parts))


class Book:
    """The results, kept in a file after each part.

    Args:
        path: The file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: Results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def passed(self, row: str, part: str) -> bool:
        """Tell whether a part has passed."""
        return bool(self.results.get(row, {}).get(part, {}).get("passed"))

    def keep(self, row: str, part: str, *, passed: bool, summary: str, **more: Any) -> None:
        """Write down how a part went today.

        Args:
            row: Of the matrix.
            part: A name of `PARTS`, or "install".
            passed: Whether it did.
            summary: What it came to, in a few words.
            more: Whatever else is known, such as seconds.
        """
        result = {"passed": passed, "summary": summary, "date": datetime.date.today().isoformat(), **more}
        self.results.setdefault(row, {})[part] = result
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.results, indent=1, sort_keys=True), encoding="utf-8")
        new.replace(self.path)


def run_row(row: str, parts: list[str], book: Book, options: argparse.Namespace) -> None:
    """Make the environment of a row and run the parts that haven't passed."""
    left = [part for part in parts if options.fresh or not book.passed(row, part)]
    if not left:
        print(f"{row}: all has passed before", flush=True)
        return
    version, _, torch = row.partition("-")
    environment = options.environment or options.folder / "environment"
    if not options.environment:
        interpreter = find_interpreter(version)
        if interpreter is None:
            book.keep(row, "install", passed=False, summary=f"python{version} is missing")
            print(f"{row}: python{version} is missing", flush=True)
            return
        if not make_environment(environment, interpreter, torch):
            book.keep(row, "install", passed=False, summary="can't be installed")
            return
    python = str(environment / "bin" / "python")
    install_packages(python)
    build = build_of(python)
    if not build.startswith(torch):
        raise SystemExit(f"{environment} has torch {build}, not {torch}")
    book.keep(row, "install", passed=True, summary=build)
    for part in left:
        run_part(row, part, python, book, options.folder, quick=options.quick and part == "demo")
    if not options.environment:
        shutil.rmtree(environment)


def find_interpreter(version: str) -> str | None:
    """Return the path of `pythonX.Y` if it is there and runs: a version manager's stub may be there and refuse."""
    path = shutil.which(f"python{version}")
    if path is None or subprocess.run([path, "-c", ""], capture_output=True).returncode:
        return None
    return path


def make_environment(folder: Path, interpreter: str, torch: str) -> bool:
    """Install a torch, what the packages need, and the tools of their tests; tell whether that went well."""
    shutil.rmtree(folder, ignore_errors=True)
    pins = (ROOT / "tools" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constraints = folder.with_name("constraints.txt")
    constraints.write_text("\n".join(pin for pin in pins if not pin.startswith("torch==")), encoding="utf-8")
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "-c", str(constraints)]
    commands = [
        [interpreter, "-m", "venv", str(folder)],
        [*install, f"torch=={torch}", "setuptools>=77", "wheel", *TOOLS, *LIMITS.get(torch, ()), *dependencies()],
    ]
    return all(subprocess.run(command, cwd=ROOT).returncode == 0 for command in commands)


def dependencies() -> list[str]:
    """Return what the packages require beside each other and torch."""
    projects = [tomllib.loads((ROOT / "packages" / p / "pyproject.toml").read_text("utf-8")) for p in PACKAGES]
    requirements = {requirement for project in projects for requirement in project["project"]["dependencies"]}
    return sorted(r for r in requirements if not re.match(r"(intarsia|torch)\b", r))


def install_packages(python: str) -> None:
    """Install the packages as they lie here, and build the two extensions."""
    paths = [arg for p in PACKAGES for arg in ("-e", str(ROOT / "packages" / p))]
    install = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, *paths], cwd=ROOT, check=True)
    for extension in ("framehook", "guards"):
        subprocess.run([python, "-m", f"intarsia_{extension}.build"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def build_of(python: str) -> str:
    """Return the build of torch that an environment has."""
    code = "import torch; print(torch.__version__, 'CUDA ' + torch.version.cuda if torch.version.cuda else 'CPU')"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def variables() -> dict[str, str]:
    """Return the environment variables of everything that runs: the folder of `integration`, no network."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}


def run_part(row: str, part: str, python: str, book: Book, folder: Path, *, quick: bool) -> None:
    """Run one part and write down how it went."""
    log = folder / f"{row}-{part.replace('/', '-')}.txt"
    command = [python, *PARTS[part], *(["--quick"] if quick else [])]
    start = datetime.datetime.now()
    with log.open("w", encoding="utf-8") as out:
        ended = subprocess.run(command, cwd=ROOT, env=variables(), stdout=out, stderr=subprocess.STDOUT)
    seconds = round((datetime.datetime.now() - start).total_seconds())
    passed, summary = ended.returncode == 0, summary_of(log) + (" (quick)" if quick else "")
    book.keep(row, part, passed=passed, summary=summary, seconds=seconds, commit=commit())
    print(f"{row} {part}: {'passed' if passed else f'FAILED, see {log}'}; {summary}", flush=True)


def summary_of(log: Path) -> str:
    """Return what pytest counted, or the last line."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    counted = [line for line in lines if re.search(r"\d (passed|failed|errors?)\b.* in \d", line)]
    return re.sub(r" in \d.*", "", counted[-1].strip("= ")) if counted else (lines or ["nothing was printed"])[-1]


def commit() -> str:
    """Return the short name of the commit that is checked out."""
    return subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()


def table(results: Results) -> str:
    """Return the rows that ran, in Markdown."""
    lines = ["| CPython | torch | " + " | ".join(SHOWN) + " | date |", "| --- " * (len(SHOWN) + 3) + "|"]
    for row in ROWS:
        parts = results.get(row)
        if parts:
            python, _, torch = row.partition("-")
            build = parts["install"]["summary"] if parts.get("install", {}).get("passed") else torch
            last = max(result["date"] for result in parts.values())
            cells = [python, build, *(cell(parts, part) for part in SHOWN), last]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(parts: dict[str, dict[str, Any]], shown: str) -> str:
    """Return how a part went: of the packages, how many tests passed in how many of them."""
    results = {part: result for part, result in parts.items() if part.partition("/")[0] == shown}
    if not results:
        return "not run"
    counts = [int(n) for result in results.values() for n in re.findall(r"(\d+) passed", result["summary"])]
    failed = sorted(part.partition("/")[2] or part for part, result in results.items() if not result["passed"])
    of = f" in {len(results)} of {len(PACKAGES)}" if shown == "packages" and len(results) < len(PACKAGES) else ""
    how = " (quick)" if any(result["summary"].endswith("(quick)") for result in results.values()) else ""
    if not failed:
        return f"{sum(counts):,} pass{of}" if sum(counts) else f"passes{how}"
    passed = f"{sum(counts):,} pass{of} " if sum(counts) else ""
    return f"{passed}FAILED: {', '.join(failed)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
