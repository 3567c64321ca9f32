"""The house rules that are code. Each finding names its rule; sizes are printed, not judged.

T1  every Python file opens with a docstring (tests may have a one-line one)
T2  every package has pyproject, LICENSE, README, CHANGELOG, changes/, py.typed, tests/public_api.txt
T3  every package's `__init__` has a docstring with an example, a sorted `__all__`, and its version equals pyproject's
T4  every README has an `## Example` with runnable Python and an `## Invariants` section
T5  no bare or swallowed exception, no NotImplementedError, no `raise Exception`, no loose TODO below packages/*/src
T6  the top level holds exactly the agreed names
T7  docs/architecture.md names exactly the folders of packages/, and files in them that exist
T8  node.meta keys are spelled in intarsia_ir.meta alone
T9  no machine path or registry host in any tracked file
T10 the pipeline package stays under 800 lines of code (blank lines, comments and docstrings don't count)
T11 the numbered rules of a package's verifiers agree: each is in a docstring, in the code, and named by a test
T12 what packages and examples import from each other is listed in `tests/siblings.txt` (`tools/surface.py` says more)
T13 every package's pyproject has what an index shows: description, authors, keywords, licence, classifiers
T14 a code that is compared with is a name of `intarsia_ir.codes`
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"README.md", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "LICENSE"}
TOP = PAGES | {"noxfile.py", "packages", "integration", "benchmarks", "docs", "tools"}
BAD_CODE = re.compile(
    r"except:|except (Base)?Exception( as \w+)?:\s*\n\s*pass\b|raise Exception\(|raise NotImplementedError"
    r"|TODO(?!\(docs/status\.md: )"
)
# "(?<!...)" keeps paths inside a longer path, such as a URL, apart
MACHINE = re.compile(r"(?<![\w./-])/(?:work|farm|root|home)/[a-z]|bash_jobs|/opt/(?:wheels|pypi)")
META_KEY = re.compile(r"\.meta(?:\[[\"']|\.get\(|\.setdefault\(|\.pop\()")
CODE_ASKED_FOR = re.compile(r"\bcode (?:==|!=|in|not in) \(?\"[a-z]+\.[a-z_]+\"")
PIPELINE_LINES = 800
RULE = re.compile(r"\b[A-Z][0-9]{1,2}\b")
RULE_LINE = re.compile(r"^\s*([A-Z][0-9]{1,2})(?::|  )", re.MULTILINE)


def main() -> int:
    findings = [*files(), *packages(), *top_level(), *architecture(), *pipeline_size(), *numbered_rules(), *surface()]
    for finding in findings:
        print(finding)
    sizes()
    print(f"tidy: {len(findings)} finding(s)")
    return 1 if findings else 0


def tracked() -> list[Path]:
    """Return every file that git tracks, or would."""
    listed = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    )
    return [ROOT / name for name in listed.splitlines() if (ROOT / name).is_file()]


def files() -> Iterator[str]:
    """T1, T5, T8, T9, T14."""
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in {".py", ".md", ".c", ".h", ".toml", ".txt", ".ir", ""}:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if MACHINE.search(text) and name != "tools/tidy.py":
            yield f"T9 {name}: {MACHINE.search(text)[0]}"  # type: ignore[index]
        if path.suffix != ".py":
            continue
        if ast.get_docstring(ast.parse(text)) is None:
            yield f"T1 {name}: no module docstring"
        if "/src/" in name and name.startswith("packages/"):
            yield from (f"T5 {name}: {m[0].splitlines()[0]}" for m in BAD_CODE.finditer(text))
            yield from (f"T14 {name}: {m[0]}" for m in CODE_ASKED_FOR.finditer(text))
            if META_KEY.search(text) and not name.endswith("intarsia_ir/meta.py"):
                yield f"T8 {name}: spells a meta key"


def packages() -> Iterator[str]:
    """T2, T3, T4, T13."""
    for project in sorted(ROOT.glob("packages/*/pyproject.toml")):
        folder, name = project.parent, project.parent.name
        module = "intarsia" if name == "pipeline" else f"intarsia_{name}"
        source = folder / "src" / module
        wanted = ["LICENSE", "README.md", "CHANGELOG.md", "changes", "tests/public_api.txt", f"src/{module}/py.typed"]
        yield from (f"T2 packages/{name}: {w} is missing" for w in wanted if not (folder / w).exists())
        readme = (folder / "README.md").read_text(encoding="utf-8")
        for heading in ("## Example", "## Invariants"):
            if heading not in readme:
                yield f"T4 packages/{name}/README.md: no {heading}"
        if "```python" not in readme:
            yield f"T4 packages/{name}/README.md: no runnable example"
        said = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        shown = ("description", "readme", "license", "authors", "keywords", "classifiers")
        yield from (f"T13 packages/{name}/pyproject.toml: no {key}" for key in shown if not said.get(key))
        yield from init_module(name, source / "__init__.py", said["version"])


def init_module(name: str, path: Path, version: str) -> Iterator[str]:
    """T3 for one package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if ">>>" not in (ast.get_docstring(tree) or ""):
        yield f"T3 packages/{name}: __init__ has no example in its docstring"
    values = {
        t.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for t in node.targets
        if isinstance(t, ast.Name)
    }
    exported = ast.literal_eval(values["__all__"]) if "__all__" in values else None
    if exported is None or list(exported) != sorted(exported):
        yield f"T3 packages/{name}: __all__ is missing or not sorted"
    if "__version__" not in values or ast.literal_eval(values["__version__"]) != version:
        yield f"T3 packages/{name}: __version__ differs from pyproject's {version}"


def top_level() -> Iterator[str]:
    """T6."""
    names = {p.relative_to(ROOT).parts[0] for p in tracked()}
    visible = {n for n in names if not n.startswith(".")}
    yield from (f"T6 {n} does not belong at the top level" for n in sorted(visible - TOP))
    yield from (f"T6 {n} is missing at the top level" for n in sorted(TOP - visible))


def architecture() -> Iterator[str]:
    """T7."""
    page = ROOT / "docs" / "architecture.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    named = set(re.findall(r"^\| `packages/(\w+)`", text, re.MULTILINE))
    real = {p.parent.name for p in ROOT.glob("packages/*/pyproject.toml")}
    yield from (f"T7 docs/architecture.md: packages/{n} is not in the code map" for n in sorted(real - named))
    yield from (f"T7 docs/architecture.md: packages/{n} does not exist" for n in sorted(named - real))
    for name, start in re.findall(r"^\| `packages/(\w+)` \|[^|]*\| (.*) \|$", text, re.MULTILINE):
        for target in re.findall(r"`([^`]+)`", start):
            if not any(ROOT.glob(f"packages/{name}/src/*/{target}")):
                yield f"T7 docs/architecture.md: packages/{name} has no {target}"


def pipeline_size() -> Iterator[str]:
    """T10."""
    lines = sum(code_lines(p.read_text(encoding="utf-8")) for p in ROOT.glob("packages/pipeline/src/**/*.py"))
    if lines >= PIPELINE_LINES:
        yield f"T10 packages/pipeline: {lines} lines of code, {PIPELINE_LINES} allowed"


def numbered_rules() -> Iterator[str]:
    """T11."""
    integration = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "integration").glob("test_*.py"))
    for source in sorted(ROOT.glob("packages/*/src/*")):
        written: set[str] = set()
        checked: set[str] = set()
        for name in ("verify.py", "rules.py", "_rules.py", "check.py"):
            for path in source.rglob(name):
                tree = ast.parse(path.read_text(encoding="utf-8"))
                written |= set(RULE_LINE.findall(ast.get_docstring(tree) or ""))
                constants = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
                checked |= {v for v in constants if isinstance(v, str) and RULE.fullmatch(v)}
        tests = "".join(p.read_text(encoding="utf-8") for p in (source.parents[1] / "tests").rglob("*.py"))
        tested = set(RULE.findall(tests)) | set(RULE.findall(integration))
        where = source.relative_to(ROOT)
        for missing, what in (
            (checked - written, "is in no docstring"),
            (written - checked, "is in no code"),
            (written - tested, "is named by no test"),
        ):
            yield from (f"T11 {where}: rule {rule} {what}" for rule in sorted(missing))


def surface() -> Iterator[str]:
    """T12."""
    sys.path.insert(0, str(ROOT / "tools"))
    from surface import findings

    yield from (f"T12 {finding}" for finding in findings())


def code_lines(text: str) -> int:
    """Count the lines that are neither blank, nor comment, nor docstring."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            first = node.body[0]
            documented |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(text.splitlines(), start=1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and n not in documented for n, line in lines)


def sizes() -> None:
    """Print the longest files and functions, and how many names say nothing: places to look, not violations."""
    long_files: list[tuple[int, str]] = []
    long_functions: list[tuple[int, str]] = []
    for path in sorted(ROOT.glob("packages/*/src/**/*.py")):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT).as_posix()
        long_files.append((len(text.splitlines()), name))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                long_functions.append((node.end_lineno - node.lineno + 1, f"{name}:{node.name}"))
    for what, entries, limit in (("file", long_files, 600), ("function", long_functions, 60)):
        over = sorted((e for e in entries if e[0] > limit), reverse=True)
        for lines, name in over[:10]:
            print(f"tidy: look at {name}: a {what} of {lines} lines")
    sys.path.insert(0, str(ROOT / "tools"))
    from names import totals

    print("tidy: {} names that say nothing, {} public arguments of one letter: tools/names.py".format(*totals()))


if __name__ == "__main__":
    raise SystemExit(main())
