"""Jumps, loops, returning and yielding."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

from intarsia_bytecode import surely_raises
from intarsia_pyeval import do
from intarsia_pyeval.breaks import Break, Raised
from intarsia_pyeval.evaluate import EvaluatedFrame, Signal
from intarsia_pyeval.kinds import generators
from intarsia_pyeval.semantics import iteration
from intarsia_pyeval.values.constants import is_none
from intarsia_pyeval.values.frames import Yielded
from intarsia_pyeval.values.iterators import Coroutine, Generator

if TYPE_CHECKING:
    from intarsia_bytecode import Instruction

__all__ = [
    "for_iter",
    "get_iter",
    "get_yield_from_iter",
    "jump",
    "jump_backward",
    "jump_if_false_or_pop",
    "jump_if_true_or_pop",
    "pop_jump_if_false",
    "pop_jump_if_none",
    "pop_jump_if_not_none",
    "pop_jump_if_true",
    "return_generator",
    "return_value",
    "send",
    "yield_value",
]


def jump(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump."""
    f.pc = i.target


def jump_backward(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump back; loops are unrolled, so they spend the budget."""
    f.tx.frames.spend(i.index - i.target)
    f.pc = i.target


def pop_jump_if_false(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump if the top is false."""
    if not do.branch(f.tx, f.stack.pop(), partial(_expected, f, i, jumps=False)):
        _jump(f, i)


def pop_jump_if_true(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump if the top is true."""
    if do.branch(f.tx, f.stack.pop(), partial(_expected, f, i, jumps=True)):
        _jump(f, i)


def _expected(f: EvaluatedFrame, i: Instruction, *, jumps: bool) -> bool | None:
    """Return the truth that goes on, where the other surely raises; `jumps` is the one that jumps."""
    ways = {jumps: surely_raises(f.code, i.target), not jumps: surely_raises(f.code, i.index + 1)}
    return None if ways[True] == ways[False] else ways[False]


def pop_jump_if_none(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump if the top is None."""
    if is_none(f.stack.pop()):
        _jump(f, i)


def pop_jump_if_not_none(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump if the top isn't None."""
    if not is_none(f.stack.pop()):
        _jump(f, i)


def _jump(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump; going back spends the budget."""
    if i.target < i.index:
        f.tx.frames.spend(i.index - i.target)
    f.pc = i.target


def jump_if_false_or_pop(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump if the top is false, else drop it."""
    if do.truth(f.tx, f.stack[-1]):
        f.stack.pop()
    else:
        f.pc = i.target


def jump_if_true_or_pop(f: EvaluatedFrame, i: Instruction) -> None:
    """Jump if the top is true, else drop it."""
    if do.truth(f.tx, f.stack[-1]):
        f.pc = i.target
    else:
        f.stack.pop()


def get_iter(f: EvaluatedFrame, i: Instruction) -> None:
    """Make an iterator."""
    f.stack.append(do.iterate(f.tx, f.stack.pop()))


def for_iter(f: EvaluatedFrame, i: Instruction, skipped: int) -> None:
    """Push the next element, or drop the iterator and leave the loop."""
    found = do.advance(f.tx, f.stack[-1])
    if found is not None:
        f.stack.append(found)
        return
    f.stack.pop()
    f.pc = i.target + skipped


def return_value(f: EvaluatedFrame, i: Instruction) -> Signal:
    """Return the top."""
    return f.stack.pop()


def return_generator(f: EvaluatedFrame, i: Instruction) -> None:
    """The generator was made by the call; its first `send` puts the value for the next POP_TOP on the stack."""


def yield_value(f: EvaluatedFrame, i: Instruction) -> Signal:
    """Give the top to whoever advances the generator."""
    return Yielded(f.stack.pop())


def get_yield_from_iter(f: EvaluatedFrame, i: Instruction) -> None:
    """Make an iterator for `yield from`."""
    if isinstance(f.stack[-1], Coroutine) and not f.code.co_flags & inspect.CO_COROUTINE:
        raise Break("tracer.exception", "a generator yields from a coroutine")
    if not isinstance(f.stack[-1], Generator):
        f.stack.append(do.iterate(f.tx, f.stack.pop()))


def send(f: EvaluatedFrame, i: Instruction, keep_receiver: bool) -> None:
    """Advance the inner iterator of `yield from`."""
    value = f.stack.pop()
    receiver = f.stack[-1]
    try:
        if is_none(value):
            found = (
                iteration.next_or_stop(f.tx, receiver)
                if not isinstance(receiver, Generator)
                else generators.send(f.tx, receiver, value)
            )
        else:
            found = do.call(f.tx, do.get_attribute(f.tx, receiver, "send"), [value], {})
    except Raised as raised:
        if not raised.is_a(StopIteration):
            raise
        result = do.get_attribute(f.tx, raised.value, "value")
        if not keep_receiver:
            f.stack.pop()
        f.stack.append(result)
        f.pc = i.target
        return
    f.stack.append(found)
