"""Where a graph of ATen operations runs: kernels are generated for one device."""

from __future__ import annotations

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError

__all__ = ["device_of"]


def device_of(gm: fx.GraphModule) -> torch.device:
    """Return the one device of a graph's tensors; the CPU when there are none.

    A scalar on the CPU that enters the graph may take part in operations on another device, as in eager.

    Args:
        gm: FX(aten) with a value on every node.

    Raises:
        UnsupportedError: `aten.devices`: the tensors are on several devices.
    """
    found: dict[torch.device, fx.Node] = {}
    for node in gm.graph.nodes:
        value = meta.value(node) if node.op != "output" else None
        for tensor in value if isinstance(value, tuple | list) else (value,):
            if isinstance(tensor, torch.Tensor) and not _travels(node, tensor):
                found.setdefault(tensor.device, node)
    if len(found) > 1:
        raise UnsupportedError(
            f"tensors of one graph are on {' and '.join(sorted(map(str, found)))}",
            code="aten.devices",
            where=meta.origins([*found.values()][-1]),
            hints=("move tensors to one device before they enter the function",),
        )
    return next(iter(found), torch.device("cpu"))


def _travels(node: fx.Node, tensor: torch.Tensor) -> bool:
    return node.op in ("placeholder", "get_attr") and tensor.dim() == 0 and tensor.device.type == "cpu"
