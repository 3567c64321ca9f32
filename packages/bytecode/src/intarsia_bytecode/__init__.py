"""Bytecode of CPython 3.11, 3.12 and 3.13: decode it, ask what is live, write it, cut functions in two.

In: code objects. Out: decoded instructions, facts about them, new code objects. It knows no values, runs nothing
that it is given, and needs neither torch nor the rest of Intarsia: any Python JIT or tracer can build on it.

Example:
    >>> from intarsia_bytecode import decode, live_locals
    >>> def f(a, b):
    ...     c = a + b
    ...     return c * a
    >>> steps = decode(f.__code__).instructions
    >>> add = next(step for step in steps if step.op == "BINARY_OP")
    >>> sorted(live_locals(f.__code__, add.index + 1))
    ['a']
"""

from intarsia_bytecode.anew import begin_anew, surely_raises
from intarsia_bytecode.assemble import patched_code, replacement_code
from intarsia_bytecode.comprehensions import shares_slot
from intarsia_bytecode.decode import Decoded, Handler, Instruction, decode
from intarsia_bytecode.holes import Hole, fill_holes, holes_of
from intarsia_bytecode.liveness import (
    asks_for_locals,
    assigned_cells,
    assigned_locals,
    live_locals,
    reads_own_frame,
    runs_text,
    successors,
)
from intarsia_bytecode.raising import raise_inside
from intarsia_bytecode.resume import ResumeInfo, StackEntry, info_of, resume_code
from intarsia_bytecode.source import Source, source_of
from intarsia_bytecode.stack import entries
from intarsia_bytecode.stopping import Rest, Stop, native_code, rest_of, stack_prefix
from intarsia_bytecode.writer import Loader, Writer, parameters

__version__ = "0.1.1"
__all__ = [
    "Decoded",
    "Handler",
    "Hole",
    "Instruction",
    "Loader",
    "Rest",
    "ResumeInfo",
    "Source",
    "StackEntry",
    "Stop",
    "Writer",
    "asks_for_locals",
    "assigned_cells",
    "assigned_locals",
    "begin_anew",
    "decode",
    "entries",
    "fill_holes",
    "holes_of",
    "info_of",
    "live_locals",
    "native_code",
    "parameters",
    "patched_code",
    "raise_inside",
    "reads_own_frame",
    "replacement_code",
    "rest_of",
    "resume_code",
    "runs_text",
    "shares_slot",
    "source_of",
    "stack_prefix",
    "successors",
    "surely_raises",
]
