"""`intarsia explain` and `intarsia run`: what becomes of a function or a script, and whether it equals eager."""

from __future__ import annotations

import functools
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

import intarsia
from intarsia_command.exits import Exit, of_the_program
from intarsia_command.outcomes import differences, outcome_of
from intarsia_command.programs import load
from intarsia_dispatch import CompiledModule
from intarsia_ir.errors import InvalidArgumentError
from intarsia_report import Explanation, joined, page

__all__ = ["Backend", "Dynamic", "Train", "explain", "keywords_of", "run"]

Target = Annotated[str, typer.Argument(help="script.py::function, with its inputs from the script.")]
Backend = Annotated[str, typer.Option(help="As for intarsia.compile.")]
Dynamic = Annotated[bool, typer.Option("--dynamic", help="All sizes are symbols.")]
Train = Annotated[bool, typer.Option("--train", help="Take gradients of the results' sum, too.")]
Dump = Annotated[Path | None, typer.Option(help="A folder for the text of the program after each stage.")]


def explain(
    target: Annotated[str, typer.Argument(help="script.py::function with its inputs, or a script to run.")],
    backend: Backend = "auto",
    dynamic: Dynamic = False,
    train: Train = False,
    dump: Dump = None,
    html: Annotated[Path | None, typer.Option(help="A file for a page about it, which opens offline.")] = None,
    trace: Annotated[Path | None, typer.Option(help="A file for when what was done, for Perfetto.")] = None,
) -> Exit:
    """Say what becomes of a function: graphs, kernels, breaks, guards, recompiles.

    Without a function, the script runs, and each call of what it compiles is told of that compiled something.
    """
    keywords = keywords_of(backend, dynamic, dump)
    explanations = _of_script(target, keywords) if "::" not in target else _of_function(target, keywords, train)
    if explanations:
        _write(target, joined(explanations), html, trace)
    return Exit.FINE


def _of_function(target: str, keywords: dict[str, Any], train: bool) -> list[Explanation]:
    """Tell of each call of a function."""
    program = load(target)
    told, found = intarsia.explain(program.function, **keywords), list[Explanation]()
    for args, kwargs in program.calls():
        with of_the_program(target), torch.set_grad_enabled(train):
            found.append(told(*args, **kwargs))
        print(found[-1])
    return found


def _write(target: str, explanation: Explanation, html: Path | None, trace: Path | None) -> None:
    try:
        if html is not None:
            html.write_text(page(explanation, title=target), encoding="utf-8")
        if trace is not None:
            explanation.trace(trace)
    except OSError as error:
        raise InvalidArgumentError(f"{error.filename!r} can't be written: {error}", code="command.file") from error


def keywords_of(backend: str, dynamic: bool, dump: Path | None = None) -> dict[str, Any]:
    """Return keywords of `intarsia.compile`; what can't be compiled raises."""
    options = {"on_error": "raise", **({"dump_dir": str(dump)} if dump is not None else {})}
    return {"backend": backend, "dynamic": True if dynamic else None, "options": options}


def _of_script(path: str, keywords: dict[str, Any]) -> list[Explanation]:
    """Run a script whose `intarsia.compile` tells what it does, and tell of the calls that compiled something."""
    if not Path(path).is_file():
        raise InvalidArgumentError(f"there is no script {path!r}", code="command.script")
    original, told = intarsia.compile, list[Explanation]()
    dumping = {"dump_dir": keywords["options"]["dump_dir"]} if "dump_dir" in keywords["options"] else {}

    def compile(fn: Callable[..., Any] | None = None, **given: Any) -> Any:
        """Stand in for `intarsia.compile` while the script runs."""
        if fn is None:
            return functools.partial(compile, **given)
        if given.pop("disable", False):
            return fn
        again = functools.partial(compile, **given)
        watch = functools.partial(_watched, told, {**given, "options": {**(given.get("options") or {}), **dumping}})
        return CompiledModule(fn, watch, again) if isinstance(fn, torch.nn.Module) else watch(fn)

    sys.path.insert(0, str(Path(path).resolve().parent))
    intarsia.compile = compile
    try:
        with of_the_program(path):
            runpy.run_path(path, run_name="__main__")
    finally:
        intarsia.compile = original
    print("\n".join(map(str, told)) or f"{path} called nothing that intarsia.compile returned")
    return told


def _watched(told: list[Explanation], keywords: dict[str, Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled, whose calls tell what they compiled."""
    explained = intarsia.explain(function, **keywords)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        explanation = explained(*args, **kwargs)
        if explanation.graphs or explanation.frames:
            told.append(replace(explanation, result=None))  # which may be large
        return explanation.result

    return call


def run(target: Target, backend: Backend = "auto", dynamic: Dynamic = False, train: Train = False) -> Exit:
    """Run a function compiled, and compare with eager: results, written inputs and, with --train, gradients."""
    program = load(target)
    compiled = intarsia.compile(program.fresh_function(), **keywords_of(backend, dynamic))
    reference, found = program.fresh_function(), list[str]()
    pairs = zip(program.calls(), program.calls(), strict=True)
    for number, ((args, kwargs), (again, more)) in enumerate(pairs):
        expected = outcome_of(reference, args, kwargs, train=train)
        actual = outcome_of(compiled, again, more, train=train)
        differing = differences(expected, actual)
        found += [f"call {number}: {sentence}" for sentence in differing]
        if expected.raised and not differing:
            print(f"intarsia: call {number} raises {expected.raised}, in eager, too", file=sys.stderr)
    stats = intarsia.stats()
    print(f"{stats.graphs} graph(s), {stats.kernels_generated} kernel(s), {stats.extern_calls} library call(s)")
    print("\n".join(found) or "equal to eager")
    if found:
        print(f"intarsia: it differs from eager; `intarsia bisect {target}` finds where", file=sys.stderr)
    return Exit.FOUND if found else Exit.FINE
