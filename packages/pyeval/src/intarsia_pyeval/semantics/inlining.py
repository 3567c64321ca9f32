"""Evaluating the body of a function in place of its call."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia_pyeval.breaks import Break
from intarsia_pyeval.evaluate import EvaluatedFrame
from intarsia_pyeval.semantics import binding
from intarsia_pyeval.stores import function_store
from intarsia_pyeval.values.base import Keywords, Value
from intarsia_pyeval.values.functions import PythonFunction
from intarsia_pyeval.values.iterators import Coroutine, Generator

if TYPE_CHECKING:
    from intarsia_pyeval.tracer import Tracer

__all__ = ["inline"]


_NOT_INLINED = inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def inline(tx: Tracer, function: PythonFunction, args: Sequence[Value], keywords: Keywords) -> Value:
    """Evaluate the body of a function in a frame of its own."""
    code = function.code
    if code.co_flags & _NOT_INLINED:
        raise Break(
            "tracer.frame", f"{function.describe()} is an asynchronous generator, or a coroutine made of a generator"
        )
    tx.frames.check_depth(function.describe())
    values = binding.bind(tx, function, args, keywords)
    frame = EvaluatedFrame(
        tx, code, values, function_store.global_names(tx, function), function_store.cells(tx, function)
    )
    if code.co_flags & inspect.CO_GENERATOR:
        return Generator(frame, tx.steps.now)
    if code.co_flags & inspect.CO_COROUTINE:
        coroutine = Coroutine(frame, tx.steps.now)
        tx.frames.coroutines.append(coroutine)
        return coroutine
    tx.frames.spend(10)
    return tx.frames.run(frame)
