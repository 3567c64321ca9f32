"""What a package uses of torch is there: every name, public or private, that its source spells, looked up.

Torch gives no promise about names with an underscore. The source of a package is read, not imported, so that a name
that is gone is told by name even where importing the package already fails with it. Names are looked up as they stand
in the source: `from torch.x import y`, and chains such as `torch._C._dispatch_keys` from any name that stands for a
module of torch. What is reached otherwise, as an attribute of an object, a test names itself.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["check_torch_names", "missing_names", "names_of_torch"]


def check_torch_names(package: str, *more: str, optional: Mapping[str, str] | None = None) -> None:
    """Look up every name of torch that a package spells.

    Args:
        package: Its import name.
        more: Further names, such as `torch.Tensor._is_view`, that it reaches through objects.
        optional: Name -> why a torch may lack it; a chain that begins with such a name is optional, too.

    Raises:
        AssertionError: The installed torch lacks names; the message gives each with its line.
    """
    import torch

    used = {**names_of_torch(package), **dict.fromkeys(more, f"{package}, through objects")}
    missing = missing_names(used, optional or {})
    text = "\n".join(f"  {name}  ({where})" for name, where in sorted(missing.items()))
    assert not missing, f"torch {torch.__version__} lacks names that {package} uses:\n{text}"


def names_of_torch(package: str) -> dict[str, str]:
    """Return the names of torch in the source of a package: dotted name -> first file and line."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} isn't installed"
    folder = Path(spec.origin).parent
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, line in _names(tree):
            found.setdefault(name, f"{path.relative_to(folder.parent)}:{line}")
    return found


def missing_names(names: Mapping[str, str], optional: Mapping[str, str]) -> dict[str, str]:
    """Return those of the names that the installed torch lacks, except for optional ones."""
    return {
        name: where
        for name, where in names.items()
        if not _is_there(name) and not any(name == one or name.startswith(f"{one}.") for one in optional)
    }


def _names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names that are imported from torch, and the chains from them."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _of_torch(alias.name):
                    bound[alias.asname or "torch"] = alias.name if alias.asname else "torch"
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and not node.level and _of_torch(node.module or ""):
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield f"{node.module}.{alias.name}", node.lineno
    for node in ast.walk(tree):  # such as aten = torch.ops.aten
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            chain = _chain(node.value)
            if len(chain) > 1 and chain[0] in bound:
                bound.setdefault(node.targets[0].id, ".".join([bound[chain[0]], *chain[1:]]))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            chain = _chain(node)
            if chain and chain[0] in bound:
                yield ".".join([bound[chain[0]], *chain[1:]]), node.lineno


def _of_torch(module: str) -> bool:
    return module.partition(".")[0] == "torch"


def _chain(node: ast.expr) -> list[str]:
    """Return the names of `a.b.c`; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def _is_there(name: str) -> bool:
    """Tell whether a dotted name can be reached: modules are imported, and instances aren't asked for attributes."""
    first, *rest = name.split(".")
    value: Any = importlib.import_module(first)
    path = first
    for part in rest:
        path = f"{path}.{part}"
        try:
            value = getattr(value, part)
        except AttributeError:
            if not isinstance(value, ModuleType) or importlib.util.find_spec(value.__name__) is None:
                return not _has_fixed_names(value)
            try:
                value = importlib.import_module(path)
            except ImportError:
                return False
    return True


def _has_fixed_names(value: Any) -> bool:
    """Tell whether what an object lacks is missing for good: it is a module, a class or a table of operators."""
    return isinstance(value, (ModuleType, type)) or type(value).__module__ == "torch._ops"
