"""Raising in the middle of a frame: what a resume function does when the rest of its frame can't be compiled.

An error that left before a resume function began would pass by the `with` blocks, `except` and `finally` around the
break. Two borders matter. A block entered just before the break, as in `lock.acquire()` before a `try`, counts as
entered; a block whose last instruction was the break counts as not yet left: its `__exit__` hasn't run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import CodeType
from typing import Any

from bytecode import Bytecode, Instr
from bytecode.instr import TryBegin, TryEnd

from intarsia_bytecode.decode import Decoded, Handler, decode
from intarsia_bytecode.reading import read
from intarsia_bytecode.resume import info_of, region_at
from intarsia_bytecode.writer import Writer

__all__ = ["handler_left", "raise_inside"]

# what can't raise, and may come between the break and the first instruction of a block
_SILENT = frozenset({"NOP", "POP_TOP", "STORE_FAST", "STORE_DEREF"})


def raise_inside(code: CodeType, error: BaseException) -> CodeType:
    """Return code that raises `error` where a resume function goes on; its own handlers see it.

    Args:
        code: Code of a resume function, as made for `Capture.code`.
        error: What to raise. The result holds it until it is raised, so it is to be run once.

    Raises:
        BaseException: `error` itself, when `code` isn't a resume function's: the frame is to raise as it begins.
    """
    if info_of(code) is None:
        try:
            raise error
        finally:
            del error  # its traceback holds this frame
    items: list[Any] = list(read(code))
    decoded = decode(code)
    end = next(i for i in decoded.instructions if i.op in ("NOP", "JUMP_FORWARD"))  # of the prologue
    loads = [item for item in items if isinstance(item, Instr)]
    entry = end.index if end.op == "NOP" else end.target
    steps = list(_silent_steps(decoded, entry)) if end.op == "JUMP_FORWARD" else []
    entry = steps[-1] + 1 if steps else entry
    region = region_at(items, decoded.instructions[entry].within)
    if steps and not _is_within(decoded, decoded.handlers[entry], decoded.handlers[steps[-1]]):
        region = region_at(items, decoded.instructions[steps[-1]].first)
    made: list[Any] = [loads[decoded.instructions[step].last].copy() for step in steps]
    inner = region.copy() if region is not None else None
    made += [inner] if inner is not None else []
    made += _raise(code, _Once(error), decoded.instructions[entry].line)
    made += [TryEnd(inner)] if inner is not None else []
    first = items.index(loads[end.first])
    while isinstance(items[first - 1], TryBegin):
        first -= 1
    items[first:first] = made
    built = Bytecode()
    built._copy_attr_from(Bytecode.from_code(code))
    built.extend(items)
    return built.to_code(stacksize=code.co_stacksize + 4, compute_exception_stack_depths=False)


def handler_left(decoded: Decoded, before: int, after: int) -> Handler | None:
    """Return the handler of the instruction `before` when control leaves it by going on at `after`, else None."""
    handler = decoded.handlers[before]
    return None if _is_within(decoded, decoded.handlers[after], handler) else handler


class _Once:
    """Gives an error away: code objects aren't seen by the collector, and an error leads to the frames it passed."""

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error

    def __call__(self) -> BaseException | None:
        error, self.error = self.error, None
        return error


def _silent_steps(decoded: Decoded, entry: int) -> Iterator[int]:
    """Yield the instructions from `entry` on that a raise may come behind: up to the first of an inner block."""
    handler = decoded.handlers[entry]
    while decoded.instructions[entry].op in _SILENT and decoded.handlers[entry] == handler:
        yield entry
        entry += 1


def _is_within(decoded: Decoded, inner: Handler | None, outer: Handler | None) -> bool:
    """Tell whether what `inner` lets pass goes to `outer`, or they are the same."""
    seen = set()
    while inner != outer:
        if inner is None or inner in seen:
            return False
        seen.add(inner)
        inner = decoded.handlers[inner.target]
    return True


def _raise(code: CodeType, once: _Once, line: int) -> list[Instr]:
    """Return instructions that raise what `once` holds."""
    out = Writer(code, line)
    out.call(partial(out.emit, "LOAD_CONST", once), [])
    out.emit("RAISE_VARARGS", 1)
    return out.body
