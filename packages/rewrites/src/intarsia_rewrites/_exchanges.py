"""Collectives of FX(aten): which calls begin one, which wait, what they send, and what may pass them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from intarsia_ir import aten, meta
from intarsia_ir.links import Exchange, kind_of
from intarsia_ir.records import Target

__all__ = ["Roofline", "bytes_of", "exchange_of", "is_wait", "must_follow"]


def is_wait(node: fx.Node) -> bool:
    """Tell whether a node waits for a collective.

    One that waits for what a single process sends isn't meant: both stay where they are.
    """
    if _name(node) != "_c10d_functional::wait_tensor":
        return False
    return not any(_name(begun).startswith("intarsia_p2p::") for begun in node.all_input_nodes)


def exchange_of(node: fx.Node, ranks: Callable[[str], int]) -> Exchange | None:
    """Return what a node begins to exchange; None for other nodes.

    Args:
        node: A node of FX(aten).
        ranks: Tells how many processes are in a group of this name.
    """
    kind = kind_of(_name(node))
    if kind is None:
        return None
    group = str(node.args[-1])
    sent = sum(bytes_of(meta.value(operand)) for operand in node.all_input_nodes)
    whole = max(sent, bytes_of(meta.value(node)))
    return Exchange(kind, group, ranks(group), whole)


def _name(node: fx.Node) -> str:
    return node.target._schema.name if isinstance(node.target, OpOverload) else ""


def bytes_of(value: Any) -> int:
    """Return the bytes of the elements of tensors whose sizes are known; others count as none."""
    tensors = [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]
    return sum(x.numel() * x.dtype.itemsize for x in tensors if all(type(size) is int for size in x.shape))


def must_follow(nodes: list[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """Return for each call what must come before it: operands, and what was before it and has an effect too.

    Draws follow draws. Collectives, checks and calls of which nothing is known follow each other, but for waits for
    collectives, which follow what they wait for.
    """
    before: dict[fx.Node, list[fx.Node]] = {}
    drawn: list[fx.Node] = []
    done: list[fx.Node] = []
    for node in nodes:
        effects = aten.node_effects(node)
        before[node] = list(node.all_input_nodes)
        if effects.random or effects.opaque:
            before[node] += drawn
            drawn = [node]
        if effects.opaque or effects.checks or (effects.communicates and not is_wait(node)):
            before[node] += done
            done = [node]
    return before


class Roofline:
    """Microseconds of one call of FX(aten), from its bytes and its operations and a machine's peaks.

    Args:
        target: What the program is compiled for.
    """

    def __init__(self, target: Target) -> None:
        machine = target.machine if target.is_gpu else target.machine.scaled(target.threads)
        self._bytes_per_us = machine.gb_per_s * 1e3
        self._plain = 2 * machine.gflop_per_s * 1e3  # a product and a sum at once
        self._matrix = (machine.matrix_gflop_per_s or 2 * machine.gflop_per_s) * 1e3
        self._launch = machine.launch_us if target.is_gpu else 0.0

    def __call__(self, node: fx.Node) -> float:
        """Return the predicted time; that of a view is 0."""
        if node.op != "call_function" or aten.viewed_nodes(node) or not isinstance(node.target, OpOverload):
            return 0.0
        value = meta.value(node) if meta.has_value(node) else None
        moved = bytes_of(value) + sum(bytes_of(meta.value(x)) for x in node.all_input_nodes if meta.has_value(x))
        return max(moved / self._bytes_per_us, self._computing(node, value)) + (self._launch if moved else 0.0)

    def _computing(self, node: fx.Node, value: Any) -> float:
        assert isinstance(node.target, OpOverload)
        counts = flop_registry.get(node.target.overloadpacket)
        if counts is None:
            return 0.0
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), meta.value)  # type: ignore[misc,arg-type]
        leaves = [x for x in pytree.tree_leaves((args, value)) if isinstance(x, torch.Tensor)]
        if not all(type(size) is int for x in leaves for size in x.shape):
            return 0.0
        half = leaves[0].dtype in (torch.float16, torch.bfloat16)
        return float(counts(*args, **kwargs, out_val=value)) / (self._matrix if half else self._plain)
