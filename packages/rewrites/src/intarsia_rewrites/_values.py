"""Rules of known values: calls all of whose operands are constants."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
import torch.fx as fx
from torch._ops import OpOverload

from intarsia_ir import aten as aten_dialect
from intarsia_rewrites._rules import CASTS, Call, Context, Found, Rule, is_static, number, same_value, tensor_of

__all__ = ["LITERALS", "MAX_ELEMENTS", "RULES"]

aten = torch.ops.aten

MAX_ELEMENTS = 16_384
"""Largest constant, in elements, that is computed and stored: what fits the first-level cache is cheap to read."""


def uniform_call(node: fx.Node, context: Context) -> Found:
    """A pointwise call whose operands are each one number throughout -> full(size, number).

        mul(full([4, 4], 2.0), 3) -> full([4, 4], 6.0)

    Condition: the result is contiguous, on the CPU, and of a type with a Python counterpart.
    Law: a pointwise op does the same to each element, so one element tells all.
    """
    if not node.all_input_nodes or any(number(operand) is None for operand in node.all_input_nodes):
        return None
    value = tensor_of(node)
    if value is None or not _is_pointwise(node) or not _can_be_full(value):
        return None
    args = [_few_elements(a) for a in node.args]
    kwargs = {name: _few_elements(a) for name, a in node.kwargs.items()}
    if any(a is _UNKNOWN for a in (*args, *kwargs.values())):
        return None
    try:
        result = node.target(*args, **kwargs)  # type: ignore[operator]
    except (RuntimeError, ZeroDivisionError):  # the program raises: so it shall
        return None
    if not isinstance(result, torch.Tensor) or result.dtype != value.dtype or result.dim() != value.dim():
        return None
    options = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
    return Call(aten.full.default, (list(value.shape), result.flatten()[0].item()), options)


def constant_call(node: fx.Node, context: Context) -> Found:
    """A call whose operands are all constants -> its value.

        cumsum(arange(5), 0) -> a stored tensor

    Condition: it's repeatable, can't raise, runs on the CPU, no tensor involved has more than MAX_ELEMENTS elements,
    and a user needs it that isn't constant itself. Calls that only fill, number or rearrange stay: emitters make
    their values without reading memory. So do pointwise calls, but for those on floats where emitters don't serve
    the CPU. Law: a repeatable call gives the same value in every run.
    """
    if not _is_constant(node, context) or not _has_costly(node, context):
        return None
    if all(_is_constant(user, context) for user in node.users):  # folded together with its users
        return None
    value = tensor_of(node)
    assert value is not None
    with torch.no_grad():
        result = _evaluate(node, context.root, {})
    if result.dtype != value.dtype or result.shape != value.shape:
        return None
    return _laid_out(result, value)


def literal_copy(node: fx.Node, context: Context) -> Found:
    """The copy of a tensor literal -> the literal, stored.

    Condition: the graph has tensors on another device as well, so that the copy would be a call at every run.
    Law: nobody else knows the literal.
    """
    source: Any = node.args[0]
    if not context.is_mixed or source.op != "get_attr" or not _is_literal(source, context.root):
        return None
    literal: torch.Tensor = context.root[str(source.target)]
    return literal if same_value(node, source) else None


RULES: tuple[Rule, ...] = (Rule(None, uniform_call), Rule(None, constant_call))
LITERALS: tuple[Rule, ...] = (Rule(frozenset([aten.lift_fresh_copy.default]), literal_copy),)

_UNKNOWN = object()
# types whose elements don't all pass through a Python number and `full` unchanged
_NO_PYTHON_NUMBER = frozenset([torch.uint64, torch.complex32])
_LANES = 64
_CHEAP = frozenset(
    [
        aten.arange.default,
        aten.arange.start,
        aten.arange.start_step,
        aten.expand.default,
        aten.eye.default,
        aten.eye.m,
        aten.full.default,
        aten.full_like.default,
        aten.ones.default,
        aten.ones_like.default,
        aten.permute.default,
        aten.scalar_tensor.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.t.default,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.view.default,
        aten.zeros.default,
        aten.zeros_like.default,
    ]
)


def _laid_out(result: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor of its own with the elements of `result` and the strides of `like`.

    Along a dimension of stride 0 one element is stored: nothing can be written to it twice.
    """
    once = [min(size, 1) if stride == 0 else size for size, stride in zip(like.shape, like.stride(), strict=True)]
    stored = torch.empty_strided(once, like.stride(), dtype=like.dtype)
    stored.copy_(result[tuple([slice(size) for size in once])])
    return stored.expand(like.shape)


def _is_pointwise(node: fx.Node) -> bool:
    if not isinstance(node.target, OpOverload) or not _is_repeatable(node):
        return False
    return torch.Tag.pointwise in node.target.tags or node.target in CASTS


def _is_repeatable(node: fx.Node) -> bool:
    effects = aten_dialect.node_effects(node)
    return effects.repeatable and not effects.checks


def _can_be_full(value: torch.Tensor) -> bool:
    if not is_static(value) or value.device.type != "cpu" or value.dtype in _NO_PYTHON_NUMBER or value.is_conj():
        return False
    contiguous = torch.empty(value.shape, device="meta").stride()
    return value.stride() == contiguous and not value.is_neg()


def _few_elements(operand: Any) -> Any:
    """Return a small operand with the same elements and number of dimensions (promotion looks at it); or _UNKNOWN.

    A vector's worth of elements, because ATen may round the elements after the last full vector differently.
    """
    if isinstance(operand, fx.Node):
        value, constant = tensor_of(operand), number(operand)
        if value is None or constant is None:
            return _UNKNOWN
        return torch.full([1] * (value.dim() - 1) + [_LANES] * (value.dim() > 0), constant, dtype=value.dtype)
    return _UNKNOWN if isinstance(operand, (tuple, list)) else operand


def _is_constant(node: fx.Node, context: Context) -> bool:
    """Whether the value of a node is small, and the same in every run."""
    constant = context.constant.get(node)
    if constant is None:
        constant = context.constant[node] = _may_be_constant(node, context) and all(
            _is_constant(operand, context) for operand in node.all_input_nodes
        )
    return constant


def _may_be_constant(node: fx.Node, context: Context) -> bool:
    """Whether the value of a node is the same in every run if those of its operands are."""
    if node.op == "get_attr":
        return _is_literal(node, context.root)
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return False
    if any(context.constant.get(operand) is False for operand in node.all_input_nodes):
        return False
    value = tensor_of(node)
    if value is None or not is_static(value) or value.numel() > MAX_ELEMENTS or value.device.type != "cpu":
        return False
    return aten_dialect.node_effects(node).removable and node.target.namespace == "aten" and not _is_empty(node.target)


@functools.cache
def _is_empty(target: OpOverload) -> bool:
    """Whether a call gives uninitialised memory."""
    return "empty" in str(target)


def _is_literal(node: fx.Node, root: Mapping[str, Any]) -> bool:
    """Whether an attribute is a tensor literal of the program; others may be tensors that the user changes."""
    value = root.get(str(node.target))
    if not isinstance(value, torch.Tensor) or value.requires_grad:
        return False
    return str(node.target).startswith("_folded") or all(
        user.target is aten.lift_fresh_copy.default for user in node.users
    )


def _has_costly(node: fx.Node, context: Context) -> bool:
    """Whether a constant involves a call for whose value memory has to be read or a loop to be run."""
    if node.op == "call_function" and node.target not in _CHEAP:
        value = tensor_of(node)
        if not _is_pointwise(node) or (context.is_mixed and value is not None and value.is_floating_point()):
            return True
    return any(_has_costly(operand, context) for operand in node.all_input_nodes)


def _evaluate(node: fx.Node, root: Mapping[str, Any], values: dict[fx.Node, Any]) -> torch.Tensor:
    """Run the calls that lead to a constant."""
    if node not in values:
        if node.op == "get_attr":
            values[node] = root[str(node.target)]
        else:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: _evaluate(n, root, values))
            values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
    result: torch.Tensor = values[node]
    return result
