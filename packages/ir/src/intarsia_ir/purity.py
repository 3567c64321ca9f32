"""Whether a step left the graphs that it was given as they were: their lines before and after."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.errors import InternalError, InvalidArgumentError

__all__ = ["check_unchanged", "lines_of"]


def lines_of(value: Any) -> tuple[tuple[Any, ...], ...]:
    """Return what must stay of a value: a row for each node of its graphs and each tensor that they hold.

    Args:
        value: A GraphModule, a value of a level, or a partition of such; what has no graph has no lines.

    Returns:
        Rows that begin with a text to show. The rest is compared only: the value of a node by identity, its origins,
        how often a tensor was written.
    """
    if isinstance(value, fx.GraphModule):
        nodes = [(str(n.format_node()), id(_value(n)), meta.origins(n)) for n in value.graph.nodes]
        held = [*value.named_parameters(), *value.named_buffers()]
        return (*nodes, *[(f"the tensor {name}", id(t), _n_writes(t)) for name, t in held])
    graphs = getattr(value, "graphs", None) or (getattr(value, "graph_module", None),)
    return tuple(row for graph in graphs if graph is not None for row in lines_of(graph))


def check_unchanged(before: tuple[tuple[Any, ...], ...], value: Any, *, ours: bool = False) -> None:
    """Check that a value still has the lines that it had.

    Args:
        before: `lines_of` the value, when it was given to a step.
        value: The value, after the step.
        ours: Whether the step is the compiler's own.

    Raises:
        InvalidArgumentError: `pipeline.impure`: it was changed; the message shows the first line that was. An
            InternalError for a step of ours.

    Example:
        >>> gm = fx.symbolic_trace(lambda x: torch.sin(x))
        >>> before = lines_of(gm)
        >>> gm.graph.find_nodes(op="call_function", target=torch.sin)[0].target = torch.cos
        >>> check_unchanged(before, gm)
        Traceback (most recent call last):
        ...
        intarsia_ir.errors.InvalidArgumentError: the graph that was given was changed: it had ...
    """
    after = lines_of(value)
    if before == after:
        return
    pairs = zip((*before, ("nothing",)), (*after, ("nothing",)), strict=False)
    old, new = next(pair for pair in pairs if pair[0] != pair[1])
    now = new[0] if new[0] != old[0] else "the same, but for its value, its origins or its numbers"
    kind = InternalError if ours else InvalidArgumentError
    raise kind(
        f"the graph that was given was changed: it had\n    {old[0]}\nand has\n    {now}\n",
        code="pipeline.impure",
        hints=("edit a copy: new = torch.fx.Graph(); new.output(new.graph_copy(gm.graph, {}))",),
    )


def _value(node: fx.Node) -> Any:
    return meta.value(node) if meta.has_value(node) else None


def _n_writes(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
