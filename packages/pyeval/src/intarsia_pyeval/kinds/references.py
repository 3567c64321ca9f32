"""Existing objects that count only by their identity; callables written in C; code objects."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.semantics import calling, folding, lookup, operators
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import boolean
from intarsia_pyeval.values.objects import Builtin, CodeValue, Reference

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.hash_key.rule(Reference)
def hash_key_reference(tx: Tracer, reference: Reference) -> Hashable:
    """The object hashes by identity."""
    if not lookup.hash_is_safe(tx.extension, type(reference.value)):
        return do.hash_key.default(tx, reference)
    key: Hashable = reference.value
    return key


@do.truth.rule(Reference)
def truth(tx: Tracer, reference: Reference) -> bool:
    """Plain classes, modules and functions are true."""
    if hasattr(type(reference.value), "__bool__") or hasattr(type(reference.value), "__len__"):
        return do.truth.default(tx, reference)
    return True


@do.compare.rule(Reference)
def compare_reference(tx: Tracer, reference: Reference, op: str, other: Value) -> Value | None:
    """Objects without own equality are equal when they are the same."""
    if _compares_by_identity(type(reference.value)) and op in ("==", "!="):
        return operators.compare_identity(tx, op, reference, other)
    return None


@codegen.reconstruct.rule(Reference)
def reconstruct(out: Builder, reference: Reference) -> None:
    """Push the object as a constant of the code."""
    out.constant(reference.value)


@do.call.rule(Builtin)
def call(tx: Tracer, function: Builtin, args: Sequence[Value], keywords: Keywords) -> Value:
    """Look the call up in the tables."""
    return calling.call_builtin(tx, function, args, keywords)


@do.hash_key.rule(Builtin)
def hash_key_builtin(tx: Tracer, function: Builtin) -> Hashable:
    """Built-in callables hash by identity."""
    key: Hashable = function.value
    return key


@do.get_attribute.rule(Builtin)
def get_attribute_builtin(tx: Tracer, function: Builtin, name: str) -> Value:
    """Read the names; others aren't modelled."""
    if name in ("__name__", "__qualname__", "__module__", "__doc__", "__self__", "__objclass__"):
        return tx.live.wrap(folding.real(tx, getattr, function.value, name), None)
    if name == "__call__":
        return function
    if name == "__get__":
        return do.get_attribute.default(tx, function, name)
    attribute = folding.real(tx, getattr, function.value, name)
    return tx.live.wrap(attribute, None if function.source is None else tx.sources.attribute(function.source, name))


@do.compare.rule(Builtin)
def compare_builtin(tx: Tracer, function: Builtin, op: str, other: Value) -> Value | None:
    """Built-in callables are equal when they are the same, or methods of the same object."""
    if op in ("==", "!=") and isinstance(other, Builtin):  # a bound one knows what it is bound to
        return boolean((function.value == other.value) is (op == "=="))
    return None


@do.get_attribute.rule(CodeValue)
def get_attribute_code_value(tx: Tracer, code: CodeValue, name: str) -> Value:
    """Read a fact about the code."""
    return tx.live.from_python(folding.real(tx, getattr, code.value, name))


def _compares_by_identity(cls: Any) -> bool:
    """Tell whether objects of a class are equal only to themselves."""
    return cls.__eq__ is object.__eq__ or cls.__eq__ is type.__eq__
