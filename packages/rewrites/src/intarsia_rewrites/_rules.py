"""What the rules of `fold_constants` share: the form of a rule, and what a call's arguments and values are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.fx as fx
from torch._ops import OpOverload

from intarsia_ir import meta

__all__ = [
    "CASTS",
    "Call",
    "Context",
    "Found",
    "Rule",
    "argument",
    "is_number",
    "is_static",
    "number",
    "same_value",
    "tensor_of",
]


class Call(NamedTuple):
    """A call that computes the same value."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


Found: TypeAlias = fx.Node | Call | torch.Tensor | None
"""A node, a call or a constant that can stand for a call; None: no case of the rule."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Args:
        targets: Calls that it may apply to; None: any.
        find: From such a call, in its graph, to what can stand for it. Its docstring states the rule.
    """

    targets: frozenset[Any] | None
    find: Callable[[fx.Node, Context], Found]

    @property
    def name(self) -> str:
        """Name of the rule, for tallies."""
        return self.find.__name__


class Context:
    """What rules know of a graph besides the call.

    Args:
        root: What get_attr nodes refer to.
        is_mixed: Whether the graph is over the CPU and another device: kernels are for the other one.

    Attributes:
        constant: Whether the value of a node is the same in every run, as far as it was asked.
    """

    def __init__(self, root: Mapping[str, Any], is_mixed: bool = False) -> None:
        self.root, self.is_mixed = root, is_mixed
        self.constant: dict[fx.Node, bool] = {}


_FILLED: Mapping[Any, bool | int | None] = {
    torch.ops.aten.zeros.default: 0,
    torch.ops.aten.zeros_like.default: 0,
    torch.ops.aten.new_zeros.default: 0,
    torch.ops.aten.ones.default: 1,
    torch.ops.aten.ones_like.default: 1,
    torch.ops.aten.new_ones.default: 1,
    torch.ops.aten.full.default: None,
    torch.ops.aten.full_like.default: None,
    torch.ops.aten.new_full.default: None,
    torch.ops.aten.scalar_tensor.default: None,
}
"""Calls that fill a tensor, and with what; None: with an argument."""

_KEEP_VALUES = frozenset(
    [
        torch.ops.aten.view.default,
        torch.ops.aten._unsafe_view.default,
        torch.ops.aten.expand.default,
        torch.ops.aten.permute.default,
        torch.ops.aten.t.default,
        torch.ops.aten.unsqueeze.default,
        torch.ops.aten.clone.default,
        torch.ops.aten.alias.default,
        torch.ops.aten.detach.default,
        torch.ops.aten.lift_fresh_copy.default,
    ]
)
"""Calls that only rearrange: what is uniform before is uniform after."""


def argument(node: fx.Node, name: str, default: Any = None) -> Any:
    """Return the argument that a call gives to a parameter of its overload, by position or name."""
    if name in node.kwargs:
        return node.kwargs[name]
    assert isinstance(node.target, OpOverload)
    names = [a.name for a in node.target._schema.arguments if not a.kwarg_only]
    position = names.index(name) if name in names else len(node.args)
    return node.args[position] if position < len(node.args) else default


def tensor_of(node: Any) -> torch.Tensor | None:
    """Return the (fake) tensor that a node gives, or None when it gives something else."""
    value = meta.value(node) if isinstance(node, fx.Node) and meta.has_value(node) else None
    return value if isinstance(value, torch.Tensor) and value.layout is torch.strided else None


def is_static(value: torch.Tensor) -> bool:
    """Tell whether size and strides are plain numbers."""
    return all(type(n) is int for n in (*value.shape, *value.stride()))


def same_value(node: fx.Node, other: Any) -> bool:
    """Tell whether two nodes give tensors of the same type, size, strides and device."""
    a, b = tensor_of(node), tensor_of(other)
    if a is None or b is None or a.dtype != b.dtype or a.device != b.device or a.dim() != b.dim():
        return False
    if a.is_conj() != b.is_conj() or a.is_neg() != b.is_neg():
        return False
    if is_static(a) and is_static(b):
        return a.shape == b.shape and a.stride() == b.stride()
    # text equality asks nothing of a shape environment
    return str(a.shape) == str(b.shape) and str(a.stride()) == str(b.stride())


def number(value: Any) -> bool | int | float | complex | None:
    """Return the one number that an operand is, or that all of its elements are; None when that isn't known.

    A tensor's elements have been rounded to its type already.
    """
    if isinstance(value, (bool, int, float, complex)):
        return value
    while isinstance(value, fx.Node) and value.target in _KEEP_VALUES:
        value = value.args[0]
    tensor = tensor_of(value)
    if tensor is None or value.op != "call_function" or value.target not in _FILLED:
        return None
    fill = _FILLED[value.target]
    if fill is None:
        name = "s" if value.target is torch.ops.aten.scalar_tensor.default else "fill_value"
        fill = argument(value, name)
    return rounded(fill, tensor.dtype) if isinstance(fill, (bool, int, float, complex)) else None


def rounded(value: bool | int | float | complex, dtype: torch.dtype) -> bool | int | float | complex | None:
    """Return `value` as an element of type `dtype`; None when it doesn't fit."""
    try:
        nearest: bool | int | float | complex = torch.full((), value, dtype=dtype).item()
    except (RuntimeError, TypeError):  # overflow, or an imaginary part
        return None
    return nearest


def is_number(value: Any, expected: float) -> bool:
    """Tell whether an operand is known to be `expected`; 0.0 and -0.0 differ."""
    constant = number(value)
    if constant is None or isinstance(constant, complex) or constant != expected:
        return False
    return expected != 0 or math.copysign(1, constant) == math.copysign(1, expected)


CASTS = frozenset([torch.ops.aten._to_copy.default, torch.ops.prims.convert_element_type.default])
"""Calls that convert their first argument to an element type (or device)."""
