"""`lay_out_masks`: an attention mask whose rows aren't contiguous is copied, so that a GPU's fast kernels take it.

    %1 = %bias.permute(2, 0, 1)                                  %1 = %bias.permute(2, 0, 1)
    %2 = scaled_dot_product_attention(%q, %k, %v, %1)     ->     %2 = %1.contiguous()
                                                                 %3 = scaled_dot_product_attention(%q, %k, %v, %2)

Learned biases of positions come out of a table with the heads last. With such a mask the library falls back to products
and a softmax of their own, and every layer reads and writes matrices of scores; the copy is written once, by whatever
computes the mask.

Side condition. The mask is on a GPU, and neighbours in its rows aren't neighbours in memory. Each call has its own
copy, made where it reads the mask, so writes in between are seen; equal copies are one after common subexpressions.
Law: the same function; the library's kernels round at other points.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_rewrites._draft import edit_torch
from intarsia_rewrites._masks import mask_of, set_mask, value_of

__all__ = ["lay_out_masks"]


def lay_out_masks(
    gm: fx.GraphModule, *, devices: Collection[str] = ("cuda",), fuel: int | None = None, check: bool = True
) -> fx.GraphModule:
    """Return `gm` with contiguous masks for the calls of scaled_dot_product_attention on a GPU.

    Args:
        gm: FX(torch) with values on its nodes (`meta["val"]`).
        devices: Kinds of devices whose fast kernels want contiguous rows.
        fuel: Number of masks that may be copied, in program order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Returns:
        The graph; the given one when there is nothing to copy.

    Raises:
        VerifyError: `gm` isn't FX(torch).
        InvalidArgumentError: `fuel` is negative.

    Example:
        >>> from intarsia_ir.torch import parse_ir
        >>> gm = parse_ir('''// dialect: torch 2
        ... graph(%q: f32[1, 2, 8, 4], %k: f32[1, 2, 8, 4], %v: f32[1, 2, 8, 4], %mask: f32[8, 8]) {
        ...   %0: f32[1, 2, 8, 4] = torch.nn.functional.scaled_dot_product_attention(%q, %k, %v, %mask)  # model.py:1
        ...   return (%0,)
        ... }
        ... ''')
        >>> lay_out_masks(gm) is gm  # its rows are contiguous
        True
    """

    def choose(graph: fx.Graph) -> list[fx.Node]:
        return [node for node in graph.nodes if _has_scattered_rows(node, devices)]

    return edit_torch(gm, choose, _copy_mask, fuel=fuel, check=check)


def _has_scattered_rows(node: fx.Node, devices: Collection[str]) -> bool:
    value = value_of(mask_of(node))
    if not isinstance(value, torch.Tensor) or value.device.type not in devices or not value.dim():
        return False
    size, stride = value.shape[-1], value.stride(-1)
    # a stride that is a symbol isn't compared: that would make a guard
    return not (type(size) is int and size == 1) and not (type(stride) is int and stride == 1)


def _copy_mask(graph: fx.Graph, node: fx.Node) -> None:
    mask = mask_of(node)
    assert isinstance(mask, fx.Node)  # its value was looked at
    with graph.inserting_before(node):
        copy = graph.call_method("contiguous", (mask,))
    with torch.no_grad():
        meta.set_value(copy, value_of(mask).contiguous())
    meta.set_origins(copy, meta.origins(node))
    set_mask(node, copy)
