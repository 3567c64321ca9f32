"""The layout of the package: no import circle, folders import only what lies below them, and all rules are in use."""

from __future__ import annotations

import pathlib

import pytest

import intarsia_pyeval
from intarsia_pyeval import do, rules
from intarsia_testkit.import_graph import circle_in, import_graph, modules_of

PACKAGE = pathlib.Path(intarsia_pyeval.__file__).parent
NAME = "intarsia_pyeval"
#: The lowest first. Modules that aren't named are between: they join `kinds` and `semantics`.
FOLDERS = ["values", "state", "stores", "kinds", "opcodes"]
LONGEST = 600


def test_no_import_circle_not_even_for_types():
    graph = import_graph(intarsia_pyeval)
    assert len(graph) > 80
    assert circle_in(graph) == []
    lowest = f"{NAME}.values.base"  # a circle is found where there is one
    assert f"{NAME}.do" in circle_in({**graph, lowest: graph[lowest] | {f"{NAME}.do"}})


def test_folders_import_what_lies_below_them():
    for name, imported in import_graph(intarsia_pyeval).items():
        folder = name.split(".")[1] if name.count(".") > 1 else ""
        if folder in FOLDERS:
            above = tuple(f"{NAME}.{higher}." for higher in FOLDERS[FOLDERS.index(folder) + 1 :])
            assert not [other for other in imported if other.startswith(above)], name


def test_all_rules_are_in_use():
    files = {path.stem for path in (PACKAGE / "kinds").glob("*.py")} - {"__init__"}
    assert {module.__name__.rpartition(".")[2] for module in rules.KINDS} == files


@pytest.mark.parametrize("name", do.__all__)
def test_an_operation_has_rules_of_several_kinds(name):
    found = getattr(do, name)
    assert len(found.rules) > (0 if name in ("as_bool", "branch", "call_native", "convert", "delete_attribute") else 1)
    assert found.default not in found.rules.values()


def test_files_are_short():
    long = {
        name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules_of(intarsia_pyeval).items()
    }
    assert {name: lines for name, lines in long.items() if lines > LONGEST} == {}
