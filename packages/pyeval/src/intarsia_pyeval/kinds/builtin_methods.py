"""A method written in C, bound to its object."""

from __future__ import annotations

import types
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.truth.rule(BoundBuiltin)
def truth(tx: Tracer, x: BoundBuiltin) -> bool:
    """Methods are true."""
    return True


@do.call.rule(BoundBuiltin)
def call(tx: Tracer, x: BoundBuiltin, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call the method."""
    if x.raw is not None:
        return do.call_native(tx, x.owner, x.raw, x.name, args, keywords)
    return do.call_method(tx, x.owner, x.name, args, keywords)


@do.get_attribute.rule(BoundBuiltin)
def get_attribute(tx: Tracer, x: BoundBuiltin, name: str) -> Value:
    """Read `__name__` or `__self__`."""
    if name == "__name__":
        return tx.live.from_python(x.name)
    return x.owner if name == "__self__" else do.get_attribute.default(tx, x, name)


@codegen.reconstruct.rule(BoundBuiltin)
def reconstruct(out: Builder, x: BoundBuiltin) -> None:
    """Fetch the method from its object, or bind its descriptor."""
    if isinstance(x.raw, types.ClassMethodDescriptorType):
        out.constant(x.raw)
        out.call_method("__get__", [partial(out.constant, None), partial(out.load, x.owner)])
        return
    if x.raw is not None:
        out.constant(x.raw)
        # CPython 3.11 crashes where some descriptors aren't given the class
        out.call_method("__get__", [partial(out.load, x.owner), partial(out.constant, x.owner.type())])
        return
    out.load(x.owner)
    out.load_attribute(x.name)
