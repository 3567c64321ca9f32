"""A method written in C, bound to its object."""

from __future__ import annotations

import types
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.semantics import operators
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import boolean
from intarsia_pyeval.values.objects import Builtin

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.truth.rule(BoundBuiltin)
def truth(tx: Tracer, method: BoundBuiltin) -> bool:
    """Methods are true."""
    return True


@do.call.rule(BoundBuiltin)
def call(tx: Tracer, method: BoundBuiltin, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call the method."""
    if method.raw is not None:
        return do.call_native(tx, method.owner, method.raw, method.name, args, keywords)
    return do.call_method(tx, method.owner, method.name, args, keywords)


@do.get_attribute.rule(BoundBuiltin)
def get_attribute(tx: Tracer, method: BoundBuiltin, name: str) -> Value:
    """Read `__name__` or `__self__`."""
    if name == "__name__":
        return tx.live.from_python(method.name)
    return method.owner if name == "__self__" else do.get_attribute.default(tx, method, name)


@do.compare.rule(BoundBuiltin)
def compare(tx: Tracer, method: BoundBuiltin, op: str, other: Value) -> Value | None:
    """Methods are equal when they are the same one of the same object."""
    if op not in ("==", "!=") or not isinstance(other, (Builtin, BoundBuiltin)):
        return None  # an object of another kind may have a comparison of its own
    equal = method is other
    if isinstance(other, Builtin):
        owner = method.owner.identity()
        bound = owner is not None and getattr(other.value, "__self__", None) is owner
        equal = bound and other.value.__name__ == method.name
    elif isinstance(other, BoundBuiltin) and not equal:
        raws = {method.raw, other.raw} - {None}
        equal = method.name == other.name and len(raws) < 2 and operators.same(tx, method.owner, other.owner)
    return boolean(equal is (op == "=="))


@codegen.reconstruct.rule(BoundBuiltin)
def reconstruct(out: Builder, method: BoundBuiltin) -> None:
    """Fetch the method from its object, or bind its descriptor."""
    if isinstance(method.raw, types.ClassMethodDescriptorType):
        out.constant(method.raw)
        out.call_method("__get__", [partial(out.constant, None), partial(out.load, method.owner)])
        return
    if method.raw is not None:
        out.constant(method.raw)
        # CPython 3.11 crashes where some descriptors aren't given the class
        out.call_method("__get__", [partial(out.load, method.owner), partial(out.constant, method.owner.type())])
        return
    out.load(method.owner)
    out.load_attribute(method.name)
