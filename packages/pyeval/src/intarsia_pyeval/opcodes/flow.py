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


def jump(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Jump."""
    frame.pc = instruction.target


def jump_backward(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Jump back; loops are unrolled, so they spend the budget."""
    frame.tx.frames.spend(instruction.index - instruction.target)
    frame.pc = instruction.target


def pop_jump_if_false(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Jump if the top is false."""
    if not do.branch(frame.tx, frame.stack.pop(), partial(_expected, frame, instruction, jumps=False)):
        _jump(frame, instruction)


def pop_jump_if_true(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Jump if the top is true."""
    if do.branch(frame.tx, frame.stack.pop(), partial(_expected, frame, instruction, jumps=True)):
        _jump(frame, instruction)


def _expected(frame: EvaluatedFrame, instruction: Instruction, *, jumps: bool) -> bool | None:
    """Return the truth that goes on, where the other surely raises; `jumps` is the one that jumps."""
    ways = {
        jumps: surely_raises(frame.code, instruction.target),
        not jumps: surely_raises(frame.code, instruction.index + 1),
    }
    return None if ways[True] == ways[False] else ways[False]


def pop_jump_if_none(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Jump if the top is None."""
    if is_none(frame.stack.pop()):
        _jump(frame, instruction)


def pop_jump_if_not_none(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Jump if the top isn't None."""
    if not is_none(frame.stack.pop()):
        _jump(frame, instruction)


def _jump(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Jump; going back spends the budget."""
    if instruction.target < instruction.index:
        frame.tx.frames.spend(instruction.index - instruction.target)
    frame.pc = instruction.target


def jump_if_false_or_pop(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Jump if the top is false, else drop it."""
    if do.truth(frame.tx, frame.stack[-1]):
        frame.stack.pop()
    else:
        frame.pc = instruction.target


def jump_if_true_or_pop(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Jump if the top is true, else drop it."""
    if do.truth(frame.tx, frame.stack[-1]):
        frame.pc = instruction.target
    else:
        frame.stack.pop()


def get_iter(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Make an iterator."""
    frame.stack.append(do.iterate(frame.tx, frame.stack.pop()))


def for_iter(frame: EvaluatedFrame, instruction: Instruction, skipped: int) -> None:
    """Push the next element, or drop the iterator and leave the loop."""
    element = do.advance(frame.tx, frame.stack[-1])
    if element is not None:
        frame.stack.append(element)
        return
    frame.stack.pop()
    frame.pc = instruction.target + skipped


def return_value(frame: EvaluatedFrame, instruction: Instruction) -> Signal:
    """Return the top."""
    return frame.stack.pop()


def return_generator(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """The generator was made by the call; its first `send` puts the value for the next POP_TOP on the stack."""


def yield_value(frame: EvaluatedFrame, instruction: Instruction) -> Signal:
    """Give the top to whoever advances the generator."""
    return Yielded(frame.stack.pop())


def get_yield_from_iter(frame: EvaluatedFrame, instruction: Instruction) -> None:
    """Make an iterator for `yield from`."""
    if isinstance(frame.stack[-1], Coroutine) and not frame.code.co_flags & inspect.CO_COROUTINE:
        raise Break("tracer.exception", "a generator yields from a coroutine")
    if not isinstance(frame.stack[-1], Generator):
        frame.stack.append(do.iterate(frame.tx, frame.stack.pop()))


def send(frame: EvaluatedFrame, instruction: Instruction, keep_receiver: bool) -> None:
    """Advance the inner iterator of `yield from`."""
    value = frame.stack.pop()
    receiver = frame.stack[-1]
    try:
        if is_none(value):
            yielded = (
                iteration.next_or_stop(frame.tx, receiver)
                if not isinstance(receiver, Generator)
                else generators.send(frame.tx, receiver, value)
            )
        else:
            yielded = do.call(frame.tx, do.get_attribute(frame.tx, receiver, "send"), [value], {})
    except Raised as raised:
        if not raised.is_a(StopIteration):
            raise
        result = do.get_attribute(frame.tx, raised.value, "value")
        if not keep_receiver:
            frame.stack.pop()
        frame.stack.append(result)
        frame.pc = instruction.target
        return
    frame.stack.append(yielded)
