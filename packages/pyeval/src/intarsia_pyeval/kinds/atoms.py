"""Atoms: numbers, strings, bytes, ranges, None and the like, known while tracing."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from intarsia_pyeval import codegen, do
from intarsia_pyeval.breaks import Break
from intarsia_pyeval.semantics import folding, formatting, iteration, operators, texts
from intarsia_pyeval.values.base import Keywords, NotConstantError, Value
from intarsia_pyeval.values.bound import BoundBuiltin
from intarsia_pyeval.values.constants import Const, boolean
from intarsia_pyeval.values.sequences import List

if TYPE_CHECKING:
    from intarsia_pyeval.codegen import Builder
    from intarsia_pyeval.tracer import Tracer

__all__ = ["UNARY"]


UNARY: dict[str, Callable[[Any], Any]] = {"-": lambda v: -v, "+": lambda v: +v, "~": lambda v: ~v}
_SIZED = (str, bytes, range)
#: Methods of patterns that make objects with a state.
_STATEFUL = frozenset({"finditer", "scanner"})


@do.hash_key.rule(Const)
def hash_key(tx: Tracer, constant: Const) -> Hashable:
    """Return the object itself."""
    if constant.is_nan():
        raise Break("tracer.hashing", "a NaN is a key, which only its own object finds")
    key: Hashable = constant.value
    folding.real(tx, hash, key)
    return key


@do.get_attribute.rule(Const)
def get_attribute(tx: Tracer, constant: Const, name: str) -> Value:
    """Read an attribute; methods are called by name."""
    attribute = folding.real(tx, getattr, constant.value, name)
    if name == "__class__" or not callable(attribute):
        return tx.live.from_python(attribute)
    return BoundBuiltin(constant, name)


@do.call_method.rule(Const)
def call_method(tx: Tracer, constant: Const, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Run a method of the atom."""
    answer = tx.extension.call_atom_method(tx, constant.value, name)
    if answer is not None:
        return answer
    if name in _STATEFUL and isinstance(constant.value, re.Pattern):
        raise Break("tracer.iterator", f"{name} of a pattern makes an iterator")
    if name == "join" and len(args) == 1 and not keywords:
        if not any(tx.classes.find(args[0].type(), each) for each in ("__iter__", "__getitem__")):
            tx.raising.error(TypeError, "can only join an iterable")
        args = [iteration.list_of(tx, args[0])]
    open_text = _open_text(tx, constant, name, args, keywords)
    if open_text is not None:
        return open_text
    try:
        real_args = [a.as_python() for a in args]
        real_keywords = {k: v.as_python() for k, v in keywords.items()}
    except NotConstantError as unknown:
        return _with_unknown(tx, constant, name, args, keywords, str(unknown))
    return tx.live.from_python(folding.real(tx, getattr(constant.value, name), *real_args, **real_keywords))


def _open_text(tx: Tracer, constant: Const, name: str, args: Sequence[Value], keywords: Keywords) -> Value | None:
    """Call `str.format` or `str.join` with open numbers or texts; None where there are none, or it may fail."""
    if name == "format" and isinstance(constant.value, str):
        return texts.formatted(tx.guards, constant, args, keywords)
    if (
        name == "join"
        and not keywords
        and isinstance(constant.value, str)
        and len(args) == 1
        and isinstance(args[0], List)
    ):
        return texts.separated(tx.guards, constant, args[0].items)
    return None


def _with_unknown(
    tx: Tracer, constant: Const, name: str, args: Sequence[Value], keywords: Keywords, unknown: str
) -> Value:
    """Call a method with an operand that isn't an atom."""
    if isinstance(constant.value, str) and name == "format":
        return formatting.format_string(tx, constant.value, args, keywords)
    raise Break("tracer.call", f"{type(constant.value).__name__}.{name} is called with {unknown}")


@do.branch.rule(Const)
def branch(tx: Tracer, constant: Const, expected: Callable[[], bool | None]) -> bool:
    """Test the atom: both ways are known."""
    return do.truth(tx, constant)


@do.as_bool.rule(Const)
def as_bool(tx: Tracer, constant: Const) -> Value:
    """Return the truth of the atom: nothing stays open."""
    return boolean(do.truth(tx, constant))


@do.truth.rule(Const)
def truth(tx: Tracer, constant: Const) -> bool:
    """Return the truth of the atom."""
    return bool(constant.value)


@do.length.rule(Const)
def length(tx: Tracer, constant: Const) -> int:
    """Return the length of a string or range."""
    return int(folding.real(tx, len, constant.value))


@do.get_item.rule(Const)
def get_item(tx: Tracer, constant: Const, key: Value) -> Value:
    """Index a string, bytes or range."""
    value = constant.value
    if not isinstance(value, _SIZED):
        folding.real(tx, lambda: value[0])
    at = operators.index(tx, key)
    return tx.live.from_python(folding.real(tx, lambda: value[at]))


@do.contains.rule(Const)
def contains(tx: Tracer, constant: Const, item: Value) -> bool:
    """Model `in` on a string or range."""
    value = constant.value
    try:
        wanted = item.as_python()
    except NotConstantError:
        return do.contains.default(tx, constant, item)
    return bool(folding.real(tx, lambda: wanted in value))


@do.iterate.rule(Const)
def iterate(tx: Tracer, constant: Const) -> Value:
    """Iterate over the characters of a string, the bytes of bytes, or a range."""
    if not isinstance(constant.value, _SIZED):
        folding.real(tx, iter, constant.value)
    return iteration.iterator_over(tx, constant)


@do.unary.rule(Const)
def unary(tx: Tracer, constant: Const, op: str) -> Value:
    """Apply a unary operator."""
    return tx.live.from_python(folding.real(tx, UNARY[op], constant.value))


@codegen.reconstruct.rule(Const)
def reconstruct(out: Builder, constant: Const) -> None:
    """Push the object as a constant of the code."""
    out.constant(constant.value)
