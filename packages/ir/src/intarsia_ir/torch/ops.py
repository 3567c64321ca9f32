"""The op table of the torch dialect: rows derived from the operator library, region nodes, and corrections.

A torch-level function or method is looked up among the aten packets under its own name; what it writes, views and draws
is what the packet's overloads do. In-place spellings (`add_`, `operator.iadd`, `inplace=True`, `out=`) write. Anything
that isn't found is opaque: everything must be assumed of it.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload, OpOverloadPacket
from torch.autograd import grad_mode

from intarsia_ir._names import name_of
from intarsia_ir.aten.ops import effects as overload_effects
from intarsia_ir.effects import Effects
from intarsia_ir.higher_order import HigherOrderOp, effects_of

__all__ = [
    "REGIONS",
    "SCHEMA",
    "SETTINGS",
    "Row",
    "communicates",
    "effects",
    "node_effects",
    "row",
    "set_grad_enabled",
    "viewed_nodes",
    "written_nodes",
]

SCHEMA = 2  # 1, where each node has the user's lines in whole, is read as well

set_grad_enabled: Any = torch._C._set_grad_enabled
"""Region node that switches grad mode: `set_grad_enabled(bool)`; it lasts until the next one."""

REGIONS: dict[Any, Any] = {
    torch.amp.autocast_mode._enter_autocast: torch.amp.autocast_mode._exit_autocast,
    grad_mode._enter_inference_mode: grad_mode._exit_inference_mode,
}
"""Functions that open a region, and those that close it (their argument is the node that opened it)."""

SETTINGS: dict[Any, Any] = {
    torch._C._set_default_dtype: torch.get_default_dtype,
    **{
        getattr(torch._C, f"_set_sdp_use_{name}"): getattr(torch._C, f"_get_{name}_sdp_enabled")
        for name in ("cudnn", "flash", "math", "mem_efficient", "overrideable")
        if hasattr(torch._C, f"_get_{name}_sdp_enabled")
    },
}
"""Functions that set what operations behind them depend on, as nodes until the next one, and those that tell it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One op of the dialect.

    Args:
        name: `"torch.relu"` for a function, `".relu"` for a method.
        schemas: Schemas of the aten overloads that it stands for; empty for an opaque function.
        effects: What else it does.
    """

    name: str
    schemas: tuple[str, ...]
    effects: Effects


# Functions of Python's operator module that compute, by the aten packet of the same meaning.
_OPERATORS: dict[Any, str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "div",
    operator.floordiv: "floor_divide",
    operator.mod: "remainder",
    operator.pow: "pow",
    operator.matmul: "matmul",
    operator.neg: "neg",
    operator.pos: "positive",
    operator.abs: "abs",
    operator.invert: "bitwise_not",
    operator.and_: "bitwise_and",
    operator.or_: "bitwise_or",
    operator.xor: "bitwise_xor",
    operator.lshift: "bitwise_left_shift",
    operator.rshift: "bitwise_right_shift",
    operator.eq: "eq",
    operator.ne: "ne",
    operator.lt: "lt",
    operator.le: "le",
    operator.gt: "gt",
    operator.ge: "ge",
    operator.getitem: "index",
}

# Python's in-place operators, and item assignment.
_IN_PLACE_OPERATORS = frozenset(
    [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow]
    + [operator.imatmul, operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift]
    + [operator.setitem, operator.delitem]
)

# Names whose packet is missing, or whose Python wrapper means another one.
_PACKETS = {
    "sdpa": "scaled_dot_product_attention",
    "dropout1d": "feature_dropout",
    "dropout2d": "feature_dropout",
    "dropout3d": "feature_dropout",
    "softmin": "softmax",
    "interpolate": "upsample_bilinear2d",
    "type": "to",
    "float": "to",
    "double": "to",
    "half": "to",
    "bfloat16": "to",
    "long": "to",
    "int": "to",
    "short": "to",
    "char": "to",
    "byte": "to",
    "bool": "to",
    "cpu": "to",
    "cuda": "to",
    "gumbel_softmax": "dropout",
    "cross_entropy": "cross_entropy_loss",
    "__getitem__": "index",
}

# Methods and attributes of tensors that read metadata only.
_METADATA = frozenset(
    ["size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "element_size", "is_contiguous"]
    + ["is_floating_point", "is_complex", "get_device", "type_as_dtype", "__len__"]
)


@functools.cache
def row(target: Any) -> Row:
    """Return the row of a function, or of a method given by name.

    Example:
        >>> row("add_").effects.writes, row(torch.relu).effects.removable, row(print).effects.opaque
        (('self',), True, True)
    """
    name = f".{target}" if isinstance(target, str) else name_of(target) or repr(target)
    return Row(name, tuple(str(o._schema) for o in _overloads(target)), effects(target))


@functools.cache
def effects(target: Any) -> Effects:
    """Return the effects of a function, or of a method given by name, assuming nothing about its arguments."""
    if target in _IN_PLACE_OPERATORS:
        return Effects(writes=("self",), may_raise=True)
    if target in _METADATA:
        return Effects()
    effects_of_overloads = [overload_effects(overload) for overload in _overloads(target)]
    if not effects_of_overloads:
        joins = any(overload_effects(o).communicates for o in _of_library(target))
        return Effects(opaque=True, communicates=joins or getattr(target, "communicates", False) is True)
    return Effects(
        writes=_first_if(any(e.writes for e in effects_of_overloads)),
        views=_first_if(any(e.views for e in effects_of_overloads) or target is operator.getitem),
        random=any(e.random for e in effects_of_overloads),
        may_raise=any(e.may_raise for e in effects_of_overloads),
        checks=any(e.checks for e in effects_of_overloads),
        communicates=any(e.communicates for e in effects_of_overloads),
    )


def node_effects(node: fx.Node) -> Effects:
    """Return the effects of one call: those of its op, and what its arguments add or rule out."""
    if node.op == "call_module":
        return Effects(opaque=True)
    if node.op not in ("call_function", "call_method"):
        return Effects()
    if isinstance(node.target, HigherOrderOp):
        return effects_of(node.target, node_effects)
    effects_of_target = effects(node.target)
    if effects_of_target.opaque:
        return effects_of_target
    writes = effects_of_target.writes + _first_if(node.kwargs.get("inplace") is True and not effects_of_target.writes)
    if node.kwargs.get("out") is not None:
        writes += ("out",)
    random = effects_of_target.random and node.kwargs.get("training") is not False
    return replace(effects_of_target, writes=writes, random=random)


def communicates(gm: fx.GraphModule) -> bool:
    """Tell whether running a graph takes part in exchanges with other processes.

    Such a graph can't be run again, or in vain: the others wouldn't take part.
    """
    return any(node_effects(node).communicates for node in gm.graph.nodes)


def written_nodes(node: fx.Node) -> tuple[fx.Node, ...]:
    """Return the nodes whose tensors a call is known to write (an opaque call may write any of its arguments)."""
    return _nodes_of(node, node_effects(node).writes)


def viewed_nodes(node: fx.Node) -> tuple[fx.Node, ...]:
    """Return the nodes whose memory the result of a call may share."""
    return _nodes_of(node, node_effects(node).views)


def _nodes_of(node: fx.Node, names: tuple[str, ...]) -> tuple[fx.Node, ...]:
    """Nodes of `self`, which is the first argument whatever the function calls it, and of keyword arguments."""
    first: Any = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
    values = [first if name == "self" else node.kwargs.get(name) for name in names]
    items = [item for value in values for item in (value if isinstance(value, (list, tuple)) else (value,))]
    return tuple(item for item in items if isinstance(item, fx.Node))


def _first_if(condition: bool) -> tuple[str, ...]:
    return ("self",) if condition else ()


def _overloads(target: Any) -> list[Any]:
    """Overloads of the aten packet that a torch-level function or method stands for, those with `out` left out."""
    packet = getattr(torch.ops.aten, _packet_name(target) or "", None) if _packet_name(target) else None
    if packet is None or not hasattr(packet, "overloads"):
        return []
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return [o for o in overloads if not any(argument.is_out for argument in o._schema.arguments)]


def _of_library(target: Any) -> list[Any]:
    """Overloads of an operator, which may be of any library; none for what isn't an operator."""
    if isinstance(target, OpOverloadPacket):
        return [getattr(target, name) for name in target.overloads()]
    return [target] if isinstance(target, OpOverload) else []


def _packet_name(target: Any) -> str | None:
    if isinstance(target, str):
        return _PACKETS.get(target, target)
    if target in _OPERATORS:
        return _OPERATORS[target]
    name = name_of(target)
    if name is None or not name.startswith("torch.") or target in REGIONS or target in REGIONS.values():
        return None
    last = name.rpartition(".")[2]
    special = f"{name.split('.')[1]}_{last}" if name.split(".")[1] in ("linalg", "fft", "special") else last
    return _PACKETS.get(special, special)
