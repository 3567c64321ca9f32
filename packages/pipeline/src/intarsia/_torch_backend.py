"""The entry point behind `torch.compile(model, backend="intarsia")`: torch's front end, our back half."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.fx as fx

from intarsia._backends import graph_compiler
from intarsia._compile import MODES
from intarsia._options import Options, one_of
from intarsia._session import COMPILE_LOCK, COUNTERS
from intarsia_ir.errors import RuntimeFault
from intarsia_ir.records import Signature

__all__ = ["torch_backend"]


def torch_backend(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str = "default",
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
    one_of("mode", mode, MODES)
    parsed = Options.parse(options)
    compile_one = graph_compiler("auto", None, parsed, COUNTERS)
    try:
        with COMPILE_LOCK:
            run = compile_one(gm, example_inputs, Signature())
    except Exception as error:
        if parsed.on_error == "raise":
            raise
        COUNTERS.add(fallbacks=1)
        warnings.warn(f"a graph runs in eager instead of compiled: {error}", RuntimeWarning, stacklevel=2)
        return gm.forward
    COUNTERS.add(graphs=1)

    def run_or_explain(*inputs: Any) -> Any:
        try:
            return run(*inputs)
        except RuntimeFault:
            COUNTERS.add(fallbacks=1)
            # nothing of the graph is visible yet: eager raises its own error, with its own partial effects
            return gm.forward(*inputs)

    return run_or_explain
