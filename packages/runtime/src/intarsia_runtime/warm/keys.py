"""Captured value -> the parts of its key, or why it has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload, OpOverloadPacket

from intarsia_ir import meta
from intarsia_ir.errors import UnsupportedError
from intarsia_ir.higher_order import HigherOrderOp
from intarsia_ir.text import text_and_constants
from intarsia_ir.values import Captured
from intarsia_runtime.target import gpu_identity

__all__ = ["Refused", "key_parts"]

# operators whose formulas come with torch, or with this: the versions say what they are
_TORCHS = frozenset({"aten", "prims", "prim", "quantized", "higher_order", "_c10d_functional", "intarsia_p2p"})


@dataclass(frozen=True, slots=True)
class Refused:
    """A graph that has no key.

    Args:
        reason: Why, to go after "off: ".
    """

    reason: str


def key_parts(captured: Captured) -> tuple[str, ...] | Refused:
    """Return all that the stages read of a captured value, as text.

    Args:
        captured: As it goes into the first stage; nothing is asked of its environment of sizes.
    """
    if (why := next(_outside(captured.graph_module), "")) or (why := _elsewhere(captured)):
        return Refused(why)
    if derived := captured.facts.ranges.keys() - captured.facts.symbols.keys():
        return Refused(f"the size {min(derived)} depends on data")
    try:
        text, constants = text_and_constants(captured)
    except UnsupportedError as error:
        return Refused(error.explanation)
    if constants:
        return Refused(f"the graph has {_described(constants)}, which has no text")
    return text, *_unsaid(captured), *map(gpu_identity, _gpus(captured))


def _described(constants: Mapping[str, Any]) -> str:
    name, value = next(iter(constants.items()))
    return f"{name} ({type(value).__name__})" if name.startswith("$") else name


def _outside(gm: fx.GraphModule) -> Iterator[str]:
    """Yield why operators can't be told by their name."""
    for node in gm.graph.nodes:
        if isinstance(node.target, HigherOrderOp):  # with operators and tensors of its own
            yield f"the call {node.target.name} holds graphs"
        if isinstance(node.target, OpOverload | OpOverloadPacket):
            name = str(node.target)
            space = node.target.namespace if isinstance(node.target, OpOverload) else name.partition(".")[0]
            if space not in _TORCHS:
                yield f"the operator {name} isn't torch's own"


def _elsewhere(captured: Captured) -> str:
    """Return why devices of a graph keep it from a warm start, or ""."""
    others = {device.type for device in _devices(captured)} - {"cpu", "cuda"}
    return f"the graph has tensors on {min(others)}" if others else ""


def _gpus(captured: Captured) -> list[torch.device]:
    """Return the GPUs of a graph, in order."""
    return sorted((d for d in _devices(captured) if d.type == "cuda"), key=str)


def _devices(captured: Captured) -> set[torch.device]:
    values = [meta.value(n) for n in captured.graph_module.graph.nodes if meta.has_value(n)]
    flat = [
        v for value in (*captured.inputs, *values) for v in (value if isinstance(value, tuple | list) else (value,))
    ]
    return {v.device for v in flat if isinstance(v, torch.Tensor)}


def _unsaid(captured: Captured) -> Iterator[str]:
    """Yield what inputs say that isn't in the text of a captured value: classes, who shares memory with whom."""
    storages: dict[int, int] = {}
    for position, value in enumerate(captured.inputs):
        if not isinstance(value, torch.Tensor):
            yield type(value).__name__
            continue
        first = storages.setdefault(value.untyped_storage()._cdata, position)
        kind = type(value)
        yield f"{kind.__module__}.{kind.__qualname__} {first} {value.is_leaf} {value.is_inference()} {value._is_view()}"
