"""Names that say nothing: how many are left, `python tools/names.py`, and where, `python tools/names.py PACKAGE ...`.

docs/glossary.md has the words of the field. What a program binds (variables, arguments, functions, fields) should be
one of them, or what the value is; `found` or `made` only says that it is there. Counted are these words, and arguments
of one letter of public functions (elementwise formulas, such as `x + y`, have a right to theirs: look, don't judge).
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EMPTY = frozenset({"found", "made", "known", "own", "near", "placed"})
LETTER = "one letter"


def main(packages: list[str]) -> int:
    """Print a line a package, and the places in those that are named."""
    print(f"{'package':18}" + "".join(f"{word:>12}" for word in (*sorted(EMPTY), LETTER)))
    whole: Counter[str] = Counter()
    for folder in sorted(p.parent for p in ROOT.glob("packages/*/src")):
        uses = [(path, *use) for path in sorted(folder.glob("src/**/*.py")) for use in uses_in(path)]
        counts = Counter(word for *_, word in uses)
        whole += counts
        print(row(folder.name, counts))
        if folder.name in packages:
            print(*(f"  {path.relative_to(ROOT)}:{line}: {name}" for path, line, name, _ in uses), sep="\n")
    print(row("all", whole))
    return 0


def row(title: str, counts: Counter[str]) -> str:
    """Return a line of the table."""
    return f"{title:18}" + "".join(f"{counts[word]:12}" for word in (*sorted(EMPTY), LETTER))


def totals() -> tuple[int, int]:
    """Return how many bound names are empty words, and how many public arguments are of one letter."""
    counts = Counter(word for path in ROOT.glob("packages/*/src/**/*.py") for *_, word in uses_in(path))
    return sum(counts[word] for word in EMPTY), counts[LETTER]


def uses_in(path: Path) -> Iterator[tuple[int, str, str]]:
    """Give the line, the name and the word, or `LETTER`, of each name that a file binds and that is counted."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        name = bound(node)
        if name is not None and name.strip("_") in EMPTY:
            yield node.lineno, name, name.strip("_")  # type: ignore[attr-defined]
    yield from ((a.lineno, a.arg, LETTER) for a in public_arguments(tree) if len(a.arg) == 1 and a.arg != "_")


def bound(node: ast.AST) -> str | None:
    """Return the name that a node binds, if it does."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name):
            return name
    return None


def public_arguments(node: ast.AST) -> Iterator[ast.arg]:
    """Give the arguments of public functions, and of public methods of public classes."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.ClassDef) or child.name.startswith("_"):
            continue
        if isinstance(child, ast.ClassDef):
            yield from public_arguments(child)
        else:
            yield from (*child.args.posonlyargs, *child.args.args, *child.args.kwonlyargs)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
