"""What functions at points compute, where that is simple: see `intarsia_ir.torch.over_points`."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx
import torch.utils._pytree as pytree

from intarsia_ir.torch import Transform
from intarsia_rewrites._draft import copy_graph
from intarsia_rewrites._rules import tensor_of

__all__ = ["addend_at_points", "at_points", "is_causal"]

_PLACE = 4  # batch, head, query, key
_ADD = {torch.add, operator.add, operator.iadd, "add"}
_SUB = {torch.sub, torch.subtract, operator.sub, operator.isub, "sub"}
_GE = {torch.ge, torch.greater_equal, operator.ge, "ge"}
_LE = {torch.le, torch.less_equal, operator.le, "le"}


def at_points(node: Any) -> fx.Node | None:
    """Return the call of a function over points whose result a node is; None where it isn't one."""
    if not isinstance(node, fx.Node) or node.target is not operator.getitem or node.args[1:] != (0,):
        return None
    call = node.args[0]
    is_over_points = (
        isinstance(call, fx.Node) and isinstance(call.target, Transform) and call.target.name == "over_points"
    )
    return call if is_over_points else None  # type: ignore[return-value]  # just checked


def is_causal(call: fx.Node) -> bool:
    """Tell whether a function keeps the keys up to the query's own place, and nothing else."""
    output, inputs = _result(call.target), _inputs(call.target)
    query, key = inputs[_PLACE - 2 : _PLACE]
    kept = (_GE, (query, key)), (_LE, (key, query))
    return len(_passed(call.target)) == _PLACE and any(
        output.target in names and output.args == operands and not output.kwargs for names, operands in kept
    )


def addend_at_points(call: fx.Node) -> Transform | None:
    """Return the function of the place that another one adds to scores; None where it does something else.

    Before: `score_mod(score, b, h, i, j) = score + f(b, h, i, j)`. After: `f`.
    """
    transform = call.target
    if len(_passed(transform)) != _PLACE + 1:
        return None
    output, score, scores = _result(transform), _inputs(transform)[0], tensor_of(call.args[0])
    added, taken = output.target in _ADD, output.target in _SUB
    if scores is None or not (added or taken) or len(output.args) != 2 or output.kwargs or len(score.users) != 1:
        return None
    first, second = output.args
    addend = second if first is score else first if added and second is score else None
    if not isinstance(addend, fx.Node) or addend is score:
        return None
    return _without_score(transform, negated=scores.dtype if taken else None)


def _without_score(transform: Any, *, negated: torch.dtype | None) -> Transform:
    """Return the transform of the addend alone; `negated`: of what it is in this type, with the other sign."""
    graph = copy_graph(transform.program.graph)
    score, output, result = next(iter(graph.nodes)), graph.output_node(), _made(graph)
    (addend,) = [node for node in result.args if node is not score]
    if negated is not None:
        with graph.inserting_before(output):
            wide = graph.call_method("to", (addend, negated))  # which holds whole numbers as well
            addend = graph.call_function(torch.neg, (wide,))
        wide.meta, addend.meta = dict(result.meta), dict(result.meta)
    output.args = ((addend,),)
    graph.erase_node(result)
    graph.erase_node(score)
    program = fx.GraphModule(transform.program, graph)
    numbers, structure = pytree.tree_flatten((tuple(range(_PLACE)), {}))
    return Transform("over_points", program, {}, numbers, structure, (0,), transform.result_structure)


def _inputs(transform: Any) -> list[fx.Node]:
    placeholders: list[fx.Node] = transform.program.graph.find_nodes(op="placeholder")
    return placeholders


def _passed(transform: Any) -> list[fx.Node]:
    """Return the inputs that the transform passes: the score if there is one, and the place."""
    return _inputs(transform)[: transform.n_passed]


def _result(transform: Any) -> fx.Node:
    return _made(transform.program.graph)


def _made(graph: fx.Graph) -> fx.Node:
    """Return the only result of a graph."""
    results: Any = graph.output_node().args[0]
    (result,) = results
    return result  # type: ignore[no-any-return]
