"""Where a graph of ATen operations runs: kernels are generated for one device; the CPU may take part beside it.

%m = aten.lt.Scalar(%i, 3)                      host: its operand and its result are on the CPU
%y = aten._to_copy.default(%m, device=cuda)     host: it reads a tensor on the CPU
%z = aten.index.Tensor(%x, [%i])                device: ATen brings indices to the indexed tensor itself
%w = aten.mul.Tensor(%z, %s)                    device: %s is one number, which ATen hands over itself
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError

__all__ = ["accelerator_of", "device_of", "host_nodes"]

aten: Any = torch.ops.aten
CPU = torch.device("cpu")
# kinds of devices beside which the CPU may take part
BESIDE = ("cuda",)
# their indices may be on the CPU when the tensor isn't
INDEXED = frozenset({aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_put.default})


def device_of(gm: fx.GraphModule) -> torch.device:
    """Return the device that a graph's kernels are generated for; the CPU when there are no tensors.

    That is the one device of its tensors; inputs that nothing reads don't matter. Beside one CUDA device there may be
    the CPU: see `host_nodes`.

    Args:
        gm: FX(aten) with a value on every node.

    Raises:
        UnsupportedError: `aten.devices`: the tensors are on other combinations of devices.
    """
    devices: dict[torch.device, fx.Node] = {}
    for node in gm.graph.nodes:
        for tensor in _results(node):
            if not _travels(node, tensor) and (node.op != "placeholder" or node.users):
                devices.setdefault(tensor.device, node)
    others = [device for device in devices if device != CPU]
    if len(others) > 1 or (len(devices) > 1 and others[0].type not in BESIDE):
        raise UnsupportedError(
            f"tensors of one graph are on {' and '.join(sorted(map(str, devices)))}",
            code="aten.devices",
            where=meta.origins([*devices.values()][-1]),
            hints=("move tensors to one device, or to the CPU and one CUDA device, before they enter the function",),
        )
    return others[0] if others else CPU


def accelerator_of(gm: fx.GraphModule) -> torch.device:
    """Return the first device other than the CPU that a graph has a tensor on; the CPU where there is none.

    Unlike `device_of` this refuses no graph: it is for rewrites, which leave alone what isn't on their device.
    """
    return next((t.device for node in gm.graph.nodes for t in _results(node) if t.device != CPU), CPU)


def host_nodes(gm: fx.GraphModule) -> frozenset[fx.Node]:
    """Return the calls of a graph over the CPU and a CUDA device that have operands or results on the CPU.

    Calls on the other device that read a number, a tensor without dimensions, from the CPU are not among them, nor
    those whose indices are there: ATen brings both to the device.

    Args:
        gm: FX(aten) with a value on every node.

    Returns:
        The calls; none for a graph on one device.

    Raises:
        UnsupportedError: As `device_of` does.
    """
    if device_of(gm) == CPU:
        return frozenset()
    return frozenset(n for n in gm.graph.nodes if n.op == "call_function" and _is_on_host(n))


def _is_on_host(node: fx.Node) -> bool:
    results = list(_results(node))
    if any(r.device == CPU for r in results):
        return True
    operands = [t for operand in node.all_input_nodes for t in _results(operand)]
    if node.target in INDEXED:
        operands = [*_results(node.args[0])]  # type: ignore[arg-type]
    on_host = [t for t in operands if t.device == CPU]
    return any(t.dim() for t in on_host) or (not results and 0 < len(on_host) == len(operands))


def _travels(node: fx.Node, tensor: torch.Tensor) -> bool:
    return node.op in ("placeholder", "get_attr") and tensor.dim() == 0 and tensor.device.type == "cpu"


def _results(node: fx.Node) -> Iterator[torch.Tensor]:
    value = meta.value(node) if node.op != "output" else None
    for tensor in value if isinstance(value, tuple | list) else (value,):
        if isinstance(tensor, torch.Tensor):
            yield tensor
