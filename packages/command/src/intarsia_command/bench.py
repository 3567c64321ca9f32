"""`intarsia bench`: a function in eager and compiled, in turn, so that both meet the same load."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any

import torch
import torch.utils._pytree as pytree
import typer
from rich.console import Console
from rich.table import Table

import intarsia
from intarsia_command.exits import Exit, of_the_program
from intarsia_command.explaining import Backend, Dynamic, Target, Train, keywords_of
from intarsia_command.outcomes import go_back
from intarsia_command.programs import load
from intarsia_ir.errors import InvalidArgumentError

__all__ = ["bench"]


def bench(
    target: Target,
    rounds: Annotated[int, typer.Option(help="Calls of each, in turn, after the first.")] = 20,
    backend: Backend = "auto",
    dynamic: Dynamic = False,
    train: Train = False,
) -> Exit:
    """Time a function in eager and compiled: first call, then the median and the best of some rounds."""
    if rounds < 1:
        raise InvalidArgumentError(f"--rounds must be at least 1, not {rounds}", code="command.rounds")
    program = load(target)
    compiled = intarsia.compile(program.fresh_function(), **keywords_of(backend, dynamic))
    contestants = {"eager": program.fresh_function(), "intarsia": compiled}
    calls = {name: program.calls()[0] for name in contestants}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    with of_the_program(target), torch.set_grad_enabled(train):
        for _ in range(rounds + 1):
            for name, function in contestants.items():
                times[name].append(_seconds(function, *calls[name], train))
    table = Table("", "first call (ms)", "median (ms)", "best (ms)", "of eager")
    base = statistics.median(times["eager"][1:])
    for name, (first, *rest) in times.items():
        middle = statistics.median(rest)
        figures = (1e3 * first, 1e3 * middle, 1e3 * min(rest))
        table.add_row(name, *[f"{figure:.3f}" for figure in figures], f"{middle / base:.2f}")
    Console(soft_wrap=True).print(table)
    return Exit.FINE


def _seconds(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], train: bool) -> float:
    """Return how long one call takes, with its backward pass; work on a GPU is waited for."""
    start = time.perf_counter()
    results = function(*args, **kwargs)
    if train:
        go_back(pytree.tree_leaves(results))
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start
