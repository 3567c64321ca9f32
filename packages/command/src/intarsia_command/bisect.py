"""`intarsia bisect`: what makes a program wrong, and a script that shows it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import intarsia
from intarsia_command.bisecting import Case, Culprit, cases_of, find, operations, reproducer, shrink
from intarsia_command.bisecting.search import goes_wrong
from intarsia_command.exits import Exit
from intarsia_command.explaining import Dynamic, Target, Train
from intarsia_command.outcomes import differences, outcome_of
from intarsia_command.programs import Program, load, load_attribute
from intarsia_ir.choices import instance_of
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.pipeline import Pipeline

__all__ = ["Found", "bisect", "bisected"]


@dataclass(frozen=True, slots=True)
class Found:
    """What a bisection found.

    Args:
        culprit: What is at fault.
        case: The least that still goes wrong; None where no graph does by itself.
        script: A script that shows it; "" without a case.
    """

    culprit: Culprit
    case: Case | None = None
    script: str = ""


def bisect(
    target: Target,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the reproducer goes.")] = Path("reproducer.py"),
    pipeline: Annotated[str | None, typer.Option(help="A pipeline of the script's, by its name.")] = None,
    train: Train = False,
    dynamic: Dynamic = False,
) -> Exit:
    """Find what makes a function wrong, or crash: the stage and the rewrite, fusion or choice; write a reproducer."""
    program = load(target)
    found = bisected(program, _pipeline(target, pipeline), train=train, dynamic=dynamic)
    if found is None:
        print("equal to eager")
        return Exit.FINE
    print(found.culprit)
    if found.case is not None:
        try:
            output.write_text(found.script, encoding="utf-8")
        except OSError as error:
            raise InvalidArgumentError(f"{str(output)!r} can't be written: {error}", code="command.file") from error
        print(f"intarsia: {output} has {operations(found.case.graph_module)} operation(s)", file=sys.stderr)
    return Exit.FOUND


def _pipeline(target: str, name: str | None) -> Pipeline:
    if name is None:
        return intarsia.default_pipeline()
    given = load_attribute(target, name)
    instance_of(f"the pipeline {name}", given, Pipeline)
    return given  # type: ignore[no-any-return]


def bisected(
    program: Program, pipeline: Pipeline | None = None, *, train: bool = False, dynamic: bool = False
) -> Found | None:
    """Return what makes a program wrong; None where it does what eager does.

    Args:
        program: A function with inputs.
        pipeline: What compiles it; None: the default.
        train: Take gradients, too.
        dynamic: All sizes are symbols.
    """
    stages = pipeline or intarsia.default_pipeline()
    wrong = _wrong(program, train=train, dynamic=dynamic, pipeline=stages)
    if not wrong:
        return None
    as_captured = _wrong(program, train=train, dynamic=dynamic, backend="eager")
    if as_captured:
        return Found(Culprit("capture", as_captured))
    for case in cases_of(program, train=train, dynamic=dynamic):
        culprit = find(case, stages)
        if culprit is not None:
            return _shrunk(case, culprit, stages)
    return Found(Culprit("dispatch", wrong))


def _shrunk(case: Case, culprit: Culprit, pipeline: Pipeline) -> Found:
    def fails(part: Case) -> bool:
        return goes_wrong(part, pipeline, culprit.stage)

    small = shrink(case, fails)
    alone = find(small, pipeline) or culprit  # what is left may count its rewrites otherwise
    return Found(culprit, small, reproducer(small, alone, fails))


def _wrong(program: Program, *, train: bool, dynamic: bool, **keywords: Any) -> tuple[str, ...]:
    options = {"on_error": "raise"}
    compiled = intarsia.compile(
        program.fresh_function(), dynamic=True if dynamic else None, options=options, **keywords
    )
    reference, found = program.fresh_function(), list[str]()
    for (args, kwargs), (again, more) in zip(program.calls(), program.calls(), strict=True):
        expected = outcome_of(reference, args, kwargs, train=train)
        found += differences(expected, outcome_of(compiled, again, more, train=train))
    return tuple(found)
