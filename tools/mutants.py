"""Change one small thing at a time in passes, index arithmetic, guards and emitters, and see which tests notice.

`python tools/mutants.py --count 300` draws mutants with a fixed seed, as many of each area, and runs each one's own
package's tests against a copy of the package with that change until one fails. Before that each file of tests runs once
without a change: tests that run the changed lines come first, the quickest of them before the others, and what fails
unchanged notices nothing. A mutant is caught when a test fails; 60 s of CPU are its limit. What ran out of them isn't
caught, also where one test hung. What was found out is kept in `--results` and isn't run again; `--list` prints the
mutants, `--survivors` those that lived.

Not changed are annotations, decorators, assertions, errors that are raised, texts, what `__repr__` gives, and logging.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SEED = 20
RECORD_S = 300.0
SITE = os.environ.get("PYTHONPATH", "")
AREAS = {
    "passes": ("rewrites/**", "functionalizer/**", "autodiff/**", "fuser/**", "scheduler/**"),
    "index": ("loops/index.py", "loops/_positions.py", "loops/addresses.py", "loops/rewrites.py", "shapes/**"),
    "guards": ("guards/**",),
    "emitters": ("cpp/**", "triton/**"),
}
COMPARISONS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
}  # fmt: skip
LEFT_ALONE = (ast.Assert, ast.Raise, ast.JoinedStr)
LOGGING = re.compile(r"_?log\.|warn")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change.

    Args:
        area: Of `AREAS`.
        file: Below the repository's root.
        line: Where it is, from 1 on.
        start: Offset of the text that is replaced, in characters of the file.
        end: Where that text ends.
        text: What takes its place.
    """

    area: str
    file: str
    line: int
    start: int
    end: int
    text: str

    @property
    def package(self) -> str:
        """The package that it is in."""
        return self.file.split("/")[1]

    def applied(self, source: str) -> str:
        """Return the changed text of the file."""
        return source[: self.start] + self.text + source[self.end :]

    def __str__(self) -> str:
        source = (ROOT / self.file).read_text(encoding="utf-8")
        old, new = (text.splitlines() for text in (source, self.applied(source)))
        after = new[self.line - 1 : self.line + len(new) - len(old)]
        return f"{self.file}:{self.line}\n  - {old[self.line - 1].strip()}\n  + {' '.join(map(str.strip, after))}"


# ---- what can be changed ----------------------------------------------------------------------------------------


class _Changes(ast.NodeVisitor):
    """Collects (start, end, new text) of all changes of a file."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found: list[tuple[int, int, str]] = []
        lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._lines = lines

    def _at(self, line: int, column: int) -> int:
        """Return an offset in characters; columns count bytes."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, (ast.expr, ast.stmt)) and node.end_lineno is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset or 0)

    def _between(self, left: ast.AST, right: ast.AST, old: str, new: str) -> None:
        """Replace an operator between two operands, which a parenthesis may surround."""
        start, end = self._span(left)[1], self._span(right)[0]
        words = r"\s+".join(map(re.escape, old.split()))
        match = re.search(words, self.source[start:end])
        if match is not None:
            self.found.append((start + match.start(), start + match.end(), new))

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, LEFT_ALONE):
            return
        super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name != "__repr__":
            for part in (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
                self.visit(part)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in node.body:
            self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            self._between(left, right, *COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        is_text = any(
            isinstance(v, ast.JoinedStr) or isinstance(getattr(v, "value", None), str) for v in (node.left, node.right)
        )
        if type(node.op) in ARITHMETIC and not is_text:
            self._between(node.left, node.right, *ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        self._between(node.values[0], node.values[1], old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.found.append((self._span(node)[0], self._span(node.operand)[0], ""))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.found.append((*self._span(node), str(not node.value)))
        elif isinstance(node.value, int):
            self.found.append((*self._span(node), str(node.value + 1)))

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if not isinstance(node.test, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.NamedExpr)):
            start, end = self._span(node.test)
            self.found.append((start, end, f"not ({self.source[start:end]})"))
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        start, end = self._span(node)
        if isinstance(node.value, ast.Call) and not LOGGING.search(self.source[start:end]):
            self.found.append((start, end, "pass"))
            self.generic_visit(node)


def changes(area: str, file: Path) -> Iterator[Mutant]:
    """Yield the mutants of a file, in order."""
    source = file.read_text(encoding="utf-8")
    visitor = _Changes(source)
    visitor.visit(ast.parse(source))
    for start, end, text in sorted(set(visitor.found)):
        yield Mutant(area, str(file.relative_to(ROOT)), source.count("\n", 0, start) + 1, start, end, text)


def is_program(mutant: Mutant) -> bool:
    """Tell whether Python can read the file still."""
    try:
        ast.parse(mutant.applied((ROOT / mutant.file).read_text(encoding="utf-8")))
    except SyntaxError:
        return False
    return True


def drawn(count: int, seed: int) -> list[Mutant]:
    """Return mutants: as many of each area."""
    random_number = random.Random(seed)
    found: list[list[Mutant]] = []
    for area, globs in AREAS.items():
        names = [glob.split("/", 1) for glob in globs]
        roots = [(ROOT / "packages" / package / "src" / f"intarsia_{package}", rest) for package, rest in names]
        files = sorted({file for root, rest in roots for file in root.glob(rest.replace("**", "**/*.py"))})
        every = [mutant for file in files for mutant in changes(area, file)]
        share = count // len(AREAS) + (len(found) < count % len(AREAS))
        random_number.shuffle(every)
        found.append(list(itertools.islice(filter(is_program, every), share)))
    # in turn, so that the first few are of every area
    return [area[k] for k in range(max(map(len, found))) for area in found if k < len(area)]


# ---- which tests run it -----------------------------------------------------------------------------------------


def lines_of(mutant: Mutant) -> range:
    """Return the lines of the smallest statement around a change; of one that has a body, those before the body."""
    source = (ROOT / mutant.file).read_text(encoding="utf-8")
    last = mutant.line + source.count("\n", mutant.start, mutant.end)
    found = range(mutant.line, last + 1)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.end_lineno and node.lineno <= mutant.line and last <= node.end_lineno:
            body = getattr(node, "body", None)
            end = max(node.lineno, body[0].lineno - 1) if isinstance(body, list) and body else node.end_lineno
            if last <= end:
                found = range(node.lineno, end + 1)  # walked from the outside in: the last one is the smallest
    return found


def recorded(mutants: list[Mutant], packages: set[str], rows: Path, jobs: int, seconds: float) -> dict[str, Any]:
    """Run each file of tests once, unchanged, and return the row of each test, and of files that can't be collected.

    What `rows` has isn't run again.

    Args:
        mutants: Whose lines are looked for.
        packages: Whose tests are run.
        rows: Where rows are kept: of tests, and of files that ended.
        jobs: Processes at a time.
        seconds: No file is begun after these.
    """
    wanted: dict[str, set[int]] = {}
    for mutant in mutants:
        wanted.setdefault(str(ROOT / mutant.file), set()).update(lines_of(mutant))
    files = [file for package in sorted(packages) for file in (ROOT / "packages" / package / "tests").glob("test_*.py")]
    ended = {row["ended"] for row in read(rows) if "ended" in row}
    until = time.monotonic() + seconds

    def record(file: Path) -> None:
        if str(file.relative_to(ROOT)) in ended or time.monotonic() > until:
            return
        with tempfile.TemporaryDirectory() as folder:
            lines = Path(folder) / "lines.json"
            lines.write_text(json.dumps({k: sorted(v) for k, v in wanted.items()}), encoding="utf-8")
            environment = {"MUTANT_LINES": str(lines), "MUTANT_ROWS": str(rows)}
            told = tests([str(file)], environment, Path(folder), source=None, seconds=RECORD_S)
        keep(rows, {"ended": str(file.relative_to(ROOT)), "code": told.code, "seconds": told.seconds})
        print(f"recorded {file.relative_to(ROOT)}: {told.code}, {told.seconds} s", flush=True)

    # the longest first, as far as their length says so
    run_all(record, sorted(files, key=lambda file: -file.stat().st_size), jobs)
    found = {row["test"]: row for row in read(rows) if "test" in row}
    return found | {row["ended"]: row for row in read(rows) if row.get("code", 0) in (2, 3, 4)}


def order_of(mutant: Mutant, tests: dict[str, Any]) -> dict[str, list[str]]:
    """Return the tests that run a mutant's lines, the quickest first, and those that fail without it."""
    mine = set(lines_of(mutant))
    package = f"packages/{mutant.package}/"
    of_package = [row for name, row in tests.items() if name.startswith(package) and "test" in row]

    first = sorted(
        (row for row in of_package if mine.intersection(row["lines"].get(mutant.file, ()))),
        key=lambda row: row["seconds"],
    )
    return {"first": [row["test"] for row in first], "not": [row["test"] for row in of_package if row["failed"]]}


# ---- what notices -----------------------------------------------------------------------------------------------


def test_files(mutant: Mutant) -> list[str]:
    """Return the files of the package's tests, those that say something of the changed module first."""
    stem = Path(mutant.file).stem.lstrip("_")
    tree = ast.parse((ROOT / mutant.file).read_text(encoding="utf-8"))
    names = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    public = re.compile("|".join(rf"\b{name}\b" for name in (stem, *(n for n in names if n[0] != "_"))))

    def rank(file: Path) -> tuple[bool, bool, str]:
        return file.stem != f"test_{stem}", not public.search(file.read_text(encoding="utf-8")), file.name

    return [str(file) for file in sorted((ROOT / "packages" / mutant.package / "tests").glob("test_*.py"), key=rank)]


@dataclass(frozen=True, slots=True)
class Told:
    """What a run of tests ended with.

    Args:
        code: Exit status; below 0 when it was ended.
        said: Standard output.
        seconds: On the clock.
    """

    code: int
    said: str
    seconds: float


def tests(
    files: list[str],
    more: dict[str, str],
    folder: Path,
    *,
    source: Path | None,
    seconds: float,
    cpu_s: int | None = None,
) -> Told:
    """Run files of tests in a process of their own.

    Args:
        files: To be given to pytest.
        more: Variables of the environment.
        folder: For what tests leave.
        source: Sources that come before all others, or None.
        seconds: Limit on the clock.
        cpu_s: Limit of the processor, for each process; then the first failure ends it.
    """
    sources = [str(source)] * (source is not None) + sorted(str(p) for p in ROOT.glob("packages/*/src"))
    environment = {
        **os.environ,
        **more,
        "PYTHONPATH": os.pathsep.join([*sources, str(ROOT), str(ROOT / "tools"), *filter(None, [SITE])]),
        "INTARSIA_WARM_START": "0",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
    }
    options = ["-q", "-p", "no:cacheprovider", "-p", "mutant_tests", f"--rootdir={ROOT}"] + ["-x"] * (cpu_s is not None)
    start = time.monotonic()
    with (folder / "said").open("w+", encoding="utf-8") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *files],
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: cpu_s and resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5)),
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            with contextlib.suppress(ProcessLookupError):  # what the tests started ends with them
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        return Told(code, out.read(), round(time.monotonic() - start, 1))


def run(mutant: Mutant, limit_s: int, wall_s: int, known: dict[str, Any]) -> tuple[str, str, float]:
    """Return what became of a mutant: caught, survived, hung, or out of time; by which test; and seconds."""
    source = ROOT / "packages" / mutant.package / "src"
    order = order_of(mutant, known)
    files = [file for file in test_files(mutant) if str(Path(file).relative_to(ROOT)) not in known]
    meeting = {test.split("::")[0] for test in order["first"]}
    files.sort(key=lambda file: str(Path(file).relative_to(ROOT)) not in meeting)  # stable
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy, at = folder / "src", folder / "at"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        changed = copy / Path(mutant.file).relative_to(source.relative_to(ROOT))
        changed.write_text(mutant.applied(changed.read_text(encoding="utf-8")), encoding="utf-8")
        (folder / "order.json").write_text(json.dumps({**order, "at": str(at)}), encoding="utf-8")
        more = {"MUTANT_ORDER": str(folder / "order.json")}
        told = tests(files, more, folder, source=copy, seconds=wall_s, cpu_s=limit_s)
        began, _, during = at.read_text(encoding="utf-8").partition(" ") if at.exists() else ("", "", "")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", told.said, re.MULTILINE)
    if told.code >= 0:
        state = "survived" if told.code == 0 else "caught"
        return state, failed[1] if failed else "", told.seconds
    stayed = time.time() - float(began or time.time())
    hung = known.get(during, {}).get("seconds") is not None and stayed > max(20.0, 10 * known[during]["seconds"])
    return "hung" if hung else "out of time", during, told.seconds


# ---- the command ------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Any]:
    """Return the rows of a file, those that were written whole."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines if line]


def keep(path: Path, row: dict[str, Any]) -> None:
    """Append a row, in one write."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def run_all(work: Callable[[Any], None], what: list[Any], jobs: int) -> None:
    """Do everything, some at a time."""
    with ThreadPoolExecutor(jobs) as threads:
        list(threads.map(work, what))


def show(mutants: list[Mutant], known: dict[str, Any]) -> bool:
    """Print counts by area, and return whether less than nine in ten were caught."""
    rows = [known[key] for mutant in mutants if (key := json.dumps(asdict(mutant))) in known]
    for area in AREAS:
        states = Counter(row["state"] for row in rows if row["mutant"]["area"] == area)
        print(f"{area}: {', '.join(f'{n} {state}' for state, n in states.most_common()) or 'none run'}")
    caught = sum(row["state"] == "caught" for row in rows)
    print(f"{len(rows)} of {len(mutants)} mutants run, {caught} caught ({100 * caught / max(len(rows), 1):.1f}%)")
    return bool(rows) and caught < 0.9 * len(rows)


def main() -> int:
    """Draw, run what wasn't run, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--first", type=int, default=None, help="run as many of them")
    parser.add_argument("--number", type=int, nargs="*", help="run these of them")
    parser.add_argument("--limit", type=int, default=60, help="seconds of CPU for each")
    parser.add_argument("--wall", type=int, default=480, help="seconds on the clock for each, on a machine under load")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin none after these")
    parser.add_argument("--results", type=Path, default=ROOT / ".nox" / "mutants.jsonl")
    parser.add_argument("--tests", type=Path, help="rows of the tests without changes, made where they aren't there")
    parser.add_argument("--record", action="store_true", help="make these rows, and run no mutant")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--survivors", action="store_true")
    given = parser.parse_args()
    start, mutants = time.monotonic(), drawn(given.count, given.seed)
    given.results.parent.mkdir(parents=True, exist_ok=True)
    rows = given.tests or given.results.with_name("mutants_tests.jsonl")
    known = {json.dumps(row["mutant"]): row for row in read(given.results)}
    chosen = [(n, m) for n, m in enumerate(mutants) if given.number is None or n in given.number][: given.first]
    if given.list or given.survivors:
        for number, mutant in chosen:
            row = known.get(json.dumps(asdict(mutant)))
            if given.list or (row and row["state"] != "caught"):
                print(f"{number}: {row['state'] + ' ' + row['by'] if row else ''} {mutant}")
        return 0
    of_tests = recorded(mutants, {m.package for _, m in chosen}, rows, given.jobs, 0.4 * given.seconds)
    if given.record:
        failed = [name for name, row in of_tests.items() if row.get("failed", True)]
        print(f"{len(of_tests)} tests recorded, {len(failed)} failed without a change:", *failed, sep="\n  ")
        return 0

    def work(numbered: tuple[int, Mutant]) -> None:
        number, mutant = numbered
        key = json.dumps(asdict(mutant))
        if key in known or time.monotonic() - start > given.seconds:
            return
        state, by, seconds = run(mutant, given.limit, given.wall, of_tests)
        known[key] = {"mutant": asdict(mutant), "state": state, "by": by, "seconds": seconds}
        keep(given.results, known[key])
        print(f"{number}: {state} {by} ({seconds} s)  {mutant}", flush=True)

    run_all(work, chosen, given.jobs)
    return show([mutant for _, mutant in chosen], known)


if __name__ == "__main__":
    sys.exit(main())
