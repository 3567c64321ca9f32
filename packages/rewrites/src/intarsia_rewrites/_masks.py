"""What the rewrites of masks read and write: the mask of a call of attention, values, and who owns memory."""

from __future__ import annotations

from typing import Any

import torch.fx as fx
from torch.nn import functional

import intarsia_ir.torch as torch_dialect
from intarsia_ir import meta

__all__ = ["mask_of", "root_of", "set_mask", "value_of"]

MASK = 3  # the position of attn_mask


def mask_of(node: fx.Node) -> Any:
    """Return the mask of a call; None where there is none, or the node is another."""
    if node.op != "call_function" or node.target is not functional.scaled_dot_product_attention:
        return None
    return node.args[MASK] if len(node.args) > MASK else node.kwargs.get("attn_mask")


def set_mask(node: fx.Node, mask: fx.Node | None) -> None:
    """Give a call another mask, or none."""
    if len(node.args) > MASK:
        node.update_arg(MASK, mask)
    else:
        node.update_kwarg("attn_mask", mask)


def value_of(node: Any) -> Any:
    """Return the value of a node of FX(torch), of the verifier's or the front end's; None for anything else."""
    if not isinstance(node, fx.Node):
        return None
    return meta.value(node) if meta.has_value(node) else meta.front_end_value(node)


def root_of(node: fx.Node) -> fx.Node:
    """Return the tensor that owns the memory of a node's value."""
    while above := torch_dialect.viewed_nodes(node):
        node = above[0]
    return node
