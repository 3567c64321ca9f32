"""`eliminate_common_subexpressions`: compute equal calls once.

    %1 = aten.add.Tensor(%x, %y)                 %1 = aten.add.Tensor(%x, %y)
    %2 = aten.add.Tensor(%x, other=%y)       ->  return (mul(%1, %1),)
    return (mul(%1, %2),)

Two calls are equal when they call the same overload with the same arguments (given by position, by name, or left to
the default), give values of the same type, shape, strides and device, and belong to the same marked region. Constants
are the same when type and text are: True, 1 and 1.0 differ, and so do 0.0 and -0.0, while NaN is NaN.

Side condition: the call is repeatable (it draws no random numbers and has no unknown effect) and doesn't exist for its
check or message. Two results that have storage of their own keep it.
Law: a repeatable call gives the same values for the same arguments, and nothing writes to them in between.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload

from intarsia_ir import aten, meta
from intarsia_rewrites._draft import Draft

__all__ = ["eliminate_common_subexpressions"]


def eliminate_common_subexpressions(
    gm: fx.GraphModule, *, fuel: int | None = None, check: bool = True
) -> fx.GraphModule:
    """Return `gm` with equal calls merged into the first of them, which takes the origins of all.

    Args:
        gm: FX(aten), pure.
        fuel: Number of merges allowed, in program order; None: all.
        check: Whether to verify the dialect on entry and exit.

    Raises:
        VerifyError: `gm` isn't FX(aten), pure.

    Example:
        >>> from intarsia_ir.aten import parse_ir
        >>> gm = parse_ir('''// dialect: aten 2
        ... graph(%x: f32[2]) {
        ...   # model.py:1 in forward
        ...   %0: f32[2] = aten.sin.default(%x)  #1
        ...   # model.py:2 in forward
        ...   %1: f32[2] = aten.sin.default(%x)  #2
        ...   # model.py:3 in forward
        ...   %2: f32[2] = aten.mul.Tensor(%0, %1)  #3
        ...   return (%2,)
        ... }
        ... origins
        ...   1 model.py
        ...     forward: 1, 2, 3
        ... ''')
        >>> [str(n.target) for n in eliminate_common_subexpressions(gm).graph.nodes if n.op == "call_function"]
        ['aten.sin.default', 'aten.mul.Tensor']
    """
    return merge(Draft(gm, fuel, check)).finish()


def merge(draft: Draft) -> Draft:
    """Merge equal calls of `draft`, first to last, so that operands are merged before their users are compared."""
    first: dict[Any, fx.Node] = {}
    for node in draft.graph.nodes:
        if draft.exhausted:
            break
        if not _can_merge(node):
            continue
        earlier = first.setdefault(_key(node), node)
        if earlier is not node and draft.may_replace(node, earlier) and draft.burn("merge"):
            draft.replace(node, earlier)
    return draft


def _can_merge(node: fx.Node) -> bool:
    if node.op == "get_attr":
        return True
    effects = aten.node_effects(node)
    return node.op == "call_function" and effects.repeatable and not effects.checks


def _key(node: fx.Node) -> Any:
    """Return what equal calls have in common."""
    value = meta.value(node) if meta.has_value(node) else None
    return node.op, node.target, _arguments(node), _value_key(value), meta.region(node)


def _arguments(node: fx.Node) -> Any:
    """Return the arguments by name, less those that equal their defaults."""
    if not isinstance(node.target, OpOverload):
        return _key_of(node.args), _key_of(node.kwargs)
    given: dict[str, Any] = {}
    by_position = iter(node.args)
    for parameter in node.target._schema.arguments:
        value: Any = node.kwargs.get(parameter.name, _MISSING)
        if value is _MISSING and not parameter.kwarg_only:
            value = next(by_position, _MISSING)
        if value is _MISSING:
            continue
        key = _key_of(value)
        if not (parameter.has_default_value() and key == _key_of(parameter.default_value)):
            given[parameter.name] = key
    return tuple(sorted(given.items()))


_MISSING = object()


def _key_of(value: Any) -> Any:
    """Return a hashable stand-in that is equal for arguments that mean the same."""
    if isinstance(value, fx.Node):
        return value
    if isinstance(value, (tuple, list)):
        return "list", *map(_key_of, value)
    if isinstance(value, dict):
        return "dict", *sorted((name, _key_of(item)) for name, item in value.items())
    return type(value).__name__, repr(value)


def _value_key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        layout = value.layout
        strides = tuple(map(str, value.stride())) if layout is torch.strided else ()
        return value.dtype, value.device, layout, tuple(map(str, value.shape)), strides
    if isinstance(value, (tuple, list)):
        return tuple(map(_value_key, value))
    return type(value).__name__
