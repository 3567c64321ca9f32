"""Calls of torch's higher-order operators, as its front ends write them into graphs: what is recorded of each.

cond, while_loop, scan, map_impl          one call with subgraphs (`intarsia_ir.higher_order`); a map carries nothing
wrap, invoke_subgraph                     the operations of the function, in its place
wrap_with_set_grad_enabled, _autocast     the same, run under what is set
tag_activation_checkpoint, wrap_activation_checkpoint
                                          the same, marked: the backward pass computes them again
auto_functionalized, auto_functionalized_v2
                                          copies of what the operator writes, and then its call
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.fx as fx
from torch._ops import HigherOrderOperator

from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError
from intarsia_recorder._fx import graph_module
from intarsia_recorder.higher_order import call_higher_order
from intarsia_recorder.recorder import Recorder

__all__ = ["call_of_torchs"]

Run = Callable[[fx.GraphModule, Sequence[Any]], Any]
_NONE: Mapping[str, int] = MappingProxyType({})


def call_of_torchs(
    recorder: Recorder, run: Run, op: HigherOrderOperator, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Record a call of one of torch's higher-order operators and return its results.

    Args:
        recorder: Where it goes.
        run: Runs a graph under the recorder, node by node.
        op: The operator.
        args: Operands: graphs, fake tensors, numbers, nested as the operator has them.
        kwargs: The others, by name.

    Raises:
        UnsupportedError: `recorder.higher_order`: nothing is known of the operator, or it carries what is no tensor.
    """
    caller = _Caller(recorder, run)
    function = _CALLS.get(op.name())
    if function is not None:
        return function(caller, *args, **kwargs)
    try:
        return op(*args, **kwargs)
    except NotImplementedError as error:
        raise UnsupportedError(
            f"{op} takes functions as operands", code="recorder.higher_order", where=recorder.where or ()
        ) from error


class _Caller:
    """Records calls."""

    def __init__(self, recorder: Recorder, run: Run) -> None:
        self.recorder, self.run = recorder, run

    def cond(self, predicate: Any, yes: fx.GraphModule, no: fx.GraphModule, operands: Sequence[Any]) -> Any:
        return self.call("cond", (yes, no), (predicate, *operands))

    def while_loop(
        self, condition: fx.GraphModule, body: fx.GraphModule, carried: Sequence[Any], others: Sequence[Any] = ()
    ) -> Any:
        self.refuse_numbers("while_loop", carried)
        return self.call("while_loop", (condition, body), (*carried, *others), {"carried": len(carried)})

    def scan(
        self, body: fx.GraphModule, carried: Sequence[Any], scanned: Sequence[Any], others: Sequence[Any] = ()
    ) -> Any:
        self.refuse_numbers("scan", (*carried, *scanned))
        options = {"carried": len(carried), "scanned": len(scanned)}
        return self.call("scan", (body,), (*carried, *scanned, *others), options)

    def map(self, body: fx.GraphModule, scanned: Sequence[Any], others: Sequence[Any] = ()) -> Any:
        return self.scan(body, (), scanned, others)

    def inline(self, body: fx.GraphModule, *operands: Any, **options: Any) -> Any:
        return self.run(body, operands)

    def invoke(self, body: fx.GraphModule, name: Any, *operands: Any) -> Any:
        return self.run(body, operands)

    def grad_mode(self, enabled: bool, body: fx.GraphModule, *operands: Any) -> Any:
        with torch.set_grad_enabled(enabled):
            return self.run(body, operands)

    def autocast(
        self, device: str, dtype: Any, enabled: bool, cached: Any, body: fx.GraphModule, *operands: Any
    ) -> Any:
        with torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cached):
            return self.run(body, operands)

    def checkpoint(self, body: fx.GraphModule, *operands: Any, **options: Any) -> Any:
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        number = len(self.recorder.graph.nodes)  # no other region of the graph begins behind as many
        for node in body.graph.nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            if meta.region(node) is None:
                meta.set_region(copies[node], "checkpoint", number)
        return self.run(graph_module(body, graph), operands)

    def call(
        self, name: str, programs: Sequence[fx.GraphModule], operands: Sequence[Any], options: Mapping[str, int] = _NONE
    ) -> Sequence[Any]:
        bodies = [lambda *inputs, program=program: _flat(self.run(program, inputs)) for program in programs]
        return call_higher_order(self.recorder, name, bodies, operands, options)

    def refuse_numbers(self, name: str, carried: Sequence[Any]) -> None:
        """Refuse what isn't a tensor where a row has tensors."""
        others = [value for value in carried if not isinstance(value, torch.Tensor)]
        if others:
            raise UnsupportedError(
                f"a {name} carries {others[0]!r}, which is no tensor",
                code="recorder.higher_order",
                where=self.recorder.where or (),
                hints=("carry a tensor of one number",),
            )

    def functionalized(self, op: HigherOrderOperator, *args: Any, **kwargs: Any) -> Any:
        """Run the operator's own account of itself: clones, the call, and what the call wrote."""
        return op.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd](*args, **kwargs)


def _flat(results: Any) -> Sequence[Any]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


_CALLS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "cond": _Caller.cond,
        "while_loop": _Caller.while_loop,
        "scan": _Caller.scan,
        "map_impl": _Caller.map,
        "wrap": _Caller.inline,
        "invoke_subgraph": _Caller.invoke,
        "wrap_with_set_grad_enabled": _Caller.grad_mode,
        "wrap_with_autocast": _Caller.autocast,
        "tag_activation_checkpoint": _Caller.checkpoint,
        "wrap_activation_checkpoint": _Caller.checkpoint,
        "auto_functionalized": lambda caller, *a, **k: caller.functionalized(
            torch.ops.higher_order.auto_functionalized, *a, **k
        ),
        "auto_functionalized_v2": lambda caller, *a, **k: caller.functionalized(
            torch.ops.higher_order.auto_functionalized_v2, *a, **k
        ),
    }
)
