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
def advance(tx: Tracer, generator: Generator) -> Value | None:
    """Run to the next yield."""
    tx.effects.advanced()
    try:
        return send(tx, generator, NONE)
    except Raised as raised:
        if raised.is_a(StopIteration) and generator.finished:
            return None
        raise


def send(tx: Tracer, generator: Generator, value: Value) -> Value:
    """Model `send`: returns what is yielded, raises StopIteration with the result at the end."""
    if generator.finished and isinstance(generator, Coroutine):
        tx.raising.error(RuntimeError, "cannot reuse already awaited coroutine")
    if generator.finished:
        tx.raising.throw(StopIteration, [])
    generator.frame.stack.append(value)
    generator.started = True
    return _run(tx, generator, None)


def throw(tx: Tracer, generator: Generator, exception: Value) -> Value:
    """Model `throw` with an exception instance."""
    if generator.finished or not generator.started:
        generator.finished = True
        raise Raised(exception)
    return _run(tx, generator, exception)


def close(tx: Tracer, generator: Generator) -> Value:
    """Model `close`."""
    if generator.finished or not generator.started:
        generator.finished = True
        return NONE
    try:
        closing = tx.raising.new(GeneratorExit, [])
        tx.raising.set_context(closing)
        _run(tx, generator, closing)
    except Raised as raised:
        if raised.is_a((GeneratorExit, StopIteration)):
            return NONE
        raise
    raise Break("tracer.exception", "a generator ignored GeneratorExit")


def _run(tx: Tracer, generator: Generator, exception: Value | None) -> Value:
    """Run the frame until it yields, returns or raises."""
    tx.effects.advanced()
    if generator.running:
        tx.raising.error(ValueError, "generator already executing")
    if exception is not None:
        _throw_into_inner(tx, generator, exception)
    generator.running = True
    try:
        yielded, value = _resume(tx, generator, exception)
    except Raised as raised:
        generator.finished = True
        if raised.is_a(StopIteration):
            raise Break("tracer.exception", "a generator raised StopIteration") from raised
        raise
    finally:
        generator.running = False
    if yielded:
        tx.frames.open_generators |= generator.is_open()
        return value
    generator.finished = True
    tx.raising.throw(StopIteration, [] if isinstance(value, Const) and value.value is None else [value])


def _resume(tx: Tracer, generator: Generator, exception: Value | None) -> tuple[bool, Value]:
    """Run the frame on; tell whether it yielded, and what. It goes on handling what it handled."""
    before = tx.raising.enter(generator.handling)
    try:
        if generator.handling is not None and exception is not None:
            tx.raising.set_context(exception)  # it is raised where the generator stopped
        return tx.frames.resume(generator.frame, exception)
    finally:
        generator.handling = tx.raising.leave(before)


def _throw_into_inner(tx: Tracer, generator: Generator, exception: Value) -> None:
    """An exception reaches what `yield from` delegates to first: only closing is modelled."""
    following = generator.frame.decoded.instructions[generator.frame.pc]
    if following.op != "RESUME" or following.arg & 3 != _AFTER_YIELD_FROM:
        return
    inner = generator.frame.stack[-1]
    if issubclass(exception.type(), GeneratorExit) and isinstance(inner, Iterator):
        if isinstance(inner, Generator):
            close(tx, inner)
        return
    raise Break("tracer.exception", f"{exception.describe()} is thrown into `yield from`")


@do.call_method.rule(Generator)
def call_method(tx: Tracer, generator: Generator, name: str, args: Sequence[Value], keywords: Keywords) -> Value:
    """Call a method of a generator; one that stands for another iterator has some of them."""
    return methods.call(tx, types.GeneratorType, generator, name, args, keywords)


def _send(tx: Tracer, generator: Generator, args: list[Value], keywords: Keywords) -> Value:
    (value,) = arity("send", args, keywords, 1)
    return send(tx, generator, value)


def _throw(tx: Tracer, generator: Generator, args: list[Value], keywords: Keywords) -> Value:
    first, *rest = arity("throw", args, keywords, 1, 3)
    return throw(tx, generator, exception_to_raise(tx, rest[0] if rest else first, first))


def _close(tx: Tracer, generator: Generator, args: list[Value], keywords: Keywords) -> Value:
    arity("close", args, keywords, 0)
    return close(tx, generator)


@do.iterate.rule(Coroutine)
def iterate_coroutine(tx: Tracer, coroutine: Coroutine) -> Value:
    """Refuse, as CPython does."""
    tx.raising.error(TypeError, "'coroutine' object is not iterable")


@do.advance.rule(Coroutine)
def advance_coroutine(tx: Tracer, coroutine: Coroutine) -> Value | None:
    """Refuse, as CPython does."""
    tx.raising.error(TypeError, "'coroutine' object is not an iterator")


@do.call_method.rule(Coroutine)
def call_method_of_coroutine(
    tx: Tracer, coroutine: Coroutine, name: str, args: Sequence[Value], keywords: Keywords
) -> Value:
    """Call a method of a coroutine."""
    return methods.call(tx, types.CoroutineType, coroutine, name, args, keywords)


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
