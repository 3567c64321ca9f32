"""Which devices a captured graph uses, as far as its front end says."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx

from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError

__all__ = ["check_devices", "is_on_meta"]


def check_devices(gm: fx.GraphModule, inputs: Sequence[Any], backend: str, served: Collection[str]) -> None:
    """Refuse a graph whose tensors are on devices that a backend doesn't serve.

    Numbers on the CPU may take part anywhere, and other tensors on the CPU beside some on a GPU that is served.

    Args:
        gm: FX(torch); its values are looked at where the front end has set them.
        inputs: Real or fake tensors and other values of its placeholders.
        backend: Name of the backend.
        served: Types of devices that it compiles for.

    Raises:
        UnsupportedError: `pipeline.device`.

    Example:
        >>> check_devices(fx.symbolic_trace(lambda x: x + 1), [torch.ones(2)], "cpp", ("cpu",))
    """
    devices = {t.device.type for t in _all(gm, inputs) if t.dim() or t.device.type != "cpu"}
    others = devices - {*served} - ({"cpu"} if "cuda" in devices and "cuda" in served else set())
    if others:
        raise UnsupportedError(
            f"a tensor is on {', '.join(sorted(others))}, and backend {backend!r} serves {', '.join(sorted(served))}",
            code="pipeline.device",
            hints=("move the model and its inputs, or use backend='eager'",),
        )


def is_on_meta(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Tell whether a graph has tensors without memory, on the meta device: then there is little to compile.

    Args:
        gm: FX(torch); its values are looked at where the front end has set them.
        inputs: Real or fake tensors and other values of its placeholders.

    Example:
        >>> is_on_meta(fx.symbolic_trace(lambda x: x + 1), [torch.ones(2, device="meta")])
        True
    """
    return any(tensor.device.type == "meta" for tensor in _all(gm, inputs))


def _all(gm: fx.GraphModule, inputs: Sequence[Any]) -> Iterator[torch.Tensor]:
    return _tensors([*inputs, *(_value(node) for node in gm.graph.nodes if node.op != "output")])


def _value(node: fx.Node) -> Any:
    return meta.value(node) if meta.has_value(node) else meta.front_end_value(node)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
