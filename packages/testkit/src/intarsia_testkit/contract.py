"""The contract of a pass, checked on random programs in one call: what STYLE and the pipeline ask of every pass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch.fx as fx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intarsia_ir import aten
from intarsia_ir import torch as torch_dialect
from intarsia_ir.purity import check_unchanged, lines_of
from intarsia_testkit.aten_programs import aten_programs
from intarsia_testkit.differential import Dialect, check_pass
from intarsia_testkit.torch_programs import torch_programs

__all__ = ["check_contract"]

_LEVELS: Mapping[str, tuple[Callable[[], st.SearchStrategy[Any]], Dialect, Mapping[str, Any]]] = {
    "aten": (aten_programs, aten, {"functional": True, "values": True}),
    "torch": (torch_programs, torch_dialect, {}),
}


def check_contract(
    pass_: Callable[..., Any],
    level: str = "aten",
    *,
    programs: st.SearchStrategy[Any] | None = None,
    gives: Dialect | None = None,
    max_examples: int = 50,
    **check: Any,
) -> None:
    """Check a pass on random programs: all that `check_pass` does, and what a pipeline relies on.

    For each program: the given graph is left as it was, values on its nodes included; the result verifies, means the
    same and knows the lines of the given one; a second run gives the same text. A pass that takes `fuel` does all of
    this with any, and with none it gives the program as it is.

    Args:
        pass_: From a GraphModule to one, or to a value with a `graph_module`.
        level: What it takes: `"aten"` (functional ATen graphs) or `"torch"` (graphs of torch calls).
        programs: Other programs to try, with `graph_module` and `inputs(seed)`, such as a strategy of the testkit with
            arguments; None: those of the level.
        gives: Dialect of its result; None: the same.
        max_examples: Number of programs.
        check: Further arguments of `check_pass`, such as `rtol`.

    Raises:
        AssertionError: The pass breaks the contract; the message shows the smallest program that was found.
        InvalidArgumentError: It changed the given graph.

    Example:
        >>> from intarsia_ir._fx import copy_graph, wrap
        >>> check_contract(lambda gm: wrap(gm, copy_graph(gm.graph)[0]), max_examples=3)
    """
    strategy, takes, verify = _LEVELS[level]
    check = {"dialect_after": gives, "verify": verify if gives is None else None, **check}
    counts = "fuel" in inspect.signature(pass_).parameters

    @settings(
        derandomize=True, deadline=None, max_examples=max_examples, database=None, suppress_health_check=[*HealthCheck]
    )
    @given(programs if programs is not None else strategy())
    def run(program: Any) -> None:
        given_graph, inputs = program.graph_module, program.inputs(1)
        before, text = lines_of(given_graph), takes.print_ir(given_graph)
        made = check_pass(pass_, given_graph, inputs, takes, **check)
        check_unchanged(before, given_graph)
        shown = _text(made, gives or takes)
        assert _text(pass_(given_graph), gives or takes) == shown, f"a second run gives something else than\n{shown}"
        if counts:
            for fuel in (0, 1, 3):
                limited = check_pass(lambda gm: pass_(gm, fuel=fuel), given_graph, inputs, takes, **check)  # noqa: B023
                unspent = _text(limited, takes) if gives is None and fuel == 0 else text
                assert unspent == text, f"without fuel, the pass still gives\n{unspent}\nof\n{text}"

    run()


def _text(made: Any, dialect: Dialect) -> str:
    graph: fx.GraphModule = getattr(made, "graph_module", made)
    return dialect.print_ir(graph)
