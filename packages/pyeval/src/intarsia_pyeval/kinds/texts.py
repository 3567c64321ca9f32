"""Texts that are left open: joined and formatted they stay so, any other use relies on them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.semantics import operators, texts
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import Const
from intarsia_pyeval.values.numbers import ChangingNumber
from intarsia_pyeval.values.texts import OpenText

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__: list[str] = []


@do.format_text.rule(ChangingNumber)
@do.format_text.rule(OpenText)
def format_text(tx: Tracer, x: ChangingNumber | OpenText, spec: Value) -> Value | None:
    """Leave it to the replacement code."""
    if isinstance(x, OpenText) and isinstance(spec, Const) and spec.value == "":
        return x
    return texts.opened(tx.guards, format, [x, spec])


@do.binary.rule(OpenText)
def binary(tx: Tracer, x: OpenText, op: str, other: Value, swapped: bool) -> Value | None:
    """Join it with another text; any other operator relies on it."""
    if op == "+" and other.type() is str:
        return texts.joined(x.guards, [other, x] if swapped else [x, other])
    left, right = (other, x.settled()) if swapped else (x.settled(), other)
    return operators.binary(tx, op, left, right)


@do.compare.rule(OpenText)
def compare(tx: Tracer, x: OpenText, op: str, other: Value) -> Value | None:
    """Rely on it."""
    return operators.compare(tx, op, x.settled(), other.settled() if isinstance(other, OpenText) else other)


@do.get_attribute.rule(OpenText)
def get_attribute(tx: Tracer, x: OpenText, name: str) -> Value:
    """Look a method up; what a call of it needs is seen there."""
    return BoundBuiltin(x, name) if callable(getattr(str, name, None)) else do.get_attribute(tx, x.settled(), name)


@do.call_method.rule(OpenText)
def call_method(tx: Tracer, x: OpenText, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of the constant."""
    return do.call_method(tx, x.settled(), name, args, keywords)


@do.hash_key.rule(OpenText)
def hash_key(tx: Tracer, x: OpenText) -> Hashable:
    """Hash by value."""
    return do.hash_key(tx, x.settled())


@do.truth.rule(OpenText)
def truth(tx: Tracer, x: OpenText) -> bool:
    """Rely on it."""
    return do.truth(tx, x.settled())


@do.length.rule(OpenText)
def length(tx: Tracer, x: OpenText) -> int:
    """Rely on it."""
    return do.length(tx, x.settled())


@do.get_item.rule(OpenText)
def get_item(tx: Tracer, x: OpenText, key: Value) -> Value:
    """Rely on it."""
    return do.get_item(tx, x.settled(), key)


@do.contains.rule(OpenText)
def contains(tx: Tracer, x: OpenText, item: Value) -> bool:
    """Rely on it."""
    return do.contains(tx, x.settled(), item)


@do.iterate.rule(OpenText)
def iterate(tx: Tracer, x: OpenText) -> Value:
    """Rely on it."""
    return do.iterate(tx, x.settled())


@do.convert.rule(OpenText)
def convert(tx: Tracer, x: OpenText, cls: Callable[..., Any]) -> Value | None:
    """Rely on it."""
    return do.convert(tx, x.settled(), cls)


@codegen.reconstruct.rule(OpenText)
def reconstruct(out: Builder, x: OpenText) -> None:
    """Make it; one of the call is fetched by its source."""
    out.call(lambda: out.emit("LOAD_CONST", x.function), [partial(out.load, part) for part in x.parts])
