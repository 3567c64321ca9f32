"""The programs, by theme; importing this package registers all of them."""

from integration.python.program import PROGRAMS
from integration.python.programs import (
    breaks,
    builtins,
    classes,
    containers,
    effects,
    flow,
    functions,
    modules,
    numbers,
    regions,
    tensors,
)

__all__ = [
    "PROGRAMS",
    "breaks",
    "builtins",
    "classes",
    "containers",
    "effects",
    "flow",
    "functions",
    "modules",
    "numbers",
    "regions",
    "tensors",
]
