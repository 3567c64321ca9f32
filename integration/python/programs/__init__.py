"""The programs, by theme; importing this package registers all of them."""

from integration.python.program import PROGRAMS
from integration.python.programs import (
    arrays,
    breaks,
    builtins,
    classes,
    containers,
    data,
    derivatives,
    effects,
    flow,
    functions,
    library,
    modules,
    networks,
    numbers,
    objects,
    regions,
    tensors,
)

__all__ = [
    "PROGRAMS",
    "arrays",
    "breaks",
    "builtins",
    "classes",
    "containers",
    "data",
    "derivatives",
    "effects",
    "flow",
    "functions",
    "library",
    "modules",
    "networks",
    "numbers",
    "objects",
    "regions",
    "tensors",
]
