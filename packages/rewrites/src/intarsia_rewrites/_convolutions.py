"""Convolutions that a target computes by its matrix units: what the rewrites of their layout and of their bias ask."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from intarsia_ir import meta
from intarsia_ir.records import Target

__all__ = ["CONVOLUTION", "OPERANDS", "convolutions", "operands"]

CONVOLUTION: Any = torch.ops.aten.convolution.default
#: A convolution or its backward pass -> its operands that share one layout, by position.
OPERANDS = MappingProxyType({CONVOLUTION: (0, 1), torch.ops.aten.convolution_backward.default: (0, 1, 2)})


def convolutions(graph: fx.Graph, target: Target) -> list[fx.Node]:
    """Return the convolutions on a target's device, and their backward passes; none where it has no matrix units."""
    if not target.machine.matrix_gflop_per_s:
        return []
    return [node for node in graph.nodes if _is_convolution(node, target.device)]


def operands(node: fx.Node) -> list[fx.Node]:
    """Return the operands of a convolution that share one layout: tensors."""
    return [node.args[k] for k in OPERANDS[node.target]]  # type: ignore[index,misc]


def _is_convolution(node: fx.Node, device: str) -> bool:
    if node.op != "call_function" or node.target not in OPERANDS:
        return False
    return all(isinstance(v, FakeTensor) and v.device.type == device for v in map(meta.value, operands(node)))
