"""What packages import from each other is listed, in `tests/siblings.txt` of the package that has it.

A package's surface is its `__all__`; what siblings (and `integration/examples`) take from its modules besides is in the
list, one `module.name` a line, and `public_api.txt` pins the signatures of both. An import of an unlisted name, of one
that its module doesn't name in `__all__`, or from a private module is a finding of tidy; so is a line that nobody
needs.
`python tools/surface.py --write` writes the lists: a longer list is a wider surface, to be argued for in the review.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Module:
    """A source file of a package, by its import name."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def listed(self) -> frozenset[str]:
        """What `__all__` names."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and "__all__" in _bound(node):
                return frozenset(ast.literal_eval(node.value))
        return frozenset()

    @cached_property
    def names(self) -> frozenset[str]:
        """What the module binds at its top level."""
        return self.listed | frozenset(name for node in self.tree.body for name in _bound(node))

    @property
    def package(self) -> str:
        return self.name.split(".")[0]


@dataclass(frozen=True, order=True)
class Use:
    """A name of another package's module, and where it is used."""

    module: str
    name: str
    where: str

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}"


def modules() -> dict[str, Module]:
    """Return the modules of all packages by import name."""
    found = {}
    for path in sorted(ROOT.glob("packages/*/src/**/*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts[3:]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path)
    return found


def findings() -> Iterator[str]:
    """Yield what isn't listed, and lines of lists that nobody needs."""
    known = modules()
    used = [use for use in uses(known) if not is_root(use, known)]
    lists = {name: set(read_list(folder_of(known[name]))) for name in known if "." not in name}
    for use in sorted(set(used)):
        owner = known[use.module]
        if any(part.startswith("_") for part in use.full.split(".")[1:]):
            yield f"{use.where}: {use.full} is private to {owner.package}"
        elif use.name not in owner.listed:
            yield f"{use.where}: {use.full} isn't in __all__ of its module"
        elif use.full not in lists[owner.package]:
            yield f"{use.where}: {use.full} isn't listed; python tools/surface.py --write lists it"
    needed = {use.full for use in used}
    for package, names in lists.items():
        for name in sorted(names - needed):
            yield f"{list_of(folder_of(known[package])).relative_to(ROOT)}: nobody imports {name}"


def write() -> None:
    """Write the lists as the imports are."""
    known = modules()
    used = {use.full: known[use.module].package for use in uses(known) if not is_root(use, known)}
    for package in (name for name in known if "." not in name):
        path = list_of(folder_of(known[package]))
        lines = sorted(full for full, owner in used.items() if owner == package)
        if lines:
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        elif path.exists():
            path.unlink()


def is_root(use: Use, known: dict[str, Module]) -> bool:
    """Whether it is of the package's own `__all__`, which `public_api.txt` pins anyhow."""
    return "." not in use.module and (use.name in known[use.module].listed or use.name == "__version__")


def uses(known: dict[str, Module]) -> Iterator[Use]:
    """Yield the names of other packages that sources and examples use."""
    names = {name: module.names for name, module in known.items()}
    for module in known.values():
        yield from names_used(module.tree, module.package, str(module.path.relative_to(ROOT)), names)
    for path in sorted(ROOT.glob("integration/examples/**/*.py")):
        yield from names_used(ast.parse(path.read_text(encoding="utf-8")), "", str(path.relative_to(ROOT)), names)


def names_used(tree: ast.Module, own: str, path: str, known: dict[str, frozenset[str]]) -> Iterator[Use]:
    """Yield what a file uses of modules of other packages than its own, of which the names are known."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        where = f"{path}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.ImportFrom) and node.module in known and node.module.split(".")[0] != own:
            for alias in node.names:
                if (full := f"{node.module}.{alias.name}") in known:
                    aliases[alias.asname or alias.name] = full
                else:
                    yield Use(node.module, alias.name, where)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in known and alias.name.split(".")[0] != own:
                    name = alias.name if alias.asname else alias.name.split(".")[0]
                    aliases[alias.asname or name] = name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (found := _resolved(node, aliases, known)) is not None:
            yield Use(*found, f"{path}:{node.lineno}")


def _resolved(node: ast.Attribute, aliases: dict[str, str], known: dict[str, frozenset[str]]) -> tuple[str, str] | None:
    """Return module and name where `module.name` is written; a variable of a module's name is told by what it lacks."""
    attributes = [node.attr]
    inner: ast.expr = node.value
    while isinstance(inner, ast.Attribute):
        attributes.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name) or inner.id not in aliases:
        return None
    module = aliases[inner.id]
    *path, name = reversed(attributes)
    for part in path:
        if f"{module}.{part}" not in known:
            return None
        module = f"{module}.{part}"
    if f"{module}.{name}" in known or name not in known[module]:
        return None
    return module, name


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (t.id for t in targets if isinstance(t, ast.Name))
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (a.asname or a.name.split(".")[0] for a in node.names)


def folder_of(module: Module) -> Path:
    """Return the folder of a module's package."""
    return ROOT.joinpath(*module.path.relative_to(ROOT).parts[:2])


def list_of(folder: Path) -> Path:
    return folder / "tests" / "siblings.txt"


def read_list(folder: Path) -> list[str]:
    path = list_of(folder)
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def main(arguments: list[str]) -> int:
    if "--write" in arguments:
        write()
    found = list(findings())
    print("\n".join([*found, f"surface: {len(found)} finding(s)"]))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
