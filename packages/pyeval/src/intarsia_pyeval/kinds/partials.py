"""`functools.partial`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval import codegen, do
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.functions import Partial
from intarsia_pyeval.values.mappings import Dict
from intarsia_pyeval.values.sequences import Tuple

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.truth.rule(Partial)
def truth(tx: Tracer, x: Partial) -> bool:
    """Partial objects are true."""
    return True


@do.call.rule(Partial)
def call(tx: Tracer, x: Partial, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call the function with the arguments put together."""
    return do.call(tx, x.function, [*x.args, *args], {**x.keywords, **keywords})


@do.get_attribute.rule(Partial)
def get_attribute(tx: Tracer, x: Partial, name: str) -> Value:
    """Read a part."""
    if name == "func":
        return x.function
    if name == "args":
        return Tuple(x.args)
    if name == "keywords":
        return Dict({k: (tx.live.from_python(k), v) for k, v in x.keywords.items()})
    if x.real is None and not hasattr(functools.partial, name):
        tx.raising.error(AttributeError, f"'functools.partial' object has no attribute {name!r}")
    return do.get_attribute.default(tx, x, name)


@codegen.reconstruct.rule(Partial)
def reconstruct(out: Builder, x: Partial) -> None:
    """Make the object."""
    out.call_with_keywords(functools.partial, [x.function, *x.args], x.keywords)
