"""Which library code nobody patches while programs run: the standard library, and what plug-ins name.

Inlining trusted functions adds no guards on their code, globals and defaults. Everything else is guarded, and so is
`time`, into which tests and simulations put clocks of their own.
"""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
import types

__all__ = [
    "INLINED_LIBRARIES",
    "STABLE",
    "is_installed",
    "is_installed_file",
    "is_standard_library",
    "is_trusted",
    "trust",
]


#: What a trusted module's names keep standing for.
STABLE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    type,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
)

#: Modules of the standard library whose Python functions are evaluated; a call into any other breaks.
INLINED_LIBRARIES = frozenset(
    {
        "_collections_abc",
        "abc",
        "bisect",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "enum",
        "fractions",
        "functools",
        "heapq",
        "inspect",
        "keyword",
        "logging",
        "numbers",
        "operator",
        "os",
        "reprlib",
        "statistics",
        "string",
        "textwrap",
        "types",
        "typing",
        "unittest",
        "warnings",
        "weakref",
    }
)


@functools.lru_cache(maxsize=4096)
def is_trusted(module: object) -> bool:
    """Tell whether functions of `module` (a dotted name) are assumed to stay as they are."""
    if not isinstance(module, str):  # a class may have anything there
        return False
    root = module.partition(".")[0]
    return root in _TRUSTED or (is_standard_library(root) and root not in _PATCHED)


def trust(*roots: str) -> None:
    """Take top-level modules for ones that nobody patches, from here on."""
    _TRUSTED.update(roots)
    is_trusted.cache_clear()


_PATCHED = frozenset({"time"})
_TRUSTED = {__name__.partition(".")[0]}


def is_installed(function: object) -> bool:
    """Tell whether a function belongs to the standard library or to an installed package, not to the user's program."""
    module = getattr(function, "__module__", None) or ""
    if is_standard_library(module.partition(".")[0]):
        return True
    return is_installed_file(getattr(sys.modules.get(module), "__file__", None) or "")


@functools.lru_cache(maxsize=4096)
def is_installed_file(file: str) -> bool:
    """Tell whether a file belongs to an installed package."""
    return file.startswith(_PACKAGES)


# an environment may see the packages of the interpreter that it was made from, and the user's own
_FOLDERS = (
    *(sysconfig.get_path(name) for name in ("purelib", "platlib")),
    *site.getsitepackages(),
    site.getusersitepackages(),
)
_PACKAGES = tuple(os.path.join(os.path.abspath(folder), "") for folder in dict.fromkeys(_FOLDERS))


def is_standard_library(root: str) -> bool:
    """Tell whether `root` is a top-level module of the standard library."""
    return root in sys.stdlib_module_names and root != "__main__"
