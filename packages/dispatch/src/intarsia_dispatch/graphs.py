"""Around a compiled graph: the hook off while it runs, and back to eager when it faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from intarsia_dispatch.config import CompiledGraph
from intarsia_dispatch.random_state import restore_random_state, save_random_state
from intarsia_framehook import Unhooked
from intarsia_ir.errors import RuntimeFault

__all__ = ["graph_caller"]


def graph_caller(graph: CompiledGraph, on_fault: Callable[[RuntimeFault], None]) -> Unhooked:
    """Return what replacement bytecode calls for a graph.

    When the graph raises `RuntimeFault`, the random generators go back to where they were before it, and the frame
    hook runs the original of the frame that made the call, with the same arguments, in eager. Any other exception is
    the program's own and passes unchanged.

    Args:
        graph: The compiled graph.
        on_fault: Told before the original runs. It must not lead to a code object: the caller becomes a constant of
            one, and the collector doesn't look into those.
    """

    def bail_out(error: Exception, replaced: bool) -> bool:
        if not (replaced and isinstance(error, RuntimeFault)):
            return False
        on_fault(error)
        return True

    return Unhooked(_restoring(graph.run) if graph.draws_random else graph.run, bail_out)


def _restoring(run: Callable[..., Any]) -> Callable[..., Any]:
    def run_restoring(*inputs: Any) -> Any:
        state = save_random_state()
        try:
            return run(*inputs)
        except RuntimeFault:
            restore_random_state(state)
            raise

    return run_restoring
