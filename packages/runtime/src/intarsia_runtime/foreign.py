"""Compiling a graph by a function written for torch.compile, with its mistakes told in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.errors import InvalidArgumentError, naming_stage

__all__ = ["compile_by"]


def compile_by(
    backend: Callable[[fx.GraphModule, list[Any]], Any], gm: fx.GraphModule, inputs: Sequence[Any]
) -> Callable[..., Sequence[Any]]:
    """Return the function that a backend makes of a graph, checked.

    Args:
        backend: `(gm, example_inputs) -> callable` over the inputs, which returns the flat results. It is given the
            tensors and parameters of the captured call, as far as they are known; or fake ones, which have symbols for
            sizes, if it says that it takes these: `backend.takes_fakes = True`.
        gm: FX(torch).
        inputs: One real or fake value per placeholder.

    Raises:
        InvalidArgumentError: It returns no callable; later, the callable returns no tuple or list of the right length.
            (That can't be answered by eager: the graph may have written into its inputs.)
        Exception: What the backend itself raises, with a note that names it.

    Example:
        >>> gm = fx.symbolic_trace(lambda x: (x + 1,))
        >>> compile_by(lambda gm, inputs: gm.forward, gm, [1])(2)
        (3,)
    """
    with naming_stage(f"backend {getattr(backend, '__name__', '')}".strip(), ours=False):
        compiled = backend(gm, list(inputs) if getattr(backend, "takes_fakes", False) else _given(gm, inputs))
    if not callable(compiled):
        raise InvalidArgumentError(
            f"the backend returned {compiled!r}, not a function over the inputs of the graph",
            code="backend.function",
            hints=("return gm.forward to run the graph as it is",),
        )
    (results,) = gm.graph.find_nodes(op="output")[0].args
    n = len(results) if isinstance(results, (tuple, list)) else None

    def run(*values: Any) -> Any:
        returned = compiled(*values)
        if n is not None and (not isinstance(returned, (tuple, list)) or len(returned) != n):
            several = isinstance(returned, (tuple, list))
            what = f"{len(returned)} results" if several else f"an object of {type(returned)}"
            raise InvalidArgumentError(
                f"the function that the backend made returned {what}; the graph has {n} in a tuple",
                code="backend.results",
            )
        return returned

    return run


def _given(gm: fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Return what the inputs were in the captured call: the examples themselves where that isn't known."""
    operands = []
    for node, example in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
        real = meta.given(node)
        if isinstance(real, (int, float)) and isinstance(example, torch.Tensor):  # a number that the graph has as one
            real = torch.tensor(real, dtype=example.dtype, device=example.device)
        operands.append(example if real is None else real)
    return operands
