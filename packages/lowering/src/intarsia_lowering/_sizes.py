"""Sizes at the border: Python ints and symbolic ints of recorded graphs become index expressions."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._sympy.functions import Max

from intarsia_ir.errors import UnsupportedError
from intarsia_ir.records import SizeFacts
from intarsia_loops.index import IndexExpr, lift
from intarsia_loops.program import Val, cast, const, index_value, val
from intarsia_loops.symbols import symbol

__all__ = ["Sizes"]


class Sizes:
    """Translates sizes and strides, with the ranges that the facts give.

    Args:
        facts: Ranges of the size symbols; a symbol without one is taken as at least 2 (0 and 1 are specialized).

    Attributes:
        may_be_zero: Whether some size may be 0: one that depends on data.
    """

    def __init__(self, facts: SizeFacts) -> None:
        self.facts = facts
        self.may_be_zero = any(low is not None and low <= 0 for low, _ in facts.ranges.values())
        self._symbolic: dict[Any, IndexExpr] = {}
        self._known: dict[tuple[int, ...], tuple[IndexExpr, ...]] = {}

    def __call__(self, size: int | torch.SymInt | IndexExpr) -> IndexExpr:
        """Return the index expression for one size.

        Raises:
            UnsupportedError: A symbolic size uses an operation that index expressions don't have.
        """
        if type(size) is int:
            return lift(size)
        if isinstance(size, IndexExpr):
            return size
        if isinstance(size, torch.SymInt):
            return self.translate(size.node.expr)
        return lift(int(size))

    def each(self, sizes: Any) -> tuple[IndexExpr, ...]:
        """Return the index expressions for a sequence of sizes."""
        sizes = tuple(sizes)
        if not all(type(s) is int for s in sizes):
            return tuple([self(s) for s in sizes])
        exprs = self._known.get(sizes)
        if exprs is None:
            exprs = self._known[sizes] = tuple([lift(s) for s in sizes])
        return exprs

    def strides(self, strides: Any) -> tuple[IndexExpr, ...]:
        """Return the index expressions for strides: that of a size which may be 0 is that size, as `row_major` has it.

        ATen counts a size of 0 as 1 there, and a tensor with such a size has no element to address.
        """
        return tuple(
            [self.translate(_without_floor(s.node.expr)) if isinstance(s, torch.SymInt) else self(s) for s in strides]
        )

    def number(self, value: torch.SymFloat) -> Val:
        """Return a float that is computed from sizes as a value, in float64 like Python's floats.

        Raises:
            UnsupportedError: It uses an operation that values don't have.
        """
        return self._float(value.node.expr)

    def _float(self, expr: Any) -> Val:
        kind = type(expr).__name__
        if expr.is_number:
            return const(float(expr), "f64")
        if expr.is_integer:
            return cast(index_value(self.translate(expr)), "f64")
        if kind in ("ToFloat", "Identity"):
            return self._float(expr.args[0])
        op = {"Add": "add", "Mul": "mul", "IntTrueDiv": "div", "FloatTrueDiv": "div", "FloatPow": "pow", "Pow": "pow"}
        args = [self._float(a) for a in expr.args]
        if kind in op:
            result = args[0]
            for a in args[1:]:
                result = val(op[kind], result, a, dtype="f64")
            return result
        if kind == "OpaqueUnaryFn_sqrt":
            return val("sqrt", args[0], dtype="f64")
        raise UnsupportedError(
            f"the number {expr} uses {kind}, which bodies don't compute",
            code="loops.size_expression",
            hints=("mark the dimension as static",),
        )

    def translate(self, expr: Any) -> IndexExpr:
        """Return the index expression for a SymPy expression over sizes."""
        expr_of_loops = self._symbolic.get(expr)
        if expr_of_loops is None:
            expr_of_loops = self._symbolic[expr] = self._build(expr)
        return expr_of_loops

    def _build(self, expr: Any) -> IndexExpr:
        kind = type(expr).__name__
        if getattr(expr, "is_Integer", False):
            return lift(int(expr))
        if getattr(expr, "is_Symbol", False):
            return symbol(expr.name, self.facts)
        args = [self.translate(a) for a in expr.args]
        if kind == "Add":
            return sum(args[1:], args[0])
        if kind == "Mul":
            product = args[0]
            for a in args[1:]:
                product = product * a
            return product
        if kind == "Pow" and (exponent := args[1].const()) is not None and exponent > 0:
            power = args[0]
            for _ in range(exponent - 1):
                power = power * args[0]
            return power
        if kind in ("FloorDiv", "CleanDiv"):
            return args[0] // args[1]
        if kind in ("Mod", "PythonMod"):
            return args[0] % args[1]
        raise UnsupportedError(
            f"the size {expr} uses {kind}, which index expressions don't have",
            code="loops.size_expression",
            hints=("mark the dimension as static",),
        )


def _without_floor(stride: Any) -> Any:
    """Return a product of sizes without `Max(1, ...)` around any of them."""
    if stride.is_number or stride.is_Symbol:
        return stride
    floors = {a: a.args[1] for a in stride.atoms(Max) if len(a.args) == 2 and a.args[0] == 1}
    return stride.xreplace(floors) if floors else stride
