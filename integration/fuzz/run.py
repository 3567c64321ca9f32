"""Runs one program in eager and compiled, step by step, and tells the first difference."""

from __future__ import annotations

import contextlib
import io
import itertools
import linecache
import logging
import re
import sys
import traceback
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import intarsia
from intarsia import IntarsiaError, UnsupportedError
from intarsia_dispatch import EventKind, FrameEvent
from intarsia_dispatch import difference as counts_since
from intarsia_ir.errors import InternalError
from integration.fuzz.observe import Observation, difference, observe

__all__ = ["Outcome", "check", "load"]

_numbers = itertools.count()
_GLOBALS = ("counter", "ratio", "flag", "log", "table", "weight", "net", "bump_total", "helper", "h0", "h1")

LIMIT = "dispatch.too_many_versions"
"""The code of the refusal of a program that asks for more versions than allowed: in eager nothing failed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one program showed.

    Args:
        difference: What differs from eager; "" when nothing does.
        refused: Code of the UnsupportedError that ended the compiled run; the program was then compared again with
            `on_error="eager"`.
        stats: What `intarsia.stats()` counted in the compiled run.
        raised: How many steps raised in eager.
    """

    difference: str
    refused: str
    stats: intarsia.Stats
    raised: int


def check(source: str, backend: str) -> Outcome:
    """Run a program both ways.

    Args:
        source: A module as `programs` writes it.
        backend: As for `intarsia.compile`; with `"eager"` results must agree in every bit.
    """
    wanted, raised = _steps(source, lambda f: f)
    before = intarsia.stats()
    with _Failures() as failures:
        mismatch = _compare(source, _compiler(backend, "raise"), wanted, exact=backend == "eager")
        if mismatch:
            # a refusal may have been caught by the program itself: without one, the difference stands
            failures.codes.clear()
            again = _compare(source, _compiler(backend, "eager"), wanted, exact=backend == "eager")
            if LIMIT in mismatch:
                failures.codes.append(LIMIT)
            mismatch = again or ("" if failures.codes else mismatch)
        refused = next((code for code in failures.codes), "")
    return Outcome(mismatch, refused, counts_since(intarsia.stats(), before), raised)


def _compare(source: str, compiler: Callable[[Any], Any], wanted: list[Observation], *, exact: bool) -> str:
    """Return what differs first; a refusal that ends the run is a difference."""
    try:
        ours, _ = _steps(source, compiler)
    except UnsupportedError as error:
        return f"refused: {error}"
    for number, (a, e) in enumerate(zip(ours, wanted, strict=True)):
        mismatch = difference(a, e, exact=exact)
        if mismatch:
            return f"step {number}: {mismatch}"
    return ""


class _Failures(logging.Handler):
    """Collects the codes of the errors for which frames were left to eager, from the log.

    Raises:
        InternalError: At the end, if one of them is a bug of the compiler.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.codes: list[str] = []
        self.bugs: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        event = record.args[0] if isinstance(record.args, tuple) and record.args else None
        if isinstance(event, FrameEvent) and event.kind is EventKind.LIMIT:
            self.codes.append(LIMIT)  # with "raise" an error, which a program that catches any error catches too
        if isinstance(event, FrameEvent) and event.kind is EventKind.FAILED:
            code = re.search(r"\[([a-z]+\.\w+)\]", event.reason)
            self.codes.append(code[1] if code else event.reason)
            if code is None or "internal" in code[1]:
                self.bugs.append(event.reason)

    def __enter__(self) -> _Failures:
        log = logging.getLogger("intarsia.frames")
        self.level_before = log.level
        log.setLevel(logging.INFO)
        log.addHandler(self)
        return self

    def __exit__(self, *exception: object) -> None:
        log = logging.getLogger("intarsia.frames")
        log.removeHandler(self)
        log.setLevel(self.level_before)
        if self.bugs:
            raise InternalError(self.bugs[0], code="fuzz.internal")


def _compiler(backend: str, on_error: str) -> Callable[[Any], Any]:
    return lambda f: intarsia.compile(f, backend=backend, options={"on_error": on_error})


def load(source: str) -> types.ModuleType:
    """Run a module and return it; tracebacks and the tracer see its lines."""
    name = f"<fuzz {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    # dataclasses and the tracer look a function's module up by its name
    module = sys.modules["program"] = types.ModuleType("program")
    names = vars(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(source, name, "exec"), names)
    return module


def _steps(source: str, compiler: Callable[[Any], Any]) -> tuple[list[Observation], int]:
    """Return an observation a step, and how many steps raised.

    Raises:
        IntarsiaError: From the compiled function.
    """
    torch.manual_seed(0)
    module = load(source)
    names = vars(module)
    function = compiler(names["f"])
    arguments: dict[str, Any] = {}
    results: list[Any] = []
    observations: list[Observation] = []
    raised = 0
    for event, assignments in names["STEPS"]:
        with torch.no_grad():
            with contextlib.suppress(LookupError):  # what an earlier step was to leave may not be there
                exec(event, names)
            exec(assignments, names, arguments)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                result = function(*(arguments[name] for name in names["PARAMETERS"]))
            except IntarsiaError:
                raise
            except Exception as error:
                result = error, _place(error)
                raised += 1
        results.append(result)
        shared = {name: names[name] for name in _GLOBALS if name in names}
        classes = {"Base": dict(vars(names["Base"])), "Derived": dict(vars(names["Derived"]))}
        scales = {name: members.get("scale") for name, members in classes.items()}
        modes = {"grad": torch.is_grad_enabled(), "autocast": torch.is_autocast_enabled("cpu")}
        roots = {"results": results, "arguments": arguments, **shared, "scales": scales, "modes": modes}
        observations.append(observe(roots, printed.getvalue()))
    return observations, raised


def _place(error: Exception) -> int:
    """Return the last line of the program that an exception passed.

    For an unbound local it isn't compared: CPython 3.11 itself takes the line of the store in front of the load once
    it has joined the two.
    """
    if isinstance(error, NameError):
        return 0
    lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename.startswith("<fuzz")]
    return lines[-1] or 0 if lines else 0
