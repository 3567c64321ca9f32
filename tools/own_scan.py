"""Scan the packages for anything that reaches torch's own compilers, which this project re-implements.

Rules, over the syntax tree of every file below packages/*/src (or of the files given):
  O1  no import of a forbidden module, nor of a forbidden name from an allowed one
  O2  no attribute chain that ends in one, such as `torch.compile` or `torch._C._dynamo`
  O3  no import string, getattr string or key of sys.modules that names one

An alias counts as what it stands for: after `import torch as t`, `t.compile` is `torch.compile`.

Names that appear in docstrings and in tables of names that the tracer models are not imports and are not reported.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parent.parent
MODULES = (
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch",
    "torch.export",
    "torch._export",
    "torch._C._dynamo",
    "torch.jit",
    "torch.fx.experimental.proxy_tensor",
)
NAMES = ("torch.compile", "make_fx", "FunctionalTensorMode", "aot_function", "aot_module", "compile_fx")
IMPORTERS = {"import_module", "__import__", "getattr", "resolve_name", "find_spec"}


def main(paths: list[str]) -> int:
    files = [Path(p) for p in paths] or sorted(ROOT.glob("packages/*/src/**/*.py"))
    found = [f"{file}:{line}: {rule} {what}" for file in files for rule, line, what in violations(file)]
    print("\n".join(found) or f"own: {len(files)} files reach none of torch's compilers")
    return 1 if found else 0


def violations(file: Path) -> Iterator[tuple[str, int, str]]:
    """Yield `(rule, line, what)` for each violation in one file."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    aliases = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (("O1", node.lineno, a.name) for a in node.names if forbidden(a.name))
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
            yield from (("O1", node.lineno, n) for n in names if forbidden(n))
        elif isinstance(node, ast.Attribute):
            chain = dotted(node, aliases)
            if chain and (chain in MODULES or forbidden_name(chain)):
                yield "O2", node.lineno, chain
        elif isinstance(node, ast.Call) and (dotted(node.func) or "").split(".")[-1] in IMPORTERS:
            yield from (("O3", node.lineno, text) for text in strings(node, aliases) if forbidden(text))
        elif isinstance(node, ast.Subscript) and dotted(node.value, aliases) == "sys.modules":
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str) and forbidden(key):
                yield "O3", node.lineno, key


def imported(tree: ast.AST) -> dict[str, str]:
    """Return the dotted name that each imported name stands for."""
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {a.asname: a.name for a in node.names if a.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            aliases |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return aliases


def forbidden(name: str) -> bool:
    """Tell whether a dotted name is, or lies inside, a forbidden module."""
    return any(name == m or name.startswith(m + ".") for m in MODULES) or forbidden_name(name)


def forbidden_name(name: str) -> bool:
    """Tell whether a dotted name is a forbidden function or class."""
    return any(name == n or name.endswith("." + n) for n in NAMES)


def dotted(node: ast.AST, aliases: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """Return `a.b.c` for an attribute chain over a name or an alias, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([aliases.get(node.id, node.id), *reversed(parts)]) if isinstance(node, ast.Name) else None


def strings(call: ast.Call, aliases: Mapping[str, str]) -> Iterator[str]:
    """Yield what the string arguments of an importing call name; `getattr(torch, "x")` names `torch.x`."""
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    base = dotted(call.args[0], aliases) if call.args else None
    yield from texts
    if base:
        yield from (f"{base}.{text}" for text in texts)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
