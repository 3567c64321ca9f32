"""`drop_full_masks`: an attention mask that keeps every place is left out of the call.

    %1 = torch.arange(0, 512)
    %2 = operator.ge(%1[None, None, :, None], 0)
    %3 = %2.expand(16, 1, 512, 512)                                  ->    attn_mask=None
    %4 = scaled_dot_product_attention(%q, %k, %v, attn_mask=%3)

Model code makes such masks where it can't look whether one is needed, and the library's fastest kernels take none.

Side condition. The mask is of bools, and every element is known to be true: a view of ones, of positions compared
with a number that none lies below, or of an "and" of such. Nothing on the way is written to.
Law: a place that is kept is added to with zero, so the function is the same.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

import intarsia_ir.torch as torch_dialect
from intarsia_rewrites._draft import edit_torch
from intarsia_rewrites._masks import mask_of, root_of, set_mask, value_of

__all__ = ["drop_full_masks"]

_AND = {operator.and_, torch.logical_and, torch.bitwise_and, "logical_and", "bitwise_and", "__and__"}
_GE = {operator.ge, torch.ge, "ge", "__ge__"}
_GT = {operator.gt, torch.gt, "gt", "__gt__"}
_ADD = {operator.add, torch.add, "add"}
_VIEWS = {
    operator.getitem,
    torch.unsqueeze,
    torch.reshape,
    torch.transpose,
    torch.permute,
    torch.broadcast_to,
    *("expand", "view", "reshape", "unsqueeze", "contiguous", "clone", "transpose", "permute", "expand_as"),
}


def drop_full_masks(gm: fx.GraphModule, *, fuel: int | None = None, check: bool = True) -> fx.GraphModule:
    """Return `gm` with `attn_mask=None` where the mask of a scaled_dot_product_attention keeps everything.

    What made the mask stays, for `eliminate_dead_code`.

    Args:
        gm: FX(torch) with values on its nodes (`meta["val"]`).
        fuel: Number of masks that may be dropped, in program order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph; the given one when there is nothing to drop.

    Raises:
        VerifyError: `gm` isn't FX(torch).
        InvalidArgumentError: `fuel` is negative.

    Example:
        >>> from intarsia_ir.torch import parse_ir
        >>> gm = parse_ir('''// dialect: torch 2
        ... graph(%q: f32[1, 2, 8, 4], %k: f32[1, 2, 8, 4], %v: f32[1, 2, 8, 4]) {
        ...   # model.py:1 in forward
        ...   %0: b8[8, 8] = torch.ones((8, 8), dtype=torch.bool)  #1
        ...   # model.py:2 in f
        ...   %1: f32[1, 2, 8, 4] = torch.nn.functional.scaled_dot_product_attention(%q, %k, %v, %0)  #2
        ...   return (%1,)
        ... }
        ... origins
        ...   1 model.py
        ...     forward: 1
        ...     f: 2
        ... ''')
        >>> [n.args[3:] for n in drop_full_masks(gm).graph.nodes if n.name == "scaled_dot_product_attention"]
        [(None,)]
    """

    def choose(graph: fx.Graph) -> list[fx.Node]:
        touched = _touched(graph)
        return [node for node in graph.nodes if _masked_in_vain(node, touched)]

    return edit_torch(gm, choose, lambda _, node: set_mask(node, None), fuel=fuel, check=check)


def _masked_in_vain(node: fx.Node, touched: set[fx.Node]) -> bool:
    mask = mask_of(node)
    if not isinstance(mask, fx.Node) or _dtype(mask) != torch.bool or not _Elements(touched).are_true(mask):
        return False
    # a mask may have more batches than the operands, and then it gives the result its shape
    value, q = value_of(node), value_of(node.args[0]) if node.args else None
    return isinstance(q, torch.Tensor) and [*map(str, value.shape[:-1])] == [*map(str, q.shape[:-1])]


def _touched(graph: fx.Graph) -> set[fx.Node]:
    """Return the tensors whose memory something writes, or may write."""
    touched: set[fx.Node] = set()
    for node in graph.nodes:
        opaque = torch_dialect.node_effects(node).opaque
        touched.update(map(root_of, node.all_input_nodes if opaque else torch_dialect.written_nodes(node)))
    return touched


# ---- what is known of elements ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Elements:
    """What is known of elements, where nothing writes to them.

    Args:
        touched: Tensors whose memory something may write.
    """

    touched: set[fx.Node]

    def are_true(self, node: fx.Node) -> bool:
        """Whether every element of a tensor of bools is known to be true."""
        if not self._is_call(node):
            return False
        if _is_view(node):
            return self.are_true(node.args[0])  # type: ignore[arg-type]  # a view of a tensor
        if node.target in _AND and len(node.args) == 2 and not node.kwargs:
            return all(_dtype(a) == torch.bool and self.are_true(a) for a in node.args)  # type: ignore[arg-type]
        if node.target in _GE | _GT and len(node.args) == 2 and type(node.args[1]) is int:
            least, limit = self.least(node.args[0]), node.args[1]
            return least is not None and (least > limit or (least == limit and node.target in _GE))
        return node.target is torch.ones or (node.target is torch.full and node.args[1:2] == (True,))

    def least(self, node: Any) -> int | None:
        """Return a number that no element of a tensor of int64 lies below, or None."""
        if not isinstance(node, fx.Node) or not self._is_call(node) or _dtype(node) != torch.int64:
            return None
        if _is_view(node):
            return self.least(node.args[0])
        if node.target in _ADD and len(node.args) == 2 and type(node.args[1]) is int and not node.kwargs:
            least = self.least(node.args[0])
            return None if least is None else least + node.args[1]
        return _start(node) if node.target is torch.arange else None

    def _is_call(self, node: fx.Node) -> bool:
        return node.op in ("call_function", "call_method") and root_of(node) not in self.touched


def _start(arange: fx.Node) -> int | None:
    """Return the first position of a range that goes upwards."""
    if {"start", "end", "step", "out"} & arange.kwargs.keys():
        return None
    start = arange.args[0] if len(arange.args) > 1 else 0
    upwards = len(arange.args) < 3 or (type(arange.args[2]) is int and arange.args[2] > 0)
    return start if upwards and type(start) is int else None


def _is_view(node: fx.Node) -> bool:
    """Whether every element is one of the first operand's; an index that is a tensor picks elements, too."""
    return node.target in _VIEWS and bool(node.args) and isinstance(node.args[0], fx.Node)


def _dtype(node: Any) -> torch.dtype | None:
    value = value_of(node)
    return value.dtype if isinstance(value, torch.Tensor) else None
