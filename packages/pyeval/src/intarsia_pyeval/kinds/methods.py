"""Methods bound to their objects."""

from __future__ import annotations

import types
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.semantics import operators
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.functions import BoundMethod

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.truth.rule(BoundMethod)
def truth(tx: Tracer, method: BoundMethod) -> bool:
    """Methods are true."""
    return True


@do.hash_key.rule(BoundMethod)
def hash_key(tx: Tracer, method: BoundMethod) -> Hashable:
    """Equal function and owner make equal methods."""
    return BoundMethod, do.hash_key(tx, method.function), do.hash_key(tx, method.owner)


@do.call.rule(BoundMethod)
def call(tx: Tracer, method: BoundMethod, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call the function with the owner first."""
    return do.call(tx, method.function, [method.owner, *args], keywords)


@do.get_attribute.rule(BoundMethod)
def get_attribute(tx: Tracer, method: BoundMethod, name: str) -> Value:
    """Read an attribute of the function, or of the method itself."""
    if name == "__self__":
        return method.owner
    if name == "__func__":
        return method.function
    return do.get_attribute(tx, method.function, name)


@do.compare.rule(BoundMethod)
def compare(tx: Tracer, method: BoundMethod, op: str, other: Value) -> Value | None:
    """Methods are equal when function and owner are the same."""
    if op not in ("==", "!=") or not isinstance(other, BoundMethod):
        return None
    equal = operators.same(tx, method.function, other.function) and operators.same(tx, method.owner, other.owner)
    return tx.live.from_python(equal is (op == "=="))


@codegen.reconstruct.rule(BoundMethod)
def reconstruct(out: Builder, method: BoundMethod) -> None:
    """Bind the function again."""
    out.call(
        lambda: out.constant(types.MethodType), [lambda: out.load(method.function), lambda: out.load(method.owner)]
    )
