"""Rules of arithmetic: a call that gives one of its operands, bit for bit (which bits of a NaN doesn't count)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.fx as fx

from intarsia_rewrites._rules import CASTS, Context, Found, Rule, argument, is_number, same_value, tensor_of

__all__ = ["RULES"]

aten = torch.ops.aten


def add_zero(node: fx.Node, context: Context) -> Found:
    """x + 0 -> x, for integers; x + (-0.0) -> x, for floats.

    Condition: no alpha. Law: -0.0 is the neutral element of IEEE 754 addition; -0.0 + 0.0 is 0.0, so 0.0 isn't.
    """
    if argument(node, "alpha", 1) != 1:
        return None
    value = tensor_of(node)
    if value is None or value.is_complex():
        return None
    zero = -0.0 if value.is_floating_point() else 0
    x, y = argument(node, "self"), argument(node, "other")
    if is_number(y, zero) and same_value(node, x):
        return _node(x)
    return _node(y) if is_number(x, zero) and same_value(node, y) else None


def sub_zero(node: fx.Node, context: Context) -> Found:
    """x - 0 -> x.

    Condition: no alpha; for floats the zero is 0.0. Law: x - 0.0 = x + (-0.0) = x.
    """
    if argument(node, "alpha", 1) != 1:
        return None
    x = argument(node, "self")
    return _node(x) if is_number(argument(node, "other"), 0.0) and _real(node, x) else None


def mul_one(node: fx.Node, context: Context) -> Found:
    """x * 1 -> x, 1 * x -> x.

    Condition: x is real (a complex product has terms b * 0, NaN for infinite b). Law: 1 is neutral.
    """
    x, y = argument(node, "self"), argument(node, "other")
    if is_number(y, 1) and _real(node, x):
        return _node(x)
    return _node(y) if is_number(x, 1) and _real(node, y) else None


def div_one(node: fx.Node, context: Context) -> Found:
    """x / 1 -> x.

    Condition: x is a real float (the quotient of integers is a float). Law: division by 1 is exact.
    """
    x = argument(node, "self")
    return _node(x) if is_number(argument(node, "other"), 1) and _real(node, x) else None


def pow_one(node: fx.Node, context: Context) -> Found:
    """x ** 1 -> x.

    Condition: the exponent is a number, and x is real. Law: ATen copies the base for it.
    """
    x = argument(node, "self")
    return _node(x) if is_number(argument(node, "exponent"), 1) and _real(node, x) else None


def bit_identity(node: fx.Node, context: Context) -> Found:
    """x | 0 -> x, x ^ 0 -> x, x & -1 -> x; for bools with False, False and True.

    Law: 0 is neutral for or and exclusive or; all ones are neutral for and.
    """
    value = tensor_of(node)
    if value is None or value.dtype not in _SIGNED_OR_BOOL:
        return None
    if node.target in (
        aten.bitwise_or.Tensor,
        aten.bitwise_xor.Tensor,
        aten.bitwise_or.Scalar,
        aten.bitwise_xor.Scalar,
    ):
        neutral = 0
    elif node.target in (aten.bitwise_and.Tensor, aten.bitwise_and.Scalar):
        neutral = 1 if value.dtype is torch.bool else -1
    else:
        return None
    x, y = argument(node, "self"), argument(node, "other")
    if is_number(y, neutral) and same_value(node, x):
        return _node(x)
    return _node(y) if is_number(x, neutral) and same_value(node, y) else None


def double_negation(node: fx.Node, context: Context) -> Found:
    """-(-x) -> x, ~~x -> x, not not x -> x.

    Condition: for `logical_not` x is bool. Law: these are involutions (negation of integers wraps, and wraps back).
    """
    inner = node.args[0]
    if not isinstance(inner, fx.Node) or inner.target is not node.target:
        return None
    x = inner.args[0]
    return _node(x) if same_value(node, x) else None


def where_same(node: fx.Node, context: Context) -> Found:
    """where(c, x, x) -> x.

    Condition: c doesn't make the result larger than x. Law: both branches are the same.
    """
    x = argument(node, "self")
    return _node(x) if x is argument(node, "other") and same_value(node, x) else None


def same_cast(node: fx.Node, context: Context) -> Found:
    """A conversion to the type, device and layout that x has -> x.

    Condition: strides are kept. Law: converting to the own type copies.
    """
    if argument(node, "pin_memory"):
        return None
    x = node.args[0]
    return _node(x) if same_value(node, x) else None


def cast_round_trip(node: fx.Node, context: Context) -> Found:
    """Conversion of x to a wider type, and back -> x.

    Condition: every value of x has an exact counterpart in the wider type. Law: conversion back is exact then.
    """
    if argument(node, "pin_memory"):
        return None
    inner = node.args[0]
    if not isinstance(inner, fx.Node) or inner.target not in CASTS:
        return None
    x = inner.args[0]
    narrow, wide = tensor_of(x), tensor_of(inner)
    if narrow is None or wide is None or wide.device != narrow.device:
        return None
    return _node(x) if wide.dtype in _WIDER.get(narrow.dtype, ()) and same_value(node, x) else None


_OR_XOR = frozenset([aten.bitwise_or.Tensor, aten.bitwise_or.Scalar, aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar])
_SIGNED_OR_BOOL = frozenset([torch.bool, torch.int8, torch.int16, torch.int32, torch.int64])
_WIDER: Mapping[torch.dtype, tuple[torch.dtype, ...]] = {
    torch.float16: (torch.float32, torch.float64),
    torch.bfloat16: (torch.float32, torch.float64),
    torch.float32: (torch.float64,),
    torch.bool: (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64),
    torch.uint8: (torch.int16, torch.int32, torch.int64, torch.float32, torch.float64),
    torch.int8: (torch.int16, torch.int32, torch.int64, torch.float32, torch.float64),
    torch.int16: (torch.int32, torch.int64, torch.float32, torch.float64),
    torch.int32: (torch.int64, torch.float64),
    torch.complex64: (torch.complex128,),
}


def _node(value: Any) -> fx.Node | None:
    return value if isinstance(value, fx.Node) else None


def _real(node: fx.Node, x: Any) -> bool:
    """Whether `x` is real, and gives what the result is like."""
    value = tensor_of(x)
    return value is not None and not value.is_complex() and same_value(node, x)


RULES: tuple[Rule, ...] = (
    Rule(frozenset([aten.add.Tensor, aten.add.Scalar]), add_zero),
    Rule(frozenset([aten.sub.Tensor, aten.sub.Scalar]), sub_zero),
    Rule(frozenset([aten.mul.Tensor, aten.mul.Scalar]), mul_one),
    Rule(frozenset([aten.div.Tensor, aten.div.Scalar]), div_one),
    Rule(frozenset([aten.pow.Tensor_Scalar]), pow_one),
    Rule(_OR_XOR | {aten.bitwise_and.Tensor, aten.bitwise_and.Scalar}, bit_identity),
    Rule(frozenset([aten.neg.default, aten.bitwise_not.default, aten.logical_not.default]), double_negation),
    Rule(frozenset([aten.where.self]), where_same),
    Rule(CASTS, same_cast),
    Rule(CASTS, cast_round_trip),
)
