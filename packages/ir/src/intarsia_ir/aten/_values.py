"""Rule A12: computing every value again from the op and comparing it with the one the node carries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses import FakeTensor, FakeTensorMode
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from intarsia_ir import meta
from intarsia_ir._fx import results
from intarsia_ir._rules import Findings
from intarsia_ir.aten.fake import quiet_fake_mode
from intarsia_ir.errors import NeedsFact
from intarsia_ir.higher_order import HigherOrderOp, Layout

__all__ = ["check_values"]

# results whose shape depends on data, and questions that the recorded size facts don't answer
_NOT_KNOWN = (DynamicOutputShapeException, DataDependentOutputException, UnsupportedOperatorException, NeedsFact)


def check_values(findings: Findings, rule: str) -> None:
    """Note every call whose value differs from what its op gives for the values of its arguments.

    Values made by one fake mode are needed; a graph without tensors has nothing to compare.
    """
    graph = findings.gm.graph
    mode = _mode_of(graph)
    if mode is None:
        return
    for node in graph.nodes:
        if node.op == "call_function":
            _check(findings, rule, node, mode)


def _mode_of(graph: fx.Graph) -> FakeTensorMode | None:
    for node in graph.nodes:
        value = meta.value(node) if meta.has_value(node) else None
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return None


def _check(findings: Findings, rule: str, node: fx.Node, mode: FakeTensorMode) -> None:
    # every value is copied: an op that writes or changes metadata must not reach what the node carries
    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)

    target: Any = node.target
    if isinstance(target, HigherOrderOp):
        _check_results(findings, rule, node, target, mode)
        return
    with mode, torch.no_grad(), quiet_fake_mode():
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: fx.node.map_aggregate(meta.value(n), copy))
        try:
            result = target(*args, **kwargs)
        except _NOT_KNOWN:
            return
        except Exception as error:
            findings.add(rule, node, f"raises {type(error).__name__} for the values of its arguments: {error}")
            return
    message = _difference(result, meta.value(node))
    if message:
        findings.add(rule, node, message)


def _check_results(findings: Findings, rule: str, node: fx.Node, op: HigherOrderOp, mode: Any) -> None:
    """A call with subgraphs gives what its graphs give; what these are is checked in each."""
    operands = [meta.value(x) if isinstance(x, fx.Node) else x for x in node.args]
    for number in op.row.alike:
        given = tuple([meta.value(r) if isinstance(r, fx.Node) else r for r in results(op.programs[number].graph)])
        if other := next((x for x in given if not isinstance(x, torch.Tensor)), None):
            findings.add(rule, node, f"its graph {op.row.graphs[number]} gives {other!r}, no tensor")
            continue
        with mode, quiet_fake_mode():
            expected = [_like(layout) for layout in op.row.layouts(op.options, operands, given)]
        message = _difference(expected, meta.value(node))
        if message:
            findings.add(rule, node, f"its graph {op.row.graphs[number]} {message}")


def _like(layout: Layout) -> torch.Tensor:
    return torch.empty_strided(tuple(layout.shape), tuple(layout.strides), dtype=layout.dtype, device=layout.device)


def _difference(now: Any, noted: Any) -> str:
    """Return how two values differ, "" when they don't."""
    if isinstance(now, (tuple, list)) and isinstance(noted, (tuple, list)):
        if len(now) != len(noted):
            return f"gives {len(now)} results, the value has {len(noted)}"
        return next((d for d in map(_difference, now, noted) if d), "")
    if not isinstance(now, torch.Tensor) or not isinstance(noted, torch.Tensor):
        return "" if type(now) is type(noted) else f"gives {now!r}, the value is {noted!r}"
    for what in ("dtype", "device"):
        if getattr(now, what) != getattr(noted, what):
            return f"gives {what} {getattr(now, what)}, the value has {getattr(noted, what)}"
    if _plain(now.shape) != _plain(noted.shape):
        return f"gives shape {now.shape}, the value has {noted.shape}"
    if _strides(now) != _strides(noted):
        return f"gives strides {now.stride()}, the value has {noted.stride()}"
    return ""


def _strides(value: torch.Tensor) -> tuple[Any, ...]:
    """Strides that matter: those of dimensions with more than one element."""
    sizes = _plain(value.shape)
    if 0 in sizes:
        return ()
    return tuple(stride for size, stride in zip(sizes, _plain(value.stride())) if size != 1)


def _plain(sizes: Sequence[Any]) -> tuple[Any, ...]:
    """Symbolic sizes as expressions: comparing them as sizes could record a guard."""
    return tuple(size if type(size) is int else size.node.expr for size in sizes)
