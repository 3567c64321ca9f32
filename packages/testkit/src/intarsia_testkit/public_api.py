"""The pinned surface of a package: every public name with its signature, one a line, sorted.

The list is read from `__all__` of a module. A function gives its signature; a class gives the signature of its
constructor and a line for each public member that it defines itself; an enum gives its members; anything else gives
its type. Annotations are printed as written in the source, so the text doesn't depend on the interpreter.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import os
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from intarsia_testkit._update import compare_or_update

__all__ = ["check_public_api", "public_api"]

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def check_public_api(module: ModuleType, path: str | os.PathLike[str], *submodules: ModuleType) -> None:
    """Compare the public names of `module` (and of `submodules`) with the file; `UPDATE_API=1` rewrites it instead.

    Names that a file `siblings.txt` beside it lists, one `module.name` a line, are part of the surface too: those that
    other packages import from modules below `module`.

    Args:
        module: A module with `__all__`.
        path: The file, usually `Path(__file__).parent / "public_api.txt"`.
        submodules: Further public modules, listed after it under their full names.

    Raises:
        AssertionError: The surface changed; the message shows the diff and names the command that accepts it.
    """
    text = "".join(public_api(m) for m in (module, *submodules))
    written = {m.__name__ for m in (module, *submodules)}
    listed = Path(path).with_name("siblings.txt")
    names = listed.read_text(encoding="utf-8").split() if listed.exists() else []
    text += "".join(_sibling_api(name) for name in names if name.rpartition(".")[0] not in written)
    compare_or_update(text, Path(path), variable="UPDATE_API", what="the public surface")


def public_api(module: ModuleType) -> str:
    """Return the surface of `module` as text, one name a line.

    Raises:
        AssertionError: `__all__` is missing, unsorted, or names something that isn't there.
    """
    names = getattr(module, "__all__", None)
    assert names is not None, f"{module.__name__} has no __all__"
    public = [name for name in names if not name.startswith("__")]
    # both orders that linters and people use for mixed case count as sorted
    assert list(public) in (sorted(public), sorted(public, key=_natural)), f"{module.__name__}.__all__ isn't sorted"
    missing = [name for name in names if not hasattr(module, name)]
    assert not missing, f"{module.__name__}.__all__ names what it lacks: {missing}"
    lines = [line for name in sorted(public) for line in _describe(name, getattr(module, name))]
    return "".join(f"{module.__name__}.{line}\n" for line in lines)


def _sibling_api(full: str) -> str:
    """Return the lines of one name that siblings import."""
    where, _, name = full.rpartition(".")
    module = importlib.import_module(where)
    assert name in module.__all__, f"{where}.__all__ lacks {name}"
    return "".join(f"{where}.{line}\n" for line in _describe(name, getattr(module, name)))


def _natural(name: str) -> tuple[int, str]:
    """Sort as ruff does: CONSTANTS, then Classes, then functions."""
    rank = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return rank, name


def _describe(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, ModuleType):
        yield f"{name}: module"
    elif isinstance(value, type) and issubclass(value, enum.Enum):
        yield f"{name}: enum {', '.join(value.__members__)}"
    elif isinstance(value, type):
        yield f"{name}: class {_signature(value)}"
        yield from _members(name, value)
    elif typing.get_origin(value) is not None:  # callable to some interpreters, and nobody calls it
        yield f"{name}: alias {value}"
    elif callable(value):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _members(name: str, cls: type) -> Iterator[str]:
    fields = getattr(cls, "__dataclass_fields__", {})
    for member, value in sorted(vars(cls).items()):
        if member.startswith("_") or member in fields:
            continue
        if isinstance(value, (staticmethod, classmethod)):
            yield f"{name}.{member}{_signature(value.__func__)} {type(value).__name__}"
        elif isinstance(value, property):
            yield f"{name}.{member}: property"
        elif inspect.isfunction(value):
            yield f"{name}.{member}{_signature(value)}"


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (ValueError, TypeError):
        return "(...)"  # built in C without a text signature
    parameters = [p.replace(annotation=_unquoted(p.annotation)) for p in signature.parameters.values()]
    unquoted = signature.replace(parameters=parameters, return_annotation=_unquoted(signature.return_annotation))
    return _ADDRESS.sub("", str(unquoted))


class _Written:
    """An annotation that prints as it is written in the source, without the quotes of a string."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _unquoted(annotation: Any) -> Any:
    return _Written(annotation) if isinstance(annotation, str) else annotation
