"""Which modules of a package import which, those that are imported for types or inside of functions too."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from types import ModuleType

__all__ = ["circle_in", "import_graph", "modules_of"]


def modules_of(package: ModuleType) -> dict[str, pathlib.Path]:
    """Return the path of each module of an installed package, by its name."""
    folder = pathlib.Path(str(package.__file__)).parent
    names = {path: path.relative_to(folder.parent).with_suffix("") for path in folder.rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): path for path, name in names.items()}


def import_graph(package: ModuleType) -> dict[str, set[str]]:
    """Return the modules of the package that each of them names in an import, read from the text."""
    known = modules_of(package)
    return {name: _imports(path, known) - {name} for name, path in known.items()}


def _imports(path: pathlib.Path, known: Mapping[str, pathlib.Path]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner | {node.module} if not inner & known.keys() else inner
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known.keys()


def circle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the modules of an import circle, the first one last again; none, when there is none.

    Example:
        >>> circle_in({"a": {"b"}, "b": {"a"}, "c": {"a"}})[0] in "ab", circle_in({"a": {"b"}, "b": set()})
        (True, [])
    """
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []
