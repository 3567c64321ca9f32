"""Around a compiled graph: the hook off while it runs, and back to eager when it faults."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from intarsia_dispatch.config import CompiledGraph
from intarsia_dispatch.random_state import restore_random_state, save_random_state
from intarsia_framehook import Unhooked
from intarsia_ir.errors import RuntimeFault

__all__ = ["graph_caller"]


def graph_caller(
    graph: CompiledGraph, on_fault: Callable[[RuntimeFault], None], on_return: Callable[[RuntimeFault], None]
) -> Unhooked:
    """Return what replacement bytecode calls for a graph.

    When the graph raises `RuntimeFault`, the random generators go back to where they were before it, and the frame
    hook runs the original of the frame that made the call, with the same arguments, in eager. Any other exception is
    the program's own and passes unchanged. When the original returns, the fault was the compiler's, unless the program
    as captured raises as well: then a handler of the program caught it.

    Args:
        graph: The compiled graph.
        on_fault: Told before the original runs. It must not lead to a code object: the caller becomes a constant of
            one, and the collector doesn't look into those. The same goes for `on_return`.
        on_return: Told after the original returned where the fault was the compiler's. What it raises is raised.
    """

    def bail_out(error: Exception, replaced: bool) -> bool | Callable[[], None]:
        if not (replaced and isinstance(error, RuntimeFault)):
            return False
        on_fault(error)
        expected = graph.raises is not None and error.inputs is not None and _raises(graph.raises, error.inputs)
        return expected or functools.partial(on_return, error)

    return Unhooked(_restoring(graph.run) if graph.draws_random else graph.run, bail_out)


def _raises(raises: Callable[..., bool], inputs: Sequence[Any]) -> bool:
    """Ask whether the program raises for the inputs of a fault."""
    state = save_random_state()
    try:
        return raises(*inputs)
    finally:
        restore_random_state(state)


def _restoring(run: Callable[..., Any]) -> Callable[..., Any]:
    def run_restoring(*inputs: Any) -> Any:
        state = save_random_state()
        try:
            return run(*inputs)
        except RuntimeFault:
            restore_random_state(state)
            raise

    return run_restoring
