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
def format_text(tx: Tracer, value: ChangingNumber | OpenText, spec: Value) -> Value | None:
    """Leave it to the replacement code."""
    if isinstance(value, OpenText) and isinstance(spec, Const) and spec.value == "":
        return value
    return texts.opened(tx.guards, format, [value, spec])


@do.binary.rule(OpenText)
def binary(tx: Tracer, text: OpenText, op: str, other: Value, swapped: bool) -> Value | None:
    """Join it with another text; any other operator relies on it."""
    if op == "+" and other.type() is str:
        return texts.joined(text.guards, [other, text] if swapped else [text, other])
    left, right = (other, text.settled()) if swapped else (text.settled(), other)
    return operators.binary(tx, op, left, right)


@do.compare.rule(OpenText)
def compare(tx: Tracer, text: OpenText, op: str, other: Value) -> Value | None:
    """Rely on it."""
    return operators.compare(tx, op, text.settled(), other.settled() if isinstance(other, OpenText) else other)


@do.get_attribute.rule(OpenText)
def get_attribute(tx: Tracer, text: OpenText, name: str) -> Value:
    """Look a method up; what a call of it needs is seen there."""
    return (
        BoundBuiltin(text, name) if callable(getattr(str, name, None)) else do.get_attribute(tx, text.settled(), name)
    )


@do.call_method.rule(OpenText)
def call_method(tx: Tracer, text: OpenText, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of the constant."""
    return do.call_method(tx, text.settled(), name, args, keywords)


@do.hash_key.rule(OpenText)
def hash_key(tx: Tracer, text: OpenText) -> Hashable:
    """Hash by value."""
    return do.hash_key(tx, text.settled())


@do.truth.rule(OpenText)
def truth(tx: Tracer, text: OpenText) -> bool:
    """Rely on it."""
    return do.truth(tx, text.settled())


@do.length.rule(OpenText)
def length(tx: Tracer, text: OpenText) -> int:
    """Rely on it."""
    return do.length(tx, text.settled())


@do.get_item.rule(OpenText)
def get_item(tx: Tracer, text: OpenText, key: Value) -> Value:
    """Rely on it."""
    return do.get_item(tx, text.settled(), key)


@do.contains.rule(OpenText)
def contains(tx: Tracer, text: OpenText, item: Value) -> bool:
    """Rely on it."""
    return do.contains(tx, text.settled(), item)


@do.iterate.rule(OpenText)
def iterate(tx: Tracer, text: OpenText) -> Value:
    """Rely on it."""
    return do.iterate(tx, text.settled())


@do.convert.rule(OpenText)
def convert(tx: Tracer, text: OpenText, cls: Callable[..., Any]) -> Value | None:
    """Rely on it."""
    return do.convert(tx, text.settled(), cls)


@codegen.reconstruct.rule(OpenText)
def reconstruct(out: Builder, text: OpenText) -> None:
    """Make it; one of the call is fetched by its source."""
    out.call(lambda: out.emit("LOAD_CONST", text.function), [partial(out.load, part) for part in text.parts])
