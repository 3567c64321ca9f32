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
def truth(tx: Tracer, partial: Partial) -> bool:
    """Partial objects are true."""
    return True


@do.call.rule(Partial)
def call(tx: Tracer, partial: Partial, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call the function with the arguments put together."""
    return do.call(tx, partial.function, [*partial.args, *args], {**partial.keywords, **keywords})


@do.get_attribute.rule(Partial)
def get_attribute(tx: Tracer, partial: Partial, name: str) -> Value:
    """Read a part."""
    if name == "func":
        return partial.function
    if name == "args":
        return Tuple(partial.args)
    if name == "keywords":
        return Dict({k: (tx.live.from_python(k), v) for k, v in partial.keywords.items()})
    if partial.real is None and not hasattr(functools.partial, name):
        tx.raising.error(AttributeError, f"'functools.partial' object has no attribute {name!r}")
    return do.get_attribute.default(tx, partial, name)


@codegen.reconstruct.rule(Partial)
def reconstruct(out: Builder, partial: Partial) -> None:
    """Make the object."""
    out.call_with_keywords(functools.partial, [partial.function, *partial.args], partial.keywords)
