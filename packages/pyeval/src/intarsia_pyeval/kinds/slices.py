"""Slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.semantics import folding, methods, operators
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.sequences import Slice, Tuple
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.get_attribute.rule(Slice)
def get_attribute(tx: Tracer, part: Slice, name: str) -> Value:
    """Read a part, or a method."""
    names = ("start", "stop", "step")
    return part.parts[names.index(name)] if name in names else BoundBuiltin(part, name)


@do.call_method.rule(Slice)
def call_method(tx: Tracer, part: Slice, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of slice."""
    return methods.call(tx, slice, part, name, args, keywords)


@do.compare.rule(Slice)
def compare(tx: Tracer, part: Slice, op: str, other: Value) -> Value | None:
    """Compare slices by their parts."""
    if isinstance(other, Slice) and op in ("==", "!="):
        return operators.compare(tx, op, Tuple(part.parts), Tuple(other.parts))
    return None


@codegen.reconstruct.rule(Slice)
def reconstruct(out: Builder, bounds: Slice) -> None:
    """Build the slice."""
    for part in bounds.parts:
        out.load(part)
    out.emit("BUILD_SLICE", 3)


def _indices(tx: Tracer, part: Slice, args: list[Value], keywords: Keywords) -> Value:
    (length,) = arity("indices", args, keywords, 1)
    return tx.live.from_python(folding.real(tx, part.as_python().indices, length.as_python()))


METHODS: dict[str, methods.Rule] = {"indices": _indices}
methods.declare(slice, METHODS, methods.PICKLED)
