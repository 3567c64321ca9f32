"""Code objects made of instructions: new ones with the parameters of another, and changed copies of one."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import Any

from bytecode import Bytecode, Instr
from bytecode.instr import CellVar, TryBegin

from intarsia_bytecode.resume import singles
from intarsia_bytecode.writer import parameters

__all__ = ["patched_code", "replacement_code"]


def replacement_code(code: CodeType, items: Sequence[Any]) -> CodeType:
    """Return code with the parameters, cells and free variables of `code` that runs `items` instead."""
    made = Bytecode()
    made.name, made.qualname, made.filename = code.co_name, code.co_qualname, code.co_filename
    made.first_lineno = code.co_firstlineno
    made.argcount, made.posonlyargcount = code.co_argcount, code.co_posonlyargcount
    made.kwonlyargcount = code.co_kwonlyargcount
    made.flags = code.co_flags  # type: ignore[assignment]
    made.argnames = list(parameters(code))
    made.cellvars, made.freevars = list(code.co_cellvars), list(code.co_freevars)
    made.docstring = None
    line = code.co_firstlineno
    if code.co_freevars:
        made.append(Instr("COPY_FREE_VARS", len(code.co_freevars), lineno=line))
    made.extend(Instr("MAKE_CELL", CellVar(name), lineno=line) for name in code.co_cellvars)
    made.append(Instr("RESUME", 0, lineno=line))
    made.extend(items)
    handled = any(isinstance(item, TryBegin) for item in made)
    if not handled:
        return made.to_code(compute_exception_stack_depths=False)
    size = max(_stack_size(made), code.co_stacksize + 8)
    return made.to_code(stacksize=size, compute_exception_stack_depths=False)


def _stack_size(made: Bytecode) -> int:
    """Return how deep the stack gets, or a bound of it where the library can't follow protected ranges that overlap."""
    try:
        return made.compute_stacksize(check_pre_and_post=False)
    except AssertionError:
        # what pushes is run once, but for loops of the original, which leave the stack as they find it
        return sum(max(0, item.stack_effect()) for item in made if isinstance(item, Instr))


def patched_code(code: CodeType, items: Sequence[Any]) -> CodeType:
    """Return `code` with `items`, a changed copy of its own, as its instructions, prefix included."""
    made = Bytecode()
    made._copy_attr_from(Bytecode.from_code(code))
    made.extend(singles(items))
    return made.to_code(stacksize=code.co_stacksize + 300, compute_exception_stack_depths=False)
