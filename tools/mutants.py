"""Change one small thing at a time in passes, index arithmetic, guards and emitters, and see which tests notice.

`python tools/mutants.py --count 300` draws mutants with a fixed seed, as many of each area, and runs each one's own
package's tests against a copy of the package with that change, those that name the changed module first, until one
fails. A mutant is caught when one fails; 60 s of CPU are its limit, and what ran out of them isn't caught. What was
found out is kept in `--results` and isn't run again; `--list` prints the mutants, `--survivors` those that lived.

Not changed are annotations, decorators, assertions, errors that are raised, texts, what `__repr__` gives, and logging.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SEED = 20
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


def run(mutant: Mutant, limit_s: int) -> tuple[str, str, float]:
    """Return what became of a mutant: caught, survived, or out of time; by which test; and CPU seconds."""
    source = ROOT / "packages" / mutant.package / "src"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        changed = copy / Path(mutant.file).relative_to(source.relative_to(ROOT))
        changed.write_text(mutant.applied(changed.read_text(encoding="utf-8")), encoding="utf-8")
        others = sorted(str(p) for p in ROOT.glob("packages/*/src") if p != source)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), *others, str(ROOT)])}
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *test_files(mutant)]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**environment, "INTARSIA_WARM_START": "0", "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                timeout=8 * limit_s,
                check=False,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5)),
            )
            code, said = done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            code, said = -1, ""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    by = failed[1] if failed else ""
    state = "survived" if code == 0 else "caught" if code > 0 else "out of time"
    return state, by or f"after {time.monotonic() - start:.0f} s", round(seconds, 1)


def main() -> int:
    """Draw, run what wasn't run, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--first", type=int, default=None, help="run as many of them")
    parser.add_argument("--limit", type=int, default=60, help="seconds of CPU for each")
    parser.add_argument("--results", type=Path, default=ROOT / ".nox" / "mutants.jsonl")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--survivors", action="store_true")
    given = parser.parse_args()
    mutants = drawn(given.count, given.seed)[: given.first]
    given.results.parent.mkdir(parents=True, exist_ok=True)
    kept = given.results.read_text(encoding="utf-8").splitlines() if given.results.exists() else []
    known = {json.dumps(row["mutant"]): row for row in map(json.loads, kept)}
    for number, mutant in enumerate(mutants):
        key = json.dumps(asdict(mutant))
        if given.list or given.survivors:
            if given.list or (key in known and known[key]["state"] != "caught"):
                print(f"{number}: {mutant}")
            continue
        if key not in known:
            state, by, seconds = run(mutant, given.limit)
            known[key] = {"mutant": asdict(mutant), "state": state, "by": by, "seconds": seconds}
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(known[key]) + "\n")
            print(f"{number}: {state} {by} ({seconds} s)  {mutant}", flush=True)
    states = [known[key]["state"] for m in mutants if (key := json.dumps(asdict(m))) in known]
    caught = states.count("caught")
    print(f"{len(states)} mutants run, {caught} caught ({100 * caught / max(len(states), 1):.0f}%)")
    return bool(states) and caught < 0.9 * len(states)


if __name__ == "__main__":
    sys.exit(main())
