"""Beginning a frame anew in CPython: what replacement code does when it finds, too late, that the frame raises."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import CodeType
from typing import Any

from intarsia_bytecode.decode import Decoded, decode
from intarsia_bytecode.liveness import successors
from intarsia_bytecode.resume import ResumeInfo, resume_code
from intarsia_bytecode.writer import Loader, Writer, parameters

__all__ = ["begin_anew", "surely_raises"]

_PROLOGUE = frozenset({"COPY_FREE_VARS", "MAKE_CELL", "RESUME"})
_MOST = 400  # instructions that are looked at: a message isn't longer


def surely_raises(code: CodeType, index: int) -> bool:
    """Tell whether every way from an instruction on ends in a `raise` that leaves the function.

    A `with` around it counts as left, an `except` or `finally` doesn't: whoever raises for those may do so often.

    Example:
        >>> def f(x):
        ...     assert x > 1, "small"
        ...     return x
        >>> jump = next(i for i in decode(f.__code__).instructions if "JUMP" in i.op)
        >>> surely_raises(f.__code__, jump.index + 1), surely_raises(f.__code__, jump.target)
        (True, False)
    """
    decoded = decode(code)
    seen, todo = set[int](), [index]
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        instruction = decoded.instructions[at]
        if instruction.op == "RAISE_VARARGS":
            if not _leaves(decoded, at):
                return False
            continue
        following = successors(decoded, instruction)
        if not following or any(goal <= at for goal in following) or len(seen) > _MOST:
            return False
        if instruction.op in ("YIELD_VALUE", "FOR_ITER"):
            return False
        todo += following
    return True


def _leaves(decoded: Decoded, at: int) -> bool:
    """Tell whether what is raised at an instruction leaves the function, as far as its innermost handler tells."""
    handler = decoded.handlers[at]
    if handler is None:
        return True
    return any(i.op == "WITH_EXCEPT_START" for i in decoded.instructions[handler.target : handler.target + 2])


def begin_anew(code: CodeType, out: Writer, held: Sequence[str] = ()) -> None:
    """Write instructions that run the whole function in CPython, from its beginning on, and return what it returns.

    They are for a place where all parameters and cells still are as the function got them.

    Args:
        code: The code of the function.
        out: Writes the code that replaces it.
        held: Locals to drop before, for the function that is called must not find them kept alive.
    """
    names = [name for name in parameters(code) if name not in code.co_cellvars]
    start = next(i.index for i in decode(code).instructions if i.op not in _PROLOGUE)
    again = resume_code(code, start, "__anew", names, (), ResumeInfo(frozenset(), native=True, failed=True))

    def make() -> None:
        for name in again.co_freevars:
            out.closure_cell(name)
        if again.co_freevars:
            out.emit("BUILD_TUPLE", len(again.co_freevars))
        out.emit_function(again, 8 if again.co_freevars else 0)

    loads: list[Loader] = [partial(out.emit, "LOAD_FAST", name) for name in names]
    drops: list[Any] = [partial(out.emit, "DELETE_FAST", name) for name in (*names, *held)]
    out.call(make, loads, drops)
    out.emit("RETURN_VALUE")
