"""Code objects made of instructions: new ones with the parameters of another, and changed copies of one."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import Any

from bytecode import Bytecode, Instr, Label
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
    size = max(_stack_size(made), code.co_stacksize + 8)
    return made.to_code(stacksize=size, compute_exception_stack_depths=False)


def _stack_size(items: Sequence[Any]) -> int:
    """Return how deep the stack gets; the protected ranges tell how deep it is where their handlers begin.

    The library's own computation asks the ranges' ends instead, which several paths may come to.
    """
    places = {id(item): place for place, item in enumerate(items) if isinstance(item, Label)}
    regions = [item for item in items if isinstance(item, TryBegin)]
    work: list[tuple[int, Any]] = [(places[id(r.target)], r.stack_depth + r.push_lasti + 1) for r in regions]
    work.append((0, 0))
    seen: set[int] = set()
    deepest = 0
    while work:
        place, depth = work.pop()
        while place < len(items) and place not in seen:
            seen.add(place)
            item = items[place]
            place += 1
            if not isinstance(item, Instr):
                continue
            if isinstance(item.arg, Label):
                work.append((places[id(item.arg)], depth + item.stack_effect(jump=True)))
            if item.is_final():
                break
            depth += item.stack_effect(jump=False)
            deepest = max(deepest, depth)
    return deepest


def patched_code(code: CodeType, items: Sequence[Any]) -> CodeType:
    """Return `code` with `items`, a changed copy of its own, as its instructions, prefix included."""
    made = Bytecode()
    made._copy_attr_from(Bytecode.from_code(code))
    made.extend(singles(items))
    return made.to_code(stacksize=code.co_stacksize + 300, compute_exception_stack_depths=False)
