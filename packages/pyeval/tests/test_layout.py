"""The layout of the package: no import circle, folders import only what lies below them, and all rules are in use."""

from __future__ import annotations

import ast
import pathlib
from graphlib import CycleError, TopologicalSorter

import pytest

import intarsia_pyeval
from intarsia_pyeval import do, rules

PACKAGE = pathlib.Path(intarsia_pyeval.__file__).parent
NAME = "intarsia_pyeval"
#: The lowest first. Modules that aren't named are between: they join `kinds` and `semantics`.
FOLDERS = ["values", "state", "stores", "kinds", "opcodes"]
LONGEST = 600


def modules() -> dict[str, pathlib.Path]:
    paths = {path: path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): path for path, name in paths.items()}


def imports(path: pathlib.Path, known: dict[str, pathlib.Path]) -> set[str]:
    """Return the modules of the package that a file names, for types or inside of functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(NAME):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
    return found


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_import_circle_not_even_for_types():
    known = modules()
    assert len(known) > 80
    graph = {name: imports(path, known) - {name} for name, path in known.items()}
    assert circle_in(graph) == []
    lowest = f"{NAME}.values.base"  # a circle is found where there is one
    assert f"{NAME}.do" in circle_in({**graph, lowest: graph[lowest] | {f"{NAME}.do"}})


def test_folders_import_what_lies_below_them():
    known = modules()
    for name, path in known.items():
        folder = name.split(".")[1] if name.count(".") > 1 else ""
        if folder in FOLDERS:
            above = tuple(f"{NAME}.{higher}." for higher in FOLDERS[FOLDERS.index(folder) + 1 :])
            assert not [other for other in imports(path, known) if other.startswith(above)], name


def test_all_rules_are_in_use():
    files = {path.stem for path in (PACKAGE / "kinds").glob("*.py")} - {"__init__"}
    assert {module.__name__.rpartition(".")[2] for module in rules.KINDS} == files


@pytest.mark.parametrize("name", do.__all__)
def test_an_operation_has_rules_of_several_kinds(name):
    found = getattr(do, name)
    assert len(found.rules) > (0 if name in ("call_native", "convert", "delete_attribute") else 1)
    assert found.default not in found.rules.values()


def test_files_are_short():
    long = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules().items()}
    assert {name: lines for name, lines in long.items() if lines > LONGEST} == {}
