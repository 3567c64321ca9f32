"""`super()`, tracebacks, and the exception that the caller handles."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Unreconstructable
from intarsia_pyeval.semantics import class_lookup
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.handled import HandledByCaller
from intarsia_pyeval.values.objects import Super, Traceback

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@codegen.reconstruct.rule(HandledByCaller)
def reconstruct_handled_by_caller(out: Builder, exception: HandledByCaller) -> None:
    """Ask CPython."""
    out.call(lambda: out.constant(sys.exception), [])


@do.get_attribute.rule(Super)
def get_attribute(tx: Tracer, owner: Super, name: str) -> Value:
    """Look the attribute up."""
    return class_lookup.super_attribute(tx, owner, name)


@codegen.reconstruct.rule(Super)
def reconstruct_super(out: Builder, owner: Super) -> None:
    """Make the object."""
    out.call(lambda: out.constant(super), [lambda: out.constant(owner.after), lambda: out.load(owner.owner)])


@do.truth.rule(Traceback)
def truth(tx: Tracer, traceback: Traceback) -> bool:
    """Tracebacks are true."""
    return True


@codegen.reconstruct.rule(Traceback)
def reconstruct_traceback(out: Builder, traceback: Traceback) -> None:
    """There is no real traceback."""
    raise Unreconstructable("a traceback made while tracing is live")
