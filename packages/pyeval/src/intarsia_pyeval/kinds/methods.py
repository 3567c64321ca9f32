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
def truth(tx: Tracer, x: BoundMethod) -> bool:
    """Methods are true."""
    return True


@do.hash_key.rule(BoundMethod)
def hash_key(tx: Tracer, x: BoundMethod) -> Hashable:
    """Equal function and owner make equal methods."""
    return BoundMethod, do.hash_key(tx, x.function), do.hash_key(tx, x.owner)


@do.call.rule(BoundMethod)
def call(tx: Tracer, x: BoundMethod, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call the function with the owner first."""
    return do.call(tx, x.function, [x.owner, *args], keywords)


@do.get_attribute.rule(BoundMethod)
def get_attribute(tx: Tracer, x: BoundMethod, name: str) -> Value:
    """Read an attribute of the function, or of the method itself."""
    if name == "__self__":
        return x.owner
    if name == "__func__":
        return x.function
    return do.get_attribute(tx, x.function, name)


@do.compare.rule(BoundMethod)
def compare(tx: Tracer, x: BoundMethod, op: str, other: Value) -> Value | None:
    """Methods are equal when function and owner are the same."""
    if op not in ("==", "!=") or not isinstance(other, BoundMethod):
        return None
    equal = operators.same(tx, x.function, other.function) and operators.same(tx, x.owner, other.owner)
    return tx.live.from_python(equal is (op == "=="))


@codegen.reconstruct.rule(BoundMethod)
def reconstruct(out: Builder, x: BoundMethod) -> None:
    """Bind the function again."""
    out.call(lambda: out.constant(types.MethodType), [lambda: out.load(x.function), lambda: out.load(x.owner)])
