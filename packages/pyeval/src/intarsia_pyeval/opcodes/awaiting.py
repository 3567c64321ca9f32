"""`await`, `async with` and `async for`, in coroutines that traced code runs itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.evaluate import EvaluatedFrame
from intarsia_pyeval.semantics.special import special, special_method
from intarsia_pyeval.values.base import Value
from intarsia_pyeval.values.iterators import Coroutine

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = ["before_async_with", "end_async_for", "get_aiter", "get_anext", "get_awaitable"]


def get_awaitable(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Replace what is awaited by what is advanced."""
    frame.stack.append(_awaitable(frame, frame.stack.pop()))


def before_async_with(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Begin to enter an asynchronous context manager."""
    manager = frame.stack.pop()
    enter = special_method(frame.tx, manager, "__aenter__")
    frame.stack.append(special_method(frame.tx, manager, "__aexit__"))
    frame.stack.append(do.call(frame.tx, enter, [], {}))


def get_aiter(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Make an asynchronous iterator."""
    frame.stack.append(special(frame.tx, frame.stack.pop(), "__aiter__", []))


def get_anext(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Push what is awaited for the next element."""
    frame.stack.append(_awaitable(frame, special(frame.tx, frame.stack[-1], "__anext__", [])))


def end_async_for(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """End the loop where its iterator did; any other exception goes on."""
    exception = frame.stack.pop()
    frame.stack.pop()
    if not issubclass(exception.type(), StopAsyncIteration):
        raise Raised(exception)


def _awaitable(frame: EvaluatedFrame, value: Value) -> Value:
    """Return what awaiting a value advances."""
    if isinstance(value, Coroutine):
        if value.started:
            raise Break("tracer.exception", "a coroutine is awaited again")
        return value
    iterator = special(frame.tx, value, "__await__", [])
    if isinstance(iterator, Coroutine) or frame.tx.classes.find(iterator.type(), "__next__") is None:
        raise Break("tracer.exception", f"__await__ of {value.describe()} gives {iterator.describe()}")
    return iterator
