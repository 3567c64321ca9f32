"""How deep the stack is before each instruction: forward flow over decoded instructions, handlers included."""

from __future__ import annotations

import dis
from types import CodeType

from intarsia_bytecode.decode import Instruction, decode
from intarsia_bytecode.liveness import successors

__all__ = ["stack_depths"]


def stack_depths(code: CodeType) -> tuple[int, ...]:
    """Return the number of stack entries before each decoded instruction; -1 where control never comes."""
    decoded = decode(code)
    found = [-1] * len(decoded.instructions)
    found[0] = 0
    work = [0]

    def reach(goal: int, depth: int) -> None:
        if goal < len(found) and found[goal] < 0:
            found[goal] = depth
            work.append(goal)

    effects = _Effects(code)
    while work:
        step = decoded.instructions[work.pop()]
        for goal in successors(decoded, step):
            reach(goal, effects.after(step, found[step.index], jumped=goal != step.index + 1))
        handler = decoded.handlers[step.index]
        if handler is not None:
            reach(handler.target, handler.depth + handler.lasti + 1)
    return tuple(found)


class _Effects:
    """What each of CPython's instructions, caches not counted, does to the depth."""

    def __init__(self, code: CodeType) -> None:
        self.raw = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]

    def after(self, step: Instruction, depth: int, *, jumped: bool) -> int:
        """Return the depth after a decoded instruction."""
        if step.op == "FOR_ITER" and jumped:
            return depth - 1  # the effect that `dis` knows counts on the instructions that the jump skips
        for raw in self.raw[step.first : step.last + 1]:
            arg = raw.arg if raw.opcode >= dis.HAVE_ARGUMENT else None
            depth += dis.stack_effect(raw.opcode, arg, jump=jumped)
        return depth
