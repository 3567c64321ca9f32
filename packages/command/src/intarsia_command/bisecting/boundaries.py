"""What a program means between two stages: each level's value as a function over the inputs of its graph.

Above the kernels' source, that is the interpreter of the level, which no later stage has a part in: the first boundary
whose meaning is wrong is behind the stage at fault.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import intarsia_scheduler
from intarsia.levels import (
    Captured,
    Emitted,
    Functional,
    Half,
    Launched,
    Linked,
    Partition,
    Recorded,
    dialect_of,
    verify,
)
from intarsia_autodiff import SaveAll, partition
from intarsia_functionalizer import functionalize
from intarsia_ir.errors import InternalError
from intarsia_ir.pipeline import Pipeline
from intarsia_ir.stepping import Watch
from intarsia_loops.launch_text import launches_lines
from intarsia_loops.tiles import interpret as interpret_tiles
from intarsia_runtime import assembled

__all__ = ["meaning"]

Run = Callable[..., Any]


def meaning(value: Any, plans: Sequence[Any], rest: Pipeline, watch: Watch | None = None) -> Run:
    """Return what a value computes.

    Args:
        value: What a stage gave.
        plans: What the stage decided.
        rest: The stages after it; only what has no interpreter goes through these.
        watch: Told of each step of the interpreters.

    Raises:
        VerifyError: The value breaks the rules of its dialect.
        InternalError: `bisect.launches`: launches aren't what their plan says.
    """
    graphs = value.graphs if isinstance(value, Partition) else (value,)
    for graph in graphs:
        verify(graph)
    match graphs[0]:
        case Captured():
            return functools.partial(dialect_of(Captured).interpret, value.graph_module, watch=watch)
        case Half() | Functional() if not isinstance(value, Partition):
            return _assembled(_split(value), watch)
        case Recorded() if not isinstance(value, Partition):
            # writes stay in the graph, and joint graphs have two parts: both are what the next pass takes apart
            return _assembled(_split(functionalize(value, check=False)), watch)
        case Launched():
            return assembled(Partition(*_linked(value, plans, watch), value.halves))
        case Emitted() | Linked():
            return assembled(rest.run(value))
    return _assembled(value, watch)


def _split(value: Functional) -> Partition[Half]:
    if value.signature.joint is not None:
        return partition(value, SaveAll(), check=False).partition
    return Partition(Half(value.graph_module, value.signature, value.facts, value.guards))


def _assembled(value: Partition[Any], watch: Watch | None) -> Run:
    return assembled(value.map(functools.partial(_interpreted, watch=watch)))


def _interpreted(graph: Any, watch: Watch | None) -> Linked:
    contract = getattr(graph, "contract", graph)
    run = functools.partial(dialect_of(type(graph)).interpret, graph.graph_module, watch=watch)
    return Linked(run, contract.signature, contract.guards)


def _linked(value: Partition[Launched], plans: Sequence[Any], watch: Watch | None) -> tuple[Linked, tuple[Linked, ...]]:
    forward, *backwards = [_tiled(*pair, watch) for pair in zip(value.graphs, plans, strict=True)]
    return forward, tuple(backwards)


def _tiled(graph: Launched, plan: intarsia_scheduler.SchedulePlan, watch: Watch | None) -> Linked:
    said = intarsia_scheduler.arrange(graph.graph_module, plan)
    if list(launches_lines(said)) != list(launches_lines(graph.launches)):
        raise InternalError("the launches aren't what their plan says", code="bisect.launches")
    tiles = intarsia_scheduler.apply(graph.graph_module, plan)
    return Linked(
        functools.partial(interpret_tiles, tiles, watch=watch), graph.contract.signature, graph.contract.guards
    )
