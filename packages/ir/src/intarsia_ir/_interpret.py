"""Running an FX graph node by node, eagerly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir._fx import attribute, placeholders
from intarsia_ir._print import Dialect, lines_of_nodes
from intarsia_ir.errors import InternalError, InvalidArgumentError
from intarsia_ir.stepping import Step, Watch

__all__ = ["noting", "run_graph"]


Note = Callable[[fx.Node, Any, tuple[Any, ...]], None]


def run_graph(gm: fx.GraphModule, args: Sequence[Any], *, note: Note | None = None) -> tuple[Any, ...]:
    """Run every node of `gm` in order and return the flat results.

    Args:
        gm: The program.
        args: One value per placeholder.
        note: Called after each computing node with the node, its value and the positional arguments of the call.

    Raises:
        InvalidArgumentError: The number of `args` isn't that of the placeholders.
    """
    names = [node.name for node in placeholders(gm.graph)]
    if len(names) != len(args):
        raise InvalidArgumentError(
            f"the graph takes {len(names)} inputs ({', '.join(names)}), not {len(args)}", code="ir.interpret"
        )
    inputs = iter(args)
    values: dict[fx.Node, Any] = {}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(inputs)
        elif node.op == "output":
            results = fx.node.map_arg(node.args[0], values.__getitem__)
            return tuple(results) if isinstance(results, (tuple, list)) else (results,)
        else:
            call_args = fx.node.map_arg(node.args, values.__getitem__)
            kwargs = fx.node.map_arg(node.kwargs, values.__getitem__)
            values[node] = _call(gm, node, call_args, kwargs)
            if note is not None:
                note(node, values[node], call_args)
    raise InternalError("the graph has no output node", code="ir.interpret")


def noting(gm: fx.GraphModule, args: Sequence[Any], dialect: Dialect, watch: Watch | None) -> Note:
    """Return what tells `watch` of each node of a graph that is run on `args`."""
    if watch is None:
        return lambda node, value, call_args: None
    values = dict(zip([node.name for node in placeholders(gm.graph)], args, strict=False))
    lines = lines_of_nodes(gm, dialect)

    def note(node: fx.Node, value: Any, call_args: tuple[Any, ...]) -> None:
        values[node.name] = value
        watch(Step(lines[node], {node.name: value}, values, meta.origins(node)))

    return note


def _call(gm: fx.GraphModule, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if node.op == "get_attr":
        return attribute(gm, str(node.target))
    if node.op == "call_method":
        self_value, *rest = args
        return getattr(self_value, str(node.target))(*rest, **kwargs)
    function: Any = attribute(gm, str(node.target)) if node.op == "call_module" else node.target
    return function(*args, **kwargs)
