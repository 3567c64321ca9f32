"""Around a compiled graph: the hook off while it runs, and back to eager when it faults."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from intarsia_dispatch.config import CompiledGraph
from intarsia_dispatch.policy import ErrorPolicy
from intarsia_dispatch.random_state import restore_random_state, save_random_state
from intarsia_dispatch.reports import FallbackWarning, compilers_fault
from intarsia_framehook import Unhooked
from intarsia_ir.errors import InternalError, RuntimeFault
from intarsia_ir.where import warn_user

__all__ = ["graph_caller", "or_eager"]


def graph_caller(
    graph: CompiledGraph,
    on_fault: Callable[[RuntimeFault], None],
    on_return: Callable[[RuntimeFault], None],
    undo: Callable[[], None] | None = None,
    *,
    hidden: bool = False,
) -> Unhooked:
    """Return what replacement bytecode calls for a graph.

    When the graph raises `RuntimeFault`, the random generators go back to where they were before it, and the frame
    hook runs the original of the frame that made the call, with the same arguments, in eager. Any other exception is
    the program's own and passes unchanged, as does what a graph raises that exchanges data with other processes. When
    the original returns, the fault was the compiler's, unless the program as captured raises as well: then a handler of
    the program caught it.

    Args:
        graph: The compiled graph.
        on_fault: Told before the original runs. It must not lead to a code object: the caller becomes a constant of
            one, and the collector doesn't look into those. The same goes for `on_return`.
        on_return: Told after the original returned where the fault was the compiler's. What it raises is raised.
        undo: Puts back what the caller did before the call, before the original runs.
        hidden: Whether modes of torch functions are on, which have been asked while it was captured.
    """

    def bail_out(error: Exception, replaced: bool) -> bool | Callable[[], None]:
        if not (replaced and isinstance(error, RuntimeFault)):
            return False
        on_fault(error)
        if undo is not None:
            undo()
        expected = graph.raises is not None and error.inputs is not None and _raises(graph.raises, error.inputs)
        return expected or functools.partial(on_return, error)

    run = _run_of(graph)
    return Unhooked(_hidden_from_modes(run) if hidden else run, bail_out)


def or_eager(
    graph: CompiledGraph, eager: Callable[..., Any], *, policy: ErrorPolicy, count: Callable[..., None]
) -> Callable[..., Any]:
    """Return a function that runs a graph compiled and, where that faults, in eager: for another compiler's front end.

    Args:
        graph: The compiled graph.
        eager: Runs the same graph as it was captured, which raises the program's own error.
        policy: Whether the fault is raised when `eager` returns after it, or warned of once.
        count: Told `fallbacks=1` at each fault.
    """
    run = _run_of(graph)
    warned = False

    def call(*inputs: Any) -> Any:
        nonlocal warned
        try:
            return run(*inputs)
        except RuntimeFault as error:
            fault = error
        count(fallbacks=1)
        # nothing of the graph is visible yet
        try:
            results = eager(*inputs)
            named = compilers_fault(fault)
            if policy.raises(named):
                raise named from fault
            if not warned:
                warned = True
                warn_user(f"a graph runs in eager: {named}", FallbackWarning)
            return results
        finally:
            del fault  # its traceback holds this frame

    return call


def _hidden_from_modes(run: Callable[..., Any]) -> Callable[..., Any]:
    def run_hidden(*inputs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return run(*inputs)

    return run_hidden


def _raises(raises: Callable[..., bool], inputs: Sequence[Any]) -> bool:
    """Ask whether the program raises for the inputs of a fault."""
    state = save_random_state()
    try:
        return raises(*inputs)
    finally:
        restore_random_state(state)


def _run_of(graph: CompiledGraph) -> Callable[..., Any]:
    """Return what runs a graph, so that a fault leaves no trace; one that can't be so raises what caused the fault."""
    if graph.communicates:
        return _raising_causes(graph.run)
    return _restoring(graph.run) if graph.draws_random else graph.run


def _raising_causes(run: Callable[..., Any]) -> Callable[..., Any]:
    def run_once(*inputs: Any) -> Any:
        try:
            return run(*inputs)
        except RuntimeFault as fault:
            cause = fault.__cause__
            if cause is None:
                raise InternalError(
                    f"a graph that exchanges data with other processes faulted: {fault}", code=fault.code
                ) from fault
        raise cause

    return run_once


def _restoring(run: Callable[..., Any]) -> Callable[..., Any]:
    def run_restoring(*inputs: Any) -> Any:
        state = save_random_state()
        try:
            return run(*inputs)
        except RuntimeFault:
            restore_random_state(state)
            raise

    return run_restoring
