"""Runs captures without a frame hook: replacement code in a function of its own, resume functions captured in turn."""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Any

from bytecode import Bytecode, FreeVar, Instr

from intarsia_ir.records import Capture
from intarsia_pyeval import Extension, FrameInfo, capture_frame, link
from intarsia_pyeval.arguments import frame_of_call
from intarsia_pyeval.tracer import ExtensionMaker


class Executor:
    """Calls functions by their captures; counts what happened.

    Args:
        extension: Makes the plug-in of value models.
    """

    def __init__(self, extension: ExtensionMaker = Extension, force: bool = False) -> None:
        self.extension = extension
        self.force = force
        self.captures: list[Capture] = []

    def call(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Call `fn` by its capture."""
        code, (names, closure, values, function) = frame_of_call(fn, args, kwargs)
        return self._run(code, FrameInfo(names, closure, values | free_variables(code, closure), function))

    def _run(self, code: types.CodeType, frame: FrameInfo) -> Any:
        found = capture_frame(code, frame, extension=self.extension, number=len(self.captures), force=self.force)
        self.captures.append(found)
        holes = dict.fromkeys(found.code.holes, found.graph_module)
        linked = self._instrument(link(found.code, holes), found, frame.globals)
        function = types.FunctionType(linked, frame.globals, code.co_name, None, frame.closure or ())
        return call_with_locals(function, frame.locals)

    def _instrument(self, code: types.CodeType, found: Capture, names: dict[str, Any]) -> types.CodeType:
        """Replace resume code among the constants by code that captures it when it is called."""
        resumes = {id(resume) for resume in found.code.resumes.values()}
        consts = [self._trampoline(c, names) if id(c) in resumes else c for c in code.co_consts]
        return code.replace(co_consts=tuple(consts))

    def _trampoline(self, code: types.CodeType, names: dict[str, Any]) -> types.CodeType:
        """Return code with the signature of `code` that hands its call to this executor."""

        def resumed(args: tuple[Any, ...], cells: tuple[types.CellType, ...]) -> Any:
            values = dict(zip(code.co_varnames, args, strict=False))
            return self._run(code, FrameInfo(names, cells, values | free_variables(code, cells)))

        made = Bytecode()
        made.name = code.co_name
        made.argnames, made.argcount = list(code.co_varnames[: code.co_argcount]), code.co_argcount
        made.freevars = list(code.co_freevars)
        made.flags = code.co_flags
        if made.freevars:
            made.append(Instr("COPY_FREE_VARS", len(made.freevars)))
        made.append(Instr("RESUME", 0))
        callee = [Instr("PUSH_NULL"), Instr("LOAD_CONST", resumed)]
        made.extend(reversed(callee) if sys.version_info >= (3, 13) else callee)
        made.extend(Instr("LOAD_FAST", name) for name in made.argnames)
        made.append(Instr("BUILD_TUPLE", len(made.argnames)))
        load = "LOAD_FAST" if sys.version_info >= (3, 13) else "LOAD_CLOSURE"
        made.extend(Instr(load, FreeVar(name)) for name in made.freevars)
        made.append(Instr("BUILD_TUPLE", len(made.freevars)))
        if sys.version_info < (3, 12):
            made.append(Instr("PRECALL", 2))
        made.extend([Instr("CALL", 2), Instr("RETURN_VALUE")])
        return made.to_code()


def free_variables(code: types.CodeType, cells: tuple[types.CellType, ...] | None) -> dict[str, Any]:
    """Return what bound free variables hold: a frame hook shows them beside the arguments."""
    found = {}
    for name, cell in zip(code.co_freevars, cells or (), strict=True):
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def call_with_locals(function: types.FunctionType, values: dict[str, Any]) -> Any:
    """Call a function with its parameters given by name, `*args` and `**kwargs` included."""
    code = function.__code__
    n = code.co_argcount
    names = code.co_varnames
    args = [values[name] for name in names[:n]]
    keywords = {name: values[name] for name in names[n : n + code.co_kwonlyargcount]}
    at = n + code.co_kwonlyargcount
    if code.co_flags & 4:
        args += values[names[at]]
        at += 1
    if code.co_flags & 8:
        keywords |= values[names[at]]
    return function(*args, **keywords)
