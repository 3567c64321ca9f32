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


def get_awaitable(f: EvaluatedFrame, i: Instruction) -> None:
    """Replace what is awaited by what is advanced."""
    f.stack.append(_awaitable(f, f.stack.pop()))


def before_async_with(f: EvaluatedFrame, i: Instruction) -> None:
    """Begin to enter an asynchronous context manager."""
    manager = f.stack.pop()
    enter = special_method(f.tx, manager, "__aenter__")
    f.stack.append(special_method(f.tx, manager, "__aexit__"))
    f.stack.append(do.call(f.tx, enter, [], {}))


def get_aiter(f: EvaluatedFrame, i: Instruction) -> None:
    """Make an asynchronous iterator."""
    f.stack.append(special(f.tx, f.stack.pop(), "__aiter__", []))


def get_anext(f: EvaluatedFrame, i: Instruction) -> None:
    """Push what is awaited for the next element."""
    f.stack.append(_awaitable(f, special(f.tx, f.stack[-1], "__anext__", [])))


def end_async_for(f: EvaluatedFrame, i: Instruction) -> None:
    """End the loop where its iterator did; any other exception goes on."""
    exception = f.stack.pop()
    f.stack.pop()
    if not issubclass(exception.type(), StopAsyncIteration):
        raise Raised(exception)


def _awaitable(f: EvaluatedFrame, value: Value) -> Value:
    """Return what awaiting a value advances."""
    if isinstance(value, Coroutine):
        if value.started:
            raise Break("tracer.exception", "a coroutine is awaited again")
        return value
    found = special(f.tx, value, "__await__", [])
    if isinstance(found, Coroutine) or f.tx.classes.find(found.type(), "__next__") is None:
        raise Break("tracer.exception", f"__await__ of {value.describe()} gives {found.describe()}")
    return found
