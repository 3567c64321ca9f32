"""The entry point behind `torch.compile(model, backend="intarsia")`: torch's front end, our back half."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch.fx as fx

import intarsia_runtime
from intarsia._backends import graph_compiler
from intarsia._options import Options
from intarsia._session import COMPILE_LOCK, COUNTERS
from intarsia_dispatch import CompiledGraph, ErrorPolicy, or_eager
from intarsia_ir.errors import InvalidArgumentError
from intarsia_ir.interrupts import held_back
from intarsia_ir.records import Signature
from intarsia_ir.torch import communicates
from intarsia_ir.where import warn_user
from intarsia_runtime.report import GraphReport
from intarsia_shapes import adopted

__all__ = ["torch_backend"]


def torch_backend(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that torch.compile's front end captured.

    Args:
        gm: Torch-level graph with lifted inputs.
        example_inputs: One tensor per placeholder.
        mode: As in `intarsia.compile`.
        options: As in `intarsia.compile`.

    Raises:
        Exception: The graph can't be compiled and `options["on_error"]` is `"raise"`.
    """
    parsed = Options.parse(options, intarsia_runtime.mode_options(mode))
    policy = ErrorPolicy(parsed.on_error)
    if parsed.freezing:
        raise InvalidArgumentError("freezing needs guards of intarsia.compile's front end", code="options.value")
    # what passes ask of sizes belongs to another front end's environment, where only they can ask it
    cold = replace(parsed, warm_start=False)
    compile_one, report = graph_compiler("auto", None, cold, COUNTERS, policy), GraphReport()
    try:
        with COMPILE_LOCK, held_back():
            inputs, give_back = adopted(gm, example_inputs)
            run = compile_one(gm, inputs, Signature(), report)
            give_back()
    except Exception as error:
        if policy.raises(error):
            raise
        COUNTERS.add(fallbacks=1)
        warn_user(f"a graph runs in eager instead of compiled: {error}", RuntimeWarning)
        return gm.forward
    COUNTERS.add(graphs=1)
    graph = CompiledGraph(run, draws_random=report.draws_random, communicates=communicates(gm))
    return or_eager(graph, gm.forward, policy=policy, count=COUNTERS.add)
