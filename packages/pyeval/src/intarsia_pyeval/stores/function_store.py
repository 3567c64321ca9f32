"""What functions refer to: globals, defaults, cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_ir.errors import InternalError
from intarsia_pyeval.operation import operation
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.functions import Cell, Globals, PythonFunction

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["cells", "global_names", "keyword_default", "positional_defaults"]


@operation
def global_names(tx: Tracer, function: PythonFunction) -> Globals:
    """Return the namespace."""
    raise InternalError(f"{type(function).__name__} must define this", code="tracer.abstract")


@operation
def positional_defaults(tx: Tracer, function: PythonFunction) -> Sequence[Value]:
    """Return the defaults of the last positional parameters."""
    raise InternalError(f"{type(function).__name__} must define this", code="tracer.abstract")


@operation
def keyword_default(tx: Tracer, function: PythonFunction, name: str) -> Value | None:
    """Return the default of a keyword-only parameter."""
    raise InternalError(f"{type(function).__name__} must define this", code="tracer.abstract")


@operation
def cells(tx: Tracer, function: PythonFunction) -> Sequence[Cell]:
    """Return the cells of the free variables."""
    raise InternalError(f"{type(function).__name__} must define this", code="tracer.abstract")
