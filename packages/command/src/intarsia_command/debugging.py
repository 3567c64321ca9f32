"""`intarsia debug`: a program run step by step by the interpreter of a level, with a shell where it stops."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, TextIO

import torch
import typer

import intarsia
import intarsia_scheduler
from intarsia.levels import Captured, Functional, Half, Kernels, Launched, Loops, Partition
from intarsia_command.bisecting import Case, cases_of
from intarsia_command.bisecting.boundaries import meaning
from intarsia_command.debug_shell import Left, Shell
from intarsia_command.exits import Exit
from intarsia_command.explaining import Dynamic, Target, Train
from intarsia_command.programs import Arguments, Program, load
from intarsia_ir.choices import one_of
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.pipeline import Pipeline
from intarsia_ir.stepping import Watch
from intarsia_loops.level_text import print_value

__all__ = ["DEBUG_LEVELS", "debug", "debug_command", "stepped"]

# name -> level whose graphs are run; tiles are what launches mean
DEBUG_LEVELS: Mapping[str, Any] = MappingProxyType(
    {"torch": Captured, "aten": Functional, "halves": Half, "loops": Loops, "kernels": Kernels, "tiles": Launched}
)


def debug_command(
    target: Target,
    level: Annotated[str, typer.Option(help=f"Whose interpreter: {', '.join(DEBUG_LEVELS)}.")] = "loops",
    command: Annotated[list[str] | None, typer.Option("--command", "-c", help="Done first; may be repeated.")] = None,
    train: Train = False,
    dynamic: Dynamic = False,
) -> Exit:
    """Step through what is compiled of a function, by the interpreter of a level; `help` in it says how."""
    equal = _debugged(load(target), level, command or (), train=train, dynamic=dynamic)
    return Exit.FINE if equal else Exit.FOUND


def debug(
    function: Callable[..., Any],
    *args: Any,
    level: str = "loops",
    commands: Sequence[str] = (),
    train: bool = False,
    dynamic: bool = False,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    **kwargs: Any,
) -> bool:
    """Run what is compiled of a function step by step, with a shell before the first step and where it stops.

    Args:
        function: A function or module; each of its graphs is run, in order, and what is between them in eager.
        *args: What it is called with.
        level: Whose interpreter runs the graphs: a key of `DEBUG_LEVELS`.
        commands: Of the shell, done before any is read, such as `("break softmax", "continue")`.
        train: Take gradients of the results' sum: backward graphs are stepped through, too.
        dynamic: All sizes are symbols.
        stdin: Where commands are read, `sys.stdin` by default; where it ends, the program runs on to its end.
        stdout: Where the shell writes, `sys.stdout` by default.
        **kwargs: As for `args`.

    Returns:
        Whether every graph did what it does in eager; True where the shell was left before.

    Raises:
        InvalidArgumentError: `options.value`: there is no such level.
    """
    given: list[Arguments] = [(args, kwargs)]
    program = Program(getattr(function, "__name__", type(function).__name__), function, lambda: given)
    return _debugged(program, level, commands, train=train, dynamic=dynamic, stdin=stdin, stdout=stdout)


def stepped(case: Case, level: str, watch: Watch) -> tuple[Callable[..., Any], str]:
    """Return a graph as a function that a level's interpreter runs, telling `watch` of each step, and its text.

    Args:
        case: The graph, with what it is compiled for.
        level: A key of `DEBUG_LEVELS`.
        watch: Called right after each step.
    """
    stages = intarsia.default_pipeline()
    until = Pipeline(stages.until(DEBUG_LEVELS[level]).stages if level != "torch" else ())
    rest = Pipeline(stages.stages[len(until.stages) :])
    value: Any = case.captured()
    plans: tuple[Any, ...] = ()
    with torch.set_grad_enabled(case.train):
        for stage in until.stages:
            value, plans = stage(value)
    graphs = value.graphs if isinstance(value, Partition) else (value,)
    if level == "tiles":
        texts = [intarsia_scheduler.Scheduled(plan, g.launches).text for plan, g in zip(plans, graphs, strict=True)]
    else:
        texts = [print_value(graph) for graph in graphs]
    return meaning(value, plans, rest, watch), "\n".join(texts)


def _debugged(
    program: Program,
    level: str,
    commands: Sequence[str],
    *,
    train: bool,
    dynamic: bool,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
) -> bool:
    one_of("level", level, tuple(DEBUG_LEVELS))
    shell = Shell(stdin or sys.stdin, stdout or sys.stdout, commands)
    cases, equal = cases_of(program, train=train, dynamic=dynamic), True
    if not cases:
        raise InvalidArgumentError(
            f"{program.name} has no graph to step through",
            code="command.debug",
            hints=("`intarsia explain` says why nothing of it was captured",),
        )
    for number, case in enumerate(cases, 1):
        run, text = stepped(case, level, shell.step)
        names = [node.name for node in case.graph_module.graph.find_nodes(op="placeholder")]
        try:
            shell.begins(f"graph {number} of {len(cases)}, {level}", text, dict(zip(names, case.inputs, strict=True)))
            wrong = case.differences(case.expected(), run)
        except Left:
            return equal
        shell.ends(wrong)
        equal = equal and not wrong
    return equal
