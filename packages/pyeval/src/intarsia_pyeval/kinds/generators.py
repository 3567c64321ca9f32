"""Generators: bodies that are evaluated step by step."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.kinds import iterators
from intarsia_pyeval.semantics import methods
from intarsia_pyeval.semantics.exceptions import exception_to_raise
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.constants import NONE, Const
from intarsia_pyeval.values.iterators import Coroutine, Generator, Iterator
from intarsia_pyeval.values.signatures import arity

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["close", "send", "throw"]


_AFTER_YIELD_FROM = 2  # argument of the RESUME behind it


@do.advance.rule(Generator)
def advance(tx: Tracer, x: Generator) -> Value | None:
    """Run to the next yield."""
    tx.effects.advanced()
    try:
        return send(tx, x, NONE)
    except Raised as raised:
        if raised.is_a(StopIteration) and x.finished:
            return None
        raise


def send(tx: Tracer, x: Generator, value: Value) -> Value:
    """Model `send`: returns what is yielded, raises StopIteration with the result at the end."""
    if x.finished and isinstance(x, Coroutine):
        tx.raising.error(RuntimeError, "cannot reuse already awaited coroutine")
    if x.finished:
        tx.raising.throw(StopIteration, [])
    x.frame.stack.append(value)
    x.started = True
    return _run(tx, x, None)


def throw(tx: Tracer, x: Generator, exception: Value) -> Value:
    """Model `throw` with an exception instance."""
    if x.finished or not x.started:
        x.finished = True
        raise Raised(exception)
    return _run(tx, x, exception)


def close(tx: Tracer, x: Generator) -> Value:
    """Model `close`."""
    if x.finished or not x.started:
        x.finished = True
        return NONE
    try:
        closing = tx.raising.new(GeneratorExit, [])
        tx.raising.set_context(closing)
        _run(tx, x, closing)
    except Raised as raised:
        if raised.is_a((GeneratorExit, StopIteration)):
            return NONE
        raise
    raise Break("tracer.exception", "a generator ignored GeneratorExit")


def _run(tx: Tracer, x: Generator, exception: Value | None) -> Value:
    """Run the frame until it yields, returns or raises."""
    tx.effects.advanced()
    if x.running:
        tx.raising.error(ValueError, "generator already executing")
    if exception is not None:
        _throw_into_inner(tx, x, exception)
    x.running = True
    try:
        yielded, value = _resume(tx, x, exception)
    except Raised as raised:
        x.finished = True
        if raised.is_a(StopIteration):
            raise Break("tracer.exception", "a generator raised StopIteration") from raised
        raise
    finally:
        x.running = False
    if yielded:
        tx.frames.open_generators |= x.is_open()
        return value
    x.finished = True
    tx.raising.throw(StopIteration, [] if isinstance(value, Const) and value.value is None else [value])


def _resume(tx: Tracer, x: Generator, exception: Value | None) -> tuple[bool, Value]:
    """Run the frame on; tell whether it yielded, and what. It goes on handling what it handled."""
    before = tx.raising.enter(x.handling)
    try:
        if x.handling is not None and exception is not None:
            tx.raising.set_context(exception)  # it is raised where the generator stopped
        return tx.frames.resume(x.frame, exception)
    finally:
        x.handling = tx.raising.leave(before)


def _throw_into_inner(tx: Tracer, x: Generator, exception: Value) -> None:
    """An exception reaches what `yield from` delegates to first: only closing is modelled."""
    following = x.frame.decoded.instructions[x.frame.pc]
    if following.op != "RESUME" or following.arg & 3 != _AFTER_YIELD_FROM:
        return
    inner = x.frame.stack[-1]
    if issubclass(exception.type(), GeneratorExit) and isinstance(inner, Iterator):
        if isinstance(inner, Generator):
            close(tx, inner)
        return
    raise Break("tracer.exception", f"{exception.describe()} is thrown into `yield from`")


@do.call_method.rule(Generator)
def call_method(tx: Tracer, x: Generator, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of a generator; one that stands for another iterator has some of them."""
    return methods.call(tx, types.GeneratorType, x, name, args, keywords)


def _send(tx: Tracer, x: Generator, args: list[Value], keywords: Keywords) -> Value:
    (value,) = arity("send", args, keywords, 1)
    return send(tx, x, value)


def _throw(tx: Tracer, x: Generator, args: list[Value], keywords: Keywords) -> Value:
    first, *rest = arity("throw", args, keywords, 1, 3)
    return throw(tx, x, exception_to_raise(tx, rest[0] if rest else first, first))


def _close(tx: Tracer, x: Generator, args: list[Value], keywords: Keywords) -> Value:
    arity("close", args, keywords, 0)
    return close(tx, x)


@do.iterate.rule(Coroutine)
def iterate_coroutine(tx: Tracer, x: Coroutine) -> Value:
    """Refuse, as CPython does."""
    tx.raising.error(TypeError, "'coroutine' object is not iterable")


@do.advance.rule(Coroutine)
def advance_coroutine(tx: Tracer, x: Coroutine) -> Value | None:
    """Refuse, as CPython does."""
    tx.raising.error(TypeError, "'coroutine' object is not an iterator")


@do.call_method.rule(Coroutine)
def call_method_of_coroutine(tx: Tracer, x: Coroutine, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of a coroutine."""
    return methods.call(tx, types.CoroutineType, x, name, args, keywords)


METHODS: dict[str, methods.Rule] = {"close": _close, "send": _send, "throw": _throw, **iterators.METHODS}
_SIZE = methods.SIZE if "__sizeof__" in vars(types.GeneratorType) else {}
methods.declare(types.GeneratorType, METHODS, methods.refused(["__del__"], "it is CPython's to end a generator"), _SIZE)
methods.declare(
    types.CoroutineType,
    {"close": _close, "send": _send, "throw": _throw},
    methods.refused(["__await__"], "it is called by its name"),
    methods.refused(["__del__"], "it is CPython's to end a coroutine"),
    _SIZE,
)
